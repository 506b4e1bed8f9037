"""Requests: operands of dot products, drawn at random or made for a purpose."""

from accprobe.operands.request import Request

__all__ = ["Request"]

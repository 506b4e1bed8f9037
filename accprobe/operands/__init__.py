"""Requests: operands of dot products, drawn at random or made for a purpose."""

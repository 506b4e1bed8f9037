"""Requests: operands of dot products, drawn at random or made for a purpose; and the protocol of devices."""

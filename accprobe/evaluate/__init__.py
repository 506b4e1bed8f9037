"""The model's numbers: what a `DotModel` makes of operands, bit for bit."""

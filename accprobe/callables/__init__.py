"""Callables: open one by name, hand operands to it, and read its results."""

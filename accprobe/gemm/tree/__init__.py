"""The summation tree of K: measure, build and describe it."""

"""What the arithmetic of a matrix product costs: the errors that it makes, and the tolerance that a test of it may ask."""

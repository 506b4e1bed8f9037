"""Reports held against each other, and against requirements."""

"""Whether a GPU computes what its model says, SM by SM."""

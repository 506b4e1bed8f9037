"""Compares the results of a GPU with its model, SM by SM."""

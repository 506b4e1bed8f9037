"""Explain given results: find the known plan that gives their bits."""

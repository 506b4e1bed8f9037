"""Checks of the callable: does it compute A·B, is it repeatable, and is D computed uniformly?"""

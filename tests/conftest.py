"""Hypothesis draws the same examples in every run, unless `--hypothesis-profile=fresh` asks for others."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.register_profile("fresh", derandomize=False)
settings.load_profile("fixed")

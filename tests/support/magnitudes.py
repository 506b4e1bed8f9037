"""Magnitudes drawn by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st


def magnitudes(bits: int) -> st.SearchStrategy[int]:
    """Numbers of at most so many bits: any, zero, and those around powers of two."""
    powers = st.builds(lambda e, d: max(0, min((1 << bits) - 1, (1 << e) + d)), st.integers(0, bits - 1), st.integers(-1, 1))
    return st.just(0) | st.integers(0, (1 << bits) - 1) | powers

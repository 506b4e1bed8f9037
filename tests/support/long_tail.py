"""Of tests that differ in little, which are in the long tail."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from _pytest.mark import ParameterSet

EVERY = 4


def some(values: Sequence[object]) -> list[ParameterSet]:
    """The first and each fourth as they are, the others slow."""
    return [pytest.param(value, marks=pytest.mark.slow if i % EVERY else ()) for i, value in enumerate(values)]

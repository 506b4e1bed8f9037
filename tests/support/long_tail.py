"""Of tests that differ in little, which are in the long tail."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from _pytest.mark import ParameterSet


def some(values: Sequence[object], every: int = 5) -> list[ParameterSet]:
    """The first and each fifth as they are, the others slow."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow if i % every else ())
        for i, value in enumerate(values)
    ]

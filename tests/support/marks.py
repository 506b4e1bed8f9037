"""Marks of tests: they need a GPU, or they belong to the slow tests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from _pytest.mark import ParameterSet

from accprobe.build import driver

NO_GPU = driver.explain_missing_gpu()
only_on_a_gpu = [pytest.mark.gpu, pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU))]


def some(values: Sequence[object], every: int = 5) -> list[ParameterSet]:
    """Return the first and each fifth parameter as they are, the others as slow ones."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow if i % every else ())
        for i, value in enumerate(values)
    ]

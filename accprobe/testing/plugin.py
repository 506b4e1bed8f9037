"""A pytest plugin with one fixture, loaded wherever accprobe is installed."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def matmul_close() -> Callable[..., None]:
    """`accprobe.testing.assert_matmul_close`."""
    from accprobe.testing import assert_matmul_close

    return assert_matmul_close

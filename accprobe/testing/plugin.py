"""What pytest knows of accprobe wherever it is installed: one fixture."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def matmul_close() -> Callable[..., None]:
    """`accprobe.testing.assert_matmul_close`."""
    from accprobe.testing import assert_matmul_close

    return assert_matmul_close

"""`assert_same_bits`: passes for equal programs, and names the first operation that differs."""

from __future__ import annotations

from typing import Any

import pytest

from accprobe.testing import assert_same_bits

torch = pytest.importorskip("torch")


def normalised(x: Any) -> Any:
    return torch.nn.functional.normalize(x)


def shifted(x: Any) -> Any:
    """Each row depends on the number of rows."""
    return normalised(x) * (1 + len(x) / 256)


X = torch.arange(32.0).reshape(8, 4)


def test_equal_programs_pass() -> None:
    assert_same_bits(normalised, lambda x: normalised(x), inputs=[X])
    assert_same_bits(normalised, inputs=[X], batch=(1, 8))


def test_the_first_difference_is_named() -> None:
    with pytest.raises(AssertionError, match=r"first difference: aten.mul .*1\.00390625.* against .*1\.03125"):
        assert_same_bits(shifted, inputs=[X], batch=(1, 8))

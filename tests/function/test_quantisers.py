"""`accprobe function --scale`: whether a quantiser divides by its scale, multiplies, or multiplies by the reciprocal."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from commands import invoke

from accprobe.function import quantisers

OWN = """
import ml_dtypes
import numpy as np
import accprobe
def narrow(x): return np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn)
def whole(x): return x.astype(np.float32)
def divide(x, scale): return narrow(whole(x) / scale)
def reciprocal(x, scale): return narrow(whole(x) * (1 / scale))
def multiply(x, scale): return (whole(x) * scale).astype(ml_dtypes.float8_e5m2)
def blocks(x, scale): return narrow(whole(x) / np.repeat(scale, 128, -1))
def full(x, scale):
    return narrow(whole(x) * accprobe.predict("functions-h200:rcp.approx.f32", np.broadcast_to(scale, x.shape)))
def half(x, scale): return narrow(np.float16(whole(x) / scale))
def first(x, scale): return narrow(x[:1])
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    monkeypatch.setattr(quantisers, "scale_values", lambda: np.array([1, 1 / 448, 41, 0.1], np.float32))
    return str(path)


run = partial(invoke, *["function", "--dtype", "f16", "--device", "cpu", "--arrays", "numpy"], columns=300)


@pytest.mark.parametrize(
    ("name", "layout", "computes"),
    [
        ("divide", "row", "each row: x / scale in f32, rounded to e4m3 (RNE), saturated, subnormal results kept;"),
        ("reciprocal", "tensor", "each tensor: x · (1 / scale) in f32, rounded to e4m3 (RNE), saturated"),
        ("multiply", "row", "x · scale in f32, rounded to e5m2 (RNE), too large values become infinity"),
        ("blocks", "block", "each block: x / scale in f32, rounded to e4m3"),
        ("full", "row", "div.full(x, scale) in f32, rounded to e4m3 (RNE), saturated"),
        ("half", "row", "x / scale in f32, rounded to f16, rounded to e4m3"),
    ],
)
def test_a_quantiser_is_explained_on_every_operand(name: str, layout: str, computes: str, own: str) -> None:
    found = run(f"{own}:{name}", "--scale", layout)
    assert (found.exit_code, found.stderr) == (0, "")
    assert computes in found.stdout
    assert "262,144 combinations of operands compared, 0 differ" in found.stdout


def test_a_division_and_a_multiplication_by_the_reciprocal_differ(own: str) -> None:
    found = run(f"{own}:divide", "--scale", "row", "--versus", f"{own}:reciprocal")
    assert found.exit_code == 1
    first = found.stdout.splitlines()[0]
    assert "reciprocal differ for" in first
    assert "by at most 1 ulp; first: x = 0x" in first
    assert run(f"{own}:divide", "--scale", "row", "--versus", f"{own}:divide").exit_code == 0


def test_a_result_of_another_shape_is_one_sentence(own: str) -> None:
    found = run(f"{own}:first", "--scale", "row")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "own.py:first returns [1, 65536] of float8_e4m3fn; expected" in found.stderr

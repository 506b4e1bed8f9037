"""Operands with scales, against every code of the format tried in turn."""

from __future__ import annotations

from dataclasses import replace
from math import floor, log2

import numpy as np
import pytest

from accprobe.budget.accumulation import of_named
from accprobe.budget.data import DrawnPair, draw_values, quantise
from accprobe.budget.errors import exact_sums
from accprobe.evaluate.product import product
from accprobe.evaluate.quantised import SHARINGS, quantised_operand
from accprobe.isa.formats import FORMATS, Format

E4M3 = FORMATS["e4m3"]
QGMMA = of_named("h200:wgmma.m64n8k32.f32.e4m3.e4m3")
WIDE = (np.random.default_rng(1).standard_normal((130, 300)) * 10.0 ** np.linspace(-4, 4, 300)).astype(np.float32)


def nearest_code(fmt: Format, value: float) -> float:
    """The nearest of all codes' values; of two the even code."""
    codes = [code for code in range(1 << (fmt.bits - 1)) if np.isfinite(fmt.values(np.array([code], fmt.dtype))[0])]
    values = fmt.values(np.array(codes, fmt.dtype))
    apart = np.abs(values - abs(value))
    ties = np.flatnonzero(apart == apart.min())
    best = next((i for i in ties if codes[i] % 2 == 0), ties[0])
    return float(np.copysign(values[best], value))


def scale_of(kind: str, values: np.ndarray, row: int, k: int, weights: bool) -> float:
    """As the definitions have it, of one number."""
    if kind == "tensor":
        return np.abs(values).max() / np.float32(448)
    if kind == "row":
        return np.abs(values[row]).max() / np.float32(448)
    ks = {"mx32": 32, "nv16": 16}.get(kind, 128)
    rows = slice(row // 128 * 128, row // 128 * 128 + 128) if kind == "128x128" and weights else slice(row, row + 1)
    amax = np.abs(values[rows, k // ks * ks : (k // ks + 1) * ks]).max()
    if kind == "mx32":
        return 2.0 ** (floor(log2(amax)) - 8)
    if kind == "nv16":
        of_tensor = np.abs(values).max() / np.float32(6 * 448)
        below = nearest_code(E4M3, float(amax / (np.float32(6) * of_tensor)))
        return np.float32(below or 2.0**-9) * of_tensor
    return amax / np.float32(448)


@pytest.mark.parametrize("kind", [kind for kind in SHARINGS if kind != "none"])
@pytest.mark.parametrize("weights", [False, True])
def test_every_code_is_the_nearest_of_all(kind: str, weights: bool) -> None:
    sharing = SHARINGS[kind]
    found = quantised_operand(sharing[weights], E4M3, WIDE)
    element = FORMATS["e2m1"] if kind == "nv16" else E4M3
    plain, scaled = found.values(scaled=False), found.values()
    for row, k in np.random.default_rng(0).integers(0, WIDE.shape, (60, 2)):
        scale = scale_of(kind, WIDE, row, k, weights)
        assert plain[row, k] == nearest_code(element, float(WIDE[row, k] / np.float32(scale)))
        assert scaled[row, k] == plain[row, k] * float(np.float32(scale))


def test_fidelity_equals_a_count_of_each_number() -> None:
    values = np.array([[500.0, 460.0, 1e-4, 0.0, 1.0, 1.0625]], np.float32)
    fidelity = quantised_operand(None, E4M3, values).fidelity(values)
    assert (fidelity.saturated, fidelity.flushed, fidelity.scale_bytes) == (1 / 6, 1 / 6, 0)
    noise = 52**2 + 12**2 + 1e-8 + 0.0625**2
    assert fidelity.snr == pytest.approx(10 * np.log10(float(np.square(values, dtype=np.float64).sum()) / noise))
    exact = np.ones((1, 4), np.float32)
    assert quantised_operand(None, E4M3, exact).fidelity(exact).snr is None


@pytest.mark.parametrize(
    ("kind", "promote_every", "split_k", "inside"),
    [
        ("1x128", 128, 1, True),
        ("128x128", 32, 1, True),
        ("1x128", 128, 3, False),
        ("1x128", 128, 2, True),
        ("1x128", 256, 1, False),
        ("1x128", None, 1, False),
        ("1x128", None, 4, True),
        ("mx32", 32, 1, True),
        ("mx32", 128, 1, False),
        ("nv16", 32, 1, False),
        ("row", None, 1, True),
        ("tensor", 128, 3, True),
        ("none", 128, 1, False),
    ],
)
def test_scales_are_applied_where_a_kernel_of_that_plan_can(
    kind: str, promote_every: int | None, split_k: int, inside: bool
) -> None:
    """And then the product is that of the scaled values, but for what sums and scalings round."""
    values = draw_values("normal", 3, 5, 512, np.random.default_rng(0))
    pair = quantise(kind, E4M3, E4M3, DrawnPair(values.a * np.float32(7), values.b))
    model = QGMMA.product(512, promote_every, split_k)
    applied = pair.apply_scales(model)
    assert (applied is not None) == inside
    if applied is not None:
        scales, words = applied
        d = product(replace(model, scales=scales), *pair.patterns, scales=words).view(np.float32)
        exact = exact_sums(pair.a.values(), pair.b.values())
        assert (np.abs(d - exact.sums) <= 0.002 * exact.sizes).all()

"""Accumulations by name, the data of error budgets, and operands with scales against every code of the format."""

from __future__ import annotations

from dataclasses import replace
from math import floor, log2

import numpy as np
import pytest

from accprobe.budget.accumulation import of_named
from accprobe.budget.data import DATA_KINDS, KEPT_BACK, DrawnPair, draw_values, quantise
from accprobe.budget.errors import exact_sums
from accprobe.evaluate.product import product
from accprobe.evaluate.quantised import SHARINGS, quantised_operand
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import Chain, Merged
from accprobe.report.report import Report

LIKE = "h200:wgmma.m64n8k32.f32.e4m3.e4m3"


@pytest.mark.parametrize(
    ("name", "dtype", "meant", "also"),
    [
        ("qgmma", "", LIKE, "other instructions have operands in e5m2: name one"),
        (
            "HMMA",
            "",
            "h200:mma.sync.m16n8k16.f32.f16.f16.f32",
            "other instructions have operands in bf16, tf32, e4m3, e5m2: name one",
        ),
        ("UTCQMMA", "", "sim:b200:tcgen05.m128n16k32.kind::f8f6f4.f32.e4m3.e4m3", "a published model"),
        ("h200:wgmma*e4m3.e4m3", "", LIKE, ""),
    ],
)
def test_a_name_of_several_instructions_has_a_default_and_says_which(name: str, dtype: str, meant: str, also: str) -> None:
    found = of_named(name, dtype)
    assert found.name == meant
    assert found.remark.startswith(f"{name}: using {meant}")
    assert also in found.remark


def test_slices_are_as_even_as_whole_sums_allow() -> None:
    tree = of_named(LIKE).product(1000, 96, split_k=3, out=FORMATS["bf16"]).tree
    borders = [
        [(chain.start, chain.stop) for chain in (part.parts if isinstance(part, Merged) else [part])] for part in tree.parts
    ]
    assert borders[0] == [(0, 96), (96, 192), (192, 288), (288, 352)]
    assert [(each[0][0], each[-1][1]) for each in borders] == [(0, 352), (352, 704), (704, 1000)]


def test_a_measured_product_is_selected_by_words_of_its_title() -> None:
    row = next(row for row in Report.load("products-h200").products if "use_fast_accum=False" in row.words)
    found = of_named(f"products-h200:{row.title}")
    assert found.measured == row.regions[0].model
    longer = found.product(4 * row.k, 128).tree
    assert all(isinstance(part, Chain) for part in longer.parts)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("kind", DATA_KINDS)
def test_every_kind_has_the_requested_shape_and_depends_only_on_the_seed(kind: str) -> None:
    a, b = draw_values(kind, 3, 5, 1001, rng())
    assert (a.shape, b.shape, a.dtype, b.dtype) == ((3, 1001), (5, 1001), np.float32, np.float32)
    again = draw_values(kind, 3, 5, 1001, rng())
    assert (a == again.a).all()
    assert (b == again.b).all()
    assert (a != draw_values(kind, 3, 5, 1001, np.random.default_rng(1)).a).any()


def test_ranges_of_kinds() -> None:
    a, b = draw_values("same-sign", 4, 4, 4096, rng())
    assert min(a.min(), b.min()) >= 0
    assert max(a.max(), b.max()) < 1
    p, v = draw_values("attention", 4, 4, 4096, rng())
    assert (p.max(axis=1) == 1).all()
    assert p.min() > 0
    assert v.min() < 0
    assert set(np.unique(draw_values("integers", 4, 4, 4096, rng()).b)) == set(range(-7, 8))


def test_outliers_are_a_few_k_of_a_normal_a() -> None:
    """1 in 256 of them, 10^2 to 10^4 times larger, in every row."""
    a, b = draw_values("outliers", 4, 4, 1 << 16, rng())
    usual = draw_values("normal", 4, 4, 1 << 16, rng())
    assert (b == usual.b).all()
    times = a / usual.a
    larger = (times > 1.5).all(axis=0)
    assert larger.sum() == 256
    assert (times[:, ~larger] == 1).all()
    assert times[:, larger] == pytest.approx(np.broadcast_to(times[0, larger], (4, 256)), rel=1e-6)
    assert 99 < times[:, larger].min() < 110
    assert 9000 < times[:, larger].max() < 10001
    assert (draw_values("outliers", 1, 1, 10, rng()).a != draw_values("normal", 1, 1, 10, rng()).a).sum() == 1


def test_cancelling_sums_grow_and_come_back() -> None:
    a, b = draw_values("cancelling", 4, 4, 4096, rng())
    products = a.astype(np.float64)[:, None] * b
    half, whole = products[..., :2048].sum(axis=-1), products.sum(axis=-1)
    assert whole == pytest.approx(half * 2 / KEPT_BACK, rel=0.3)


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
        ("1x128", None, 4, True),
        ("mx32", 32, 1, True),
        ("nv16", 32, 1, False),
        ("row", None, 1, True),
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

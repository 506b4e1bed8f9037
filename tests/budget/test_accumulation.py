"""Accumulations by name, and the data of error budgets."""

from __future__ import annotations

import numpy as np
import pytest

from accprobe.budget.accumulation import of_named
from accprobe.budget.data import DATA_KINDS, KEPT_BACK, draw_values
from accprobe.isa.formats import FORMATS
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

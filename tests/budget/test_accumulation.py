"""Accumulations by name, and their products."""

from __future__ import annotations

import numpy as np
import pytest

from accprobe.budget.accumulation import of_named
from accprobe.emulate import matmul
from accprobe.errors import AccprobeError, UnknownName
from accprobe.evaluate.product import product
from accprobe.isa.formats import FORMATS
from accprobe.model.product import Chain, Merged
from accprobe.report.report import Report

LIKE = "h200:wgmma.m64n8k32.f32.e4m3.e4m3"


@pytest.mark.parametrize(
    ("name", "dtype", "meant", "also"),
    [
        ("qgmma", "", LIKE, "also e5m2 (--dtype)"),
        ("HMMA", "", "h200:mma.sync.m16n8k16.f32.f16.f16.f32", "also bf16, tf32, e4m3, e5m2 (--dtype)"),
        ("HGMMA", "bf16", "h200:wgmma.m64n8k16.f32.bf16.bf16", ""),
        ("h100:HGMMA", "", "h100:wgmma.m64n8k16.f32.f16.f16", "also bf16, tf32 (--dtype)"),
        ("UTCQMMA", "", "sim:b200:tcgen05.m128n16k32.kind::f8f6f4.f32.e4m3.e4m3", "a published model"),
        ("wgmma.m64n8k32.f32.e4m3.e4m3", "", LIKE, ""),
        ("h200:wgmma*e4m3.e4m3", "", LIKE, ""),
    ],
)
def test_a_name_of_several_instructions_has_a_default_and_says_which(name: str, dtype: str, meant: str, also: str) -> None:
    found = of_named(name, dtype)
    assert found.name == meant
    assert found.remark.startswith(f"{name}: using {meant}")
    assert also in found.remark


@pytest.mark.parametrize("promote_every", [None, 128])
def test_its_chain_equals_emulation(promote_every: int | None) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(FORMATS["e4m3"].ml_dtype) for shape in ((5, 1000), (1000, 7)))
    model = of_named(LIKE).product(1000, promote_every)
    found = product(model, a.view(np.uint8), np.ascontiguousarray(b.T).view(np.uint8))
    assert (found.view(np.float32) == matmul(a, b, like=LIKE, promote_every=promote_every)).all()


def test_slices_are_as_even_as_whole_sums_allow() -> None:
    tree = of_named(LIKE).product(1000, 96, split_k=3, out=FORMATS["bf16"]).tree
    assert isinstance(tree, Merged)
    borders = [
        [(chain.start, chain.stop) for chain in (part.parts if isinstance(part, Merged) else [part])] for part in tree.parts
    ]
    assert borders[0] == [(0, 96), (96, 192), (192, 288), (288, 352)]
    assert [(each[0][0], each[-1][1]) for each in borders] == [(0, 352), (352, 704), (704, 1000)]


@pytest.mark.parametrize("asked", [{"promote_every": 48}, {"promote_every": 0}, {"split_k": 5}, {"split_k": 0}])
def test_borders_within_a_sum_are_refused(asked: dict[str, int]) -> None:
    with pytest.raises(AccprobeError, match=r"products of a fused sum|there are only"):
        of_named(LIKE).product(128, **asked)


def test_a_measured_product_is_selected_by_words_of_its_title() -> None:
    row = next(row for row in Report.load("products-h200").products if "use_fast_accum=False" in row.words)
    found = of_named(f"products-h200:{row.title}")
    assert found.measured == row.regions[0].model
    longer = found.product(4 * row.k, 128).tree
    assert isinstance(longer, Merged)
    assert all(isinstance(part, Chain) for part in longer.parts)
    with pytest.raises(UnknownName, match="products-h200 has no product 'nothing'"):
        of_named("products-h200:nothing")

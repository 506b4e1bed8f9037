"""What a user names: an instruction, an opcode or a measured product, and the plans that are made of it."""

from __future__ import annotations

import numpy as np
import pytest

from accprobe.budget.accumulation import of_instruction, of_product
from accprobe.emulate import matmul
from accprobe.errors import AccprobeError, UnknownName
from accprobe.evaluate.product import product
from accprobe.isa.formats import FORMATS
from accprobe.model.product import Chain, Merged
from accprobe.report.report import Report

LIKE = "h200:wgmma.m64n8k32.f32.e4m3.e4m3"


def test_an_opcode_is_the_first_recorded_instruction_that_became_it_and_gives_float32() -> None:
    assert of_instruction("qgmma") == of_instruction(LIKE)
    assert of_instruction("HGMMA").a is FORMATS["f16"]


@pytest.mark.parametrize("promote_every", [None, 128])
def test_its_chain_is_what_emulate_computes(promote_every: int | None) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(FORMATS["e4m3"].ml_dtype) for shape in ((5, 1000), (1000, 7)))
    model = of_instruction(LIKE).product(1000, promote_every)
    found = product(model, a.view(np.uint8), np.ascontiguousarray(b.T).view(np.uint8))
    assert (found.view(np.float32) == matmul(a, b, like=LIKE, promote_every=promote_every)).all()


def test_slices_are_as_even_as_whole_sums_allow() -> None:
    tree = of_instruction(LIKE).product(1000, 96, split_k=3, out=FORMATS["bf16"]).tree
    assert isinstance(tree, Merged)
    borders = [
        [(chain.start, chain.stop) for chain in (part.parts if isinstance(part, Merged) else [part])] for part in tree.parts
    ]
    assert borders[0] == [(0, 96), (96, 192), (192, 288), (288, 352)]
    assert [(each[0][0], each[-1][1]) for each in borders] == [(0, 352), (352, 704), (704, 1000)]


@pytest.mark.parametrize("asked", [{"promote_every": 48}, {"promote_every": 0}, {"split_k": 5}, {"split_k": 0}])
def test_borders_within_a_sum_are_refused(asked: dict[str, int]) -> None:
    with pytest.raises(AccprobeError, match=r"products of a fused sum|there are only"):
        of_instruction(LIKE).product(128, **asked)


def test_a_measured_product_is_named_by_words_that_tell_it() -> None:
    row = next(row for row in Report.load("products-h200").products if "use_fast_accum=False" in row.words)
    found = of_product(f"products-h200:{row.title}")
    assert found.measured == row.regions[0].model
    longer = found.product(4 * row.k, 128).tree
    assert isinstance(longer, Merged)
    assert all(isinstance(part, Chain) for part in longer.parts)
    with pytest.raises(UnknownName, match="0 products of products-h200 match 'nothing'"):
        of_product("products-h200:nothing")


@pytest.mark.parametrize("name", ["XGMMA", "h200:wgmma.m64n8k32.f33.e4m3.e4m3"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownName):
        of_instruction(name)


def test_integers_and_mixed_results_are_refused() -> None:
    with pytest.raises(AccprobeError, match="dense float instruction"):
        of_instruction("h200:mma.sync.m16n8k32.s32.s8.s8.s32")

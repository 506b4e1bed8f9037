"""What published models predict of a sweep: a promoted block is its parts, added in f32."""

from __future__ import annotations

from functools import reduce

import numpy as np

from accprobe.sass.lowering import Lowering
from accprobe.sweep import prediction
from accprobe.sweep.configurations import DTYPES, Configuration
from accprobe.sweep.masks import Totals
from accprobe.sweep.operands import draw_matrices

SIDE, K = 8, 256
FP8 = DTYPES["e4m3"]


def predicted(target: str, opcode: str, block_k: int, promote_every: int | None = None) -> list[Totals]:
    """The sum of each block, [blocks][M, N], of the same operands whatever the block."""
    chain = prediction.published_chain(target, FP8, Lowering((opcode,), ((opcode, 1),), "nvdisasm"))
    assert chain is not None
    operands = draw_matrices("full-width", FP8, SIDE, SIDE, K, K, seed=1)
    return list(prediction.partials(Configuration(FP8, block_k, 4, promote_every=promote_every), chain, operands))


def test_a_promoted_block_is_the_sum_of_its_parts() -> None:
    opcode = "QGMMA.64x64x32.F32.E4M3.E4M3"
    (promoted,), (whole,) = predicted("sm_90a", opcode, K, 64), predicted("sm_90a", opcode, K)
    parts = predicted("sm_90a", opcode, 64)
    assert len(parts) == K // 64
    np.testing.assert_array_equal(promoted, reduce(np.add, parts))
    assert (promoted != whole).any()


def test_what_is_not_promoted_ignores_the_limit() -> None:
    opcode = "QMMA.16832.F32.E4M3.E4M3"
    np.testing.assert_array_equal(predicted("sm_89", opcode, K, 64), predicted("sm_89", opcode, K))

"""Long products: an instruction in a chain along K, each taking the sum before it as its addend, promoted now and then.

Promotion begins the chain anew every so many products; what it came to is added to a float32 sum that ordinary adds keep, as
CUTLASS and DeepGEMM do with fp8 (N_C of DeepSeek-V3, arXiv 2412.19437, section 3.3.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request

TILE = 1 << 16
"""Results computed at once."""

F32_NAN = 0x7FFFFFFF
"""What a float32 add of the GPU makes of NaNs (PTX ISA, add: NaN results are canonical)."""


@dataclass(frozen=True)
class Chain:
    """How products along K follow one another.

    groups: the k of each instruction in turn, which repeat along K. promote_every: products after which the chain begins anew,
    None: never.
    """

    instruction: Instruction
    model: DotModel
    groups: tuple[tuple[int, ...], ...]
    promote_every: int | None = None

    @property
    def period(self) -> int:
        """Products after which the groups repeat."""
        return sum(map(len, self.groups))

    def steps(self, k: int) -> Iterator[tuple[slice | list[int], int]]:
        """The k of each instruction, and how many of the products are then added."""
        count = 0
        for start in range(0, k, self.period):
            for group in self.groups:
                count += len(group)
                in_order = len(self.groups) == 1
                yield slice(start, start + len(group)) if in_order else [start + i for i in group], count


def in_order(inst: Instruction, model: DotModel, promote_every: int | None = None) -> Chain:
    """The chain whose instructions take k as it comes."""
    return Chain(inst, model, (tuple(range(inst.k)),), promote_every)


def product(chain: Chain, a: Bits, b: Bits, c: Bits) -> Bits:
    """a [..., M, K], b [..., N, K], c [..., M, N], bit patterns -> [..., M, N]: each row of A with each of B.

    K is a multiple of the chain's period. Promoted, C and the results are of f32: C is what the float32 sum begins with.
    """
    *many, m, n = c.shape
    d = np.empty(c.shape, np.uint32 if chain.promote_every else chain.instruction.d.dtype)
    columns = max(1, min(n, TILE // max(1, prod(many))))
    rows = max(1, TILE // max(1, prod(many) * columns))
    for top in range(0, m, rows):
        for left in range(0, n, columns):
            y, x = slice(top, top + rows), slice(left, left + columns)
            d[..., y, x] = _tile(chain, a[..., y, :], b[..., x, :], c[..., y, x])
    return d


def _tile(chain: Chain, a: Bits, b: Bits, c: Bits) -> Bits:
    inst, k, zero = chain.instruction, a.shape[-1], np.zeros(c.size, chain.instruction.c.dtype)
    total = np.ascontiguousarray(c).reshape(-1)
    running = zero if chain.promote_every else total
    for ks, count in chain.steps(k):
        shape = (*c.shape, len(chain.groups[0]))
        block_a = np.broadcast_to(a[..., :, None, ks], shape).reshape(c.size, -1)
        block_b = np.broadcast_to(b[..., None, :, ks], shape).reshape(c.size, -1)
        running = evaluate(chain.model, inst, Request(block_a, block_b, running))
        if chain.promote_every and (count % chain.promote_every == 0 or count == k):
            total, running = _added(total, running, inst.d), zero
    return (total if chain.promote_every else running).reshape(c.shape)


def _added(total: Bits, running: Bits, fmt: Format) -> Bits:
    """A float32 add of the GPU: rounded to nearest, subnormals kept."""
    with np.errstate(all="ignore"):
        values = total.view(np.float32) + fmt.values(running).astype(np.float32)
    return np.where(np.isnan(values), np.uint32(F32_NAN), values.view(np.uint32))

"""Models of chains that begin with nothing: the first product is rounded before another joins it.

Such a chain looks like one whose first sum has two products, wherever the first of them is a number that the result holds: what
tells them apart is a product too small or too large for that, and whose NaN passes through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product, starmap
from typing import get_args

from accprobe.infer.findings import Findings
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import with_values
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic, FusedSum, NanPayload, Product, ZeroSign

_PARTS = ((), (0,), (1,), (0, 1))


@dataclass(frozen=True)
class _Way:
    """parts: which products of a first sum are rounded on their own. first, others: the sign of zeros that a product alone, and
    that other sums become. payload: what becomes of NaNs; turned: of two chains, the other one's count first.
    """

    parts: tuple[int, ...]
    first: ZeroSign
    others: ZeroSign
    payload: NanPayload
    turned: bool

    def begun(self, node: FusedSum) -> FusedSum:
        arithmetic = with_values(node.arithmetic, {"zero_sign": self.others, "nan_payload": self.payload})
        lone = with_values(arithmetic, {"zero_sign": self.first})
        if not _begins(node):
            turned = self.turned and len(node.terms) == 2 == len(node.children)
            return FusedSum(node.terms[::-1] if turned else node.terms, arithmetic)
        if len(node.terms) == 1:
            return FusedSum(node.terms, lone)
        split = [FusedSum((leaf,), lone) if i in self.parts else leaf for i, leaf in enumerate(node.terms)]
        return FusedSum(tuple(sorted(split, key=lambda term: isinstance(term, Product))), arithmetic)


def in_beginnings(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Of models that have a sum of two products and no more, or products on their own: every way to begin.

    A chain that adds its first product to +0 never begins with -0, whatever sign its other sums of zeros have.
    """
    nodes = list(model.root.nodes())
    if not any(_begins(node) for node in nodes) or not all(_is_exact(node.arithmetic) for node in nodes):
        return
    payloads: tuple[NanPayload, ...] = get_args(NanPayload)
    if not all(fmt.widens_to(inst.d) for fmt in (inst.a, inst.b, inst.c)):
        payloads = ("dropped",)
    signs = get_args(ZeroSign)
    for way in starmap(_Way, product(_PARTS, signs, signs, payloads, (False, True))):
        yield replace(model, root=model.root.map(way.begun))


def _begins(node: FusedSum) -> bool:
    return len(node.terms) <= 2 and all(isinstance(term, Product) for term in node.terms)


def _is_exact(arithmetic: Arithmetic) -> bool:
    return isinstance(arithmetic, FloatArithmetic) and arithmetic.alignment_bits is None

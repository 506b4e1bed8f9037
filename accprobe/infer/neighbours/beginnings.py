"""Models of chains that begin with nothing: the first product is rounded before another joins it.

Such a chain looks like one whose first sum has two products, wherever the first of them is a number that the result holds: what
tells them apart is a product too small or too large for that, and whose NaN passes through.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import get_args

from accprobe.infer.findings import Findings
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import with_values
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic, FusedSum, NanPayload, Product, ZeroSign

PARTS = ((), (0,), (1,), (0, 1))
"""Which products of a first sum are rounded on their own."""


def in_beginnings(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Of models that have a sum of two products and no more, or products on their own: ways to begin, and what NaNs and signs of
    zero are then.

    A chain that adds its first product to +0 never begins with -0, whatever sign its other sums of zeros have.
    """
    nodes = list(model.root.nodes())
    if not any(_begins(node) for node in nodes) or not all(_is_exact(node.arithmetic) for node in nodes):
        return
    payloads = get_args(NanPayload) if all(fmt.widens_to(inst.d) for fmt in (inst.a, inst.b, inst.c)) else ("dropped",)
    for parts, first, others, payload, turned in product(
        PARTS, get_args(ZeroSign), get_args(ZeroSign), payloads, (False, True)
    ):

        def begun(node: FusedSum) -> FusedSum:
            arithmetic = with_values(node.arithmetic, {"zero_sign": others, "nan_payload": payload})
            lone = with_values(arithmetic, {"zero_sign": first})
            if _begins(node):
                leaves = node.terms
                if len(leaves) == 1:
                    return FusedSum(leaves, lone)
                split = [FusedSum((leaf,), lone) if i in parts else leaf for i, leaf in enumerate(leaves)]
                return FusedSum(tuple(sorted(split, key=lambda term: isinstance(term, Product))), arithmetic)
            both = len(node.terms) == 2 == len(node.children)
            return FusedSum(node.terms[::-1] if turned and both else node.terms, arithmetic)

        yield DotModel(model.root.map(begun), model.subnormal_operands, model.subnormal_addend, model.addend_bits)


def _begins(node: FusedSum) -> bool:
    return len(node.terms) <= 2 and all(isinstance(term, Product) for term in node.terms)


def _is_exact(arithmetic: Arithmetic) -> bool:
    return isinstance(arithmetic, FloatArithmetic) and arithmetic.alignment_bits is None

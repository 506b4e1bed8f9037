"""Result bits and rounding on random sums of full width, if crafted rows gave only a lower bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np

from accprobe.infer.alternatives.alternative import with_arithmetic
from accprobe.infer.draft import Draft
from accprobe.infer.findings import Bound, Finding, Findings
from accprobe.infer.workbench import Workbench, eliminate
from accprobe.model.record import Value
from accprobe.model.tree import DotModel, FloatArithmetic, ProductExponent, Role, Rounding
from accprobe.operands.kinds import draw
from accprobe.operands.request import joined

SEED = 20_25
# Random dot products of a kind.
DENSE = 1500


def dense_roundings(bench: Workbench, draft: Draft, role: Role, findings: Findings) -> tuple[Draft, Findings]:
    """Return the findings of one role's sums with the result bits and rounding that dense products determine.

    Products of full width that lie close together add up to more bits than a few powers of two do. The exponent with which a
    product takes part is not known yet, so it is a candidate too.
    """
    bits, rounding = findings["result_bits"], findings["result_rounding"]
    if bits.bound != "at_least" or not isinstance(bits.value, int):
        return draft, findings
    most = max(bits.value, bench.widest_result(bits.value))
    growth = bits.value + 3 + max(len(node.slots) for node in draft.nodes()).bit_length()
    widths = (*range(bits.value, min(growth, most)), most)
    drafts: dict[Value, tuple[Draft, int, Rounding]] = {}
    for width, mode, rule in product(widths, get_args(Rounding), get_args(ProductExponent)):
        changed = draft.change(role, result_bits=width, result_rounding=mode, product_exponent=rule)
        drafts[f"{width} {mode} {rule}"] = changed, width, mode
    operands = draw("near one", bench.inst, np.random.default_rng(SEED), DENSE)
    joint = eliminate(bench, {name: d.model() for name, (d, _, _) in drafts.items()}, operands)
    if not joint.candidates and joint.bound != "exact":
        return draft, findings
    possible = [drafts[name] for name in joint.candidates or (joint.value,)]
    draft, width, mode = possible[-1]
    least = min(width for _, width, _ in possible)
    bound: Bound = "exact" if least == width else "at_least"
    modes = tuple(dict.fromkeys(mode for _, _, mode in possible))
    several = replace(rounding, value=mode, bound="undetermined", candidates=modes)
    return draft, {
        **findings,
        "result_bits": replace(bits, value=least, bound=bound, evidence=joint.evidence),
        "result_rounding": Finding(mode, evidence=joint.evidence) if len(modes) == 1 else several,
    }


def tiny_results(bench: Workbench, model: DotModel, findings: Findings) -> tuple[DotModel, Findings]:
    """Narrow result bits that are only a lower bound, on sums around the smallest results.

    If the alignment is the limit, a coarser result still shows below the normal range: its last place is higher.
    """
    bits = findings["result_bits"]
    arithmetic = next(node.arithmetic for node in model.root.nodes() if node.products)
    if bits.bound != "at_least" or not isinstance(bits.value, int) or not isinstance(arithmetic, FloatArithmetic):
        return model, findings
    widths = range(bench.inst.d.mantissa_bits, bits.value - 1, -1)
    candidates: dict[Value, DotModel] = {
        r: with_arithmetic(model, arithmetic, replace(arithmetic, result_bits=r)) for r in widths
    }
    rng = np.random.default_rng(SEED)
    found = eliminate(bench, candidates, joined([draw(kind, bench.inst, rng, DENSE) for kind in ("tiny", "clustered")]))
    if found.bound == "undetermined" and not found.candidates:
        return model, findings
    possible = [r for r in found.candidates or (found.value,) if isinstance(r, int)]
    bound: Bound = "exact" if len(possible) == 1 else "at_least"
    width = arithmetic.result_bits if arithmetic.result_bits in possible else max(possible)
    narrowed = replace(bits, value=min(possible), bound=bound, evidence=found.evidence)
    return candidates[width], {**findings, "result_bits": narrowed}

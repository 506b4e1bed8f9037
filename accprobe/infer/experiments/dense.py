"""Result bits and rounding on random sums of full width, where crafted rows gave a lower bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np

from accprobe.infer.alternatives.alternative import in_all
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


def dense_roundings(bench: Workbench, draft: Draft, role: Role, found: Findings) -> tuple[Draft, Findings]:
    """Of the sums of one role.

    Products of full width that lie close together add up to more bits than a few powers of two do. Which exponent a product
    brings is not known yet at this point, so it is a candidate too. Returns `found` with what was settled.
    """
    known = dict(found)
    bits, rounding = known["result_bits"], known["result_rounding"]
    if bits.bound != "at_least" or not isinstance(bits.value, int):
        return draft, found
    most = max(bits.value, bench.widest_result(bits.value))
    growth = bits.value + 3 + max(len(node.slots) for node in draft.nodes()).bit_length()
    widths = (*range(bits.value, min(growth, most)), most)
    drafts: dict[str, tuple[Draft, int, Rounding]] = {}
    for width, mode, rule in product(widths, get_args(Rounding), get_args(ProductExponent)):
        changed = draft.change(role, result_bits=width, result_rounding=mode, product_exponent=rule)
        drafts[f"{width} {mode} {rule}"] = changed, width, mode
    operands = draw("near one", bench.inst, np.random.default_rng(SEED), DENSE)
    joint = eliminate(bench, {name: d.model() for name, (d, _, _) in drafts.items()}, operands)
    if not joint.candidates and joint.bound != "exact":
        return draft, found
    left = [drafts[str(name)] for name in joint.candidates or (joint.value,)]
    draft, width, mode = left[-1]
    least = min(width for _, width, _ in left)
    known["result_bits"] = replace(bits, value=least, bound="exact" if least == width else "at_least", evidence=joint.evidence)
    modes = tuple(dict.fromkeys(mode for _, _, mode in left))
    if len(modes) == 1:
        known["result_rounding"] = Finding(mode, evidence=joint.evidence)
    else:
        known["result_rounding"] = replace(rounding, value=mode, bound="undetermined", candidates=modes)
    return draft, known


def tiny_results(bench: Workbench, model: DotModel, findings: Findings) -> tuple[DotModel, Findings]:
    """Result bits that are only a lower bound, on sums around the smallest results.

    Where the alignment is the limit, a coarser result still shows below the normal range: its last place lies higher.
    """
    bits = findings["result_bits"]
    arithmetic = next(node.arithmetic for node in model.root.nodes() if node.products)
    if bits.bound != "at_least" or not isinstance(bits.value, int) or not isinstance(arithmetic, FloatArithmetic):
        return model, findings
    widths = range(bench.inst.d.mantissa_bits, bits.value - 1, -1)
    candidates: dict[Value, DotModel] = {r: in_all(model, arithmetic, replace(arithmetic, result_bits=r)) for r in widths}
    rng = np.random.default_rng(SEED)
    operands = joined([draw(kind, bench.inst, rng, DENSE) for kind in ("tiny", "clustered")])
    found = eliminate(bench, candidates, operands)
    left = [r for r in found.candidates or (found.value,) if isinstance(r, int)]
    if found.bound == "undetermined" and not found.candidates:
        return model, findings
    bound: Bound = "exact" if len(left) == 1 else "at_least"
    width = arithmetic.result_bits if arithmetic.result_bits in left else max(left)
    return candidates[width], {
        **findings,
        "result_bits": replace(bits, value=min(left), bound=bound, evidence=found.evidence),
    }

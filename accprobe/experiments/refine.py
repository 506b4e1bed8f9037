"""Refinement: what the crafted rows left open, settled on random operands.

Crafted rows ask one question each; random ones ask all at once. A draft that fails on them is not thrown away: among its
neighbours, the models that differ in one field or in the order, the one that explains more takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np

from accprobe.experiments.draft import Draft, Role
from accprobe.experiments.elimination import eliminate
from accprobe.experiments.findings import Bound, Finding, Value
from accprobe.experiments.workbench import Workbench
from accprobe.formats import Bits
from accprobe.model import AlignmentRounding, DotModel, FloatArithmetic, ProductExponent, Rounding
from accprobe.operands import Operands, draw, joined, kinds
from accprobe.rivals import Rival, in_all, rivals

SEED = 20_25
DENSE, EACH = 1500, 80
"""Random dot products: for the roundings, and of each kind for the whole model."""
STEPS = 6


def dense_roundings(bench: Workbench, draft: Draft, role: Role, found: list[Finding]) -> tuple[Draft, list[Finding]]:
    """Result bits and rounding, where crafted rows gave a lower bound.

    Products of full width that lie close together add up to more bits than a few powers of two do. Which exponent a product
    brings is not known yet at this point, so it is a candidate too. Returns `found` with what was settled.
    """
    known = {finding.feature: finding for finding in found}
    bits, rounding = known["result_bits"], known["result_rounding"]
    if bits.bound != "at least" or not isinstance(bits.value, int):
        return draft, found
    most = max(bits.value, bench.widest_result(bits.value))
    growth = bits.value + 3 + max(len(node.slots) for node in draft.nodes()).bit_length()
    widths = (*range(bits.value, min(growth, most)), most)
    drafts: dict[str, tuple[Draft, int, Rounding]] = {}
    for width, mode, rule in product(widths, get_args(Rounding), get_args(ProductExponent)):
        changed = draft.change(role, result_bits=width, result_rounding=mode, product_exponent=rule)
        drafts[f"{width} {mode} {rule}"] = changed, width, mode
    operands = draw("close", bench.inst, np.random.default_rng(SEED), DENSE)
    joint = eliminate(bench, "result", {name: d.model() for name, (d, _, _) in drafts.items()}, operands)
    if not joint.left and joint.bound != "exact":
        return draft, found
    left = [drafts[str(name)] for name in joint.left or (joint.value,)]
    draft, width, mode = left[-1]
    least = min(width for _, width, _ in left)
    known["result_bits"] = replace(bits, value=least, bound="exact" if least == width else "at least", evidence=joint.evidence)
    modes = tuple(dict.fromkeys(mode for _, _, mode in left))
    if len(modes) == 1:
        known["result_rounding"] = Finding("result_rounding", mode, evidence=joint.evidence)
    else:
        known["result_rounding"] = replace(rounding, value=mode, bound="undetermined", left=modes)
    return draft, list(known.values())


def refine(bench: Workbench, model: DotModel, findings: dict[str, Finding]) -> tuple[DotModel, dict[str, Finding]]:
    """The model, or the neighbour of a neighbour … that explains most random operands, and the findings changed likewise."""
    rng = np.random.default_rng(SEED)
    operands = joined([draw(kind, bench.inst, rng, EACH) for kind in kinds(bench.inst)])
    d = bench.ask(operands)
    wrong = _mismatches(bench, model, operands, d)
    for candidates, steps in ((rivals, STEPS), (_pairs, 2), (rivals, STEPS)):
        for _ in range(steps if wrong else 0):
            tried = [(_mismatches(bench, rival.model, operands, d), rival) for rival in candidates(model, findings)]
            fewer, best = min(tried, key=lambda pair: pair[0], default=(wrong, None))
            if best is None or fewer >= wrong:
                break
            model, wrong = best.model, fewer
            equals = [rival for mismatches, rival in tried if not mismatches and rival.field == best.field]
            findings = _changed(findings, best, equals)
    return model, findings


def tiny_results(bench: Workbench, model: DotModel, findings: dict[str, Finding]) -> tuple[DotModel, dict[str, Finding]]:
    """Result bits that are only a lower bound, on sums around the smallest results.

    Where the alignment is the limit, a coarser result still shows below the normal range: its last place lies higher.
    """
    bits = findings["result_bits"]
    arithmetic = next(node.arithmetic for node in model.root.nodes() if node.products)
    if bits.bound != "at least" or not isinstance(bits.value, int) or not isinstance(arithmetic, FloatArithmetic):
        return model, findings
    widths = range(bench.inst.d.mantissa_bits, bits.value - 1, -1)
    candidates: dict[Value, DotModel] = {r: in_all(model, arithmetic, replace(arithmetic, result_bits=r)) for r in widths}
    rng = np.random.default_rng(SEED)
    operands = joined([draw(kind, bench.inst, rng, DENSE) for kind in ("tiny", "near")])
    found = eliminate(bench, "result_bits", candidates, operands)
    left = [r for r in found.left or (found.value,) if isinstance(r, int)]
    if found.bound == "undetermined" and not found.left:
        return model, findings
    bound: Bound = "exact" if len(left) == 1 else "at least"
    return candidates[max(left)], {
        **findings,
        "result_bits": replace(bits, value=min(left), bound=bound, evidence=found.evidence),
    }


def _pairs(model: DotModel, findings: dict[str, Finding]) -> Iterator[Rival]:
    """Models that differ in how terms are cut, or in how results are rounded: each of two fields at once."""
    for arithmetic in model.arithmetics:
        if not isinstance(arithmetic, FloatArithmetic) or arithmetic.result.name == "f64":
            continue
        prefix = "" if any(node.products for node in model.root.nodes() if node.arithmetic == arithmetic) else "add_"
        widths = (*range(arithmetic.result.mantissa_bits + 22), None)
        for bits, cut in product(widths, get_args(AlignmentRounding)):
            changed = replace(arithmetic, alignment_bits=bits, alignment_rounding=cut)
            yield Rival(f"{prefix}alignment_bits", str(bits), in_all(model, arithmetic, changed))
        for bits, mode in product(range(arithmetic.result.mantissa_bits + 1), get_args(Rounding)):
            changed = replace(arithmetic, result_bits=bits, result_rounding=mode)
            yield Rival(f"{prefix}result_bits", str(bits), in_all(model, arithmetic, changed))


def _mismatches(bench: Workbench, model: DotModel, operands: Operands, d: Bits) -> int:
    return int((model.evaluate(bench.inst, *operands) != d).sum())


def _changed(findings: dict[str, Finding], best: Rival, equals: list[Rival]) -> dict[str, Finding]:
    """The findings brought in line with the model chosen; what others as good have otherwise is undetermined."""
    changed = dict(findings)
    known = values(best.model)
    others = [values(rival.model) for rival in equals]
    for feature, value in known.items():
        finding = changed.get(feature)
        if finding is None:
            continue
        left = tuple(dict.fromkeys((value, *(other.get(feature, value) for other in others))))
        if len(left) > 1:
            note = "these explain the random operands tried equally well"
            changed[feature] = replace(finding, value=value, bound="undetermined", left=left, note=note)
        elif finding.value != value and finding.bound != "at least":
            changed[feature] = replace(finding, value=value, bound="exact", left=(), note="settled on random operands")
    return changed


def values(model: DotModel) -> dict[str, int | str | None]:
    """Every field of a model, by the feature that it is found as."""
    values: dict[str, int | str | None] = {
        "subnormal_operands": model.subnormal_operands,
        "subnormal_addend": model.subnormal_addend,
    }
    for node in model.root.nodes():
        prefix = "" if node.products else "add_"
        for field, value in vars(node.arithmetic).items():
            width = node.arithmetic.result.storage_bits // 4
            values[prefix + field] = f"0x{value:0{width}X}" if field == "nan" else value
    return values

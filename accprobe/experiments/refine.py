"""Refinement: what the crafted rows left open, settled on random operands.

Crafted rows ask one question each; random ones ask all at once. A draft that fails on them is not thrown away: among its
neighbours, the models that differ in one field or in the order, the one that explains more takes its place.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np

from accprobe.experiments.draft import Draft, Role
from accprobe.experiments.elimination import eliminate
from accprobe.experiments.findings import Finding
from accprobe.experiments.workbench import Workbench
from accprobe.formats import Bits
from accprobe.model import DotModel, ProductExponent, Rounding
from accprobe.operands import Operands, draw, kinds
from accprobe.rivals import Rival, rivals

SEED = 20_25
DENSE, EACH = 100, 200
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
    most = bench.inst.d.mantissa_bits
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
    for _ in range(STEPS):
        if not wrong:
            break
        best = min(rivals(model, findings), key=lambda rival: _mismatches(bench, rival.model, operands, d))
        fewer = _mismatches(bench, best.model, operands, d)
        if fewer >= wrong:
            break
        model, wrong = best.model, fewer
        findings = _changed(findings, best)
    return model, findings


def joined(parts: list[Operands]) -> Operands:
    """Several sets of operands as one."""
    return Operands(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _mismatches(bench: Workbench, model: DotModel, operands: Operands, d: Bits) -> int:
    return int((model.evaluate(bench.inst, *operands) != d).sum())


def _changed(findings: dict[str, Finding], best: Rival) -> dict[str, Finding]:
    finding = findings.get(best.field)
    if finding is None:
        return findings
    bound = "exact" if finding.bound == "undetermined" else finding.bound
    value = best.value if best.field == "order" else _plain(best)
    changed = replace(finding, value=value, bound=bound, left=(), note="settled on random operands")
    return {**findings, best.field: changed}


def _plain(best: Rival) -> int | str | None:
    name = best.field.removeprefix("add_")
    node = next(n for n in best.model.root.nodes() if bool(n.products) != best.field.startswith("add_"))
    holder = best.model if hasattr(best.model, name) else node.arithmetic
    value = getattr(holder, name)
    return f"0x{value:X}" if name == "nan" else value

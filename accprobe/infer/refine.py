"""Refinement: what the crafted rows left open, settled on random operands.

Crafted rows ask one question each; random ones ask all at once. A draft that fails on them is not thrown away: among its
neighbours, the models that differ in one field or in the order, the one that explains more takes its place.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.answers import Answers
from accprobe.infer.draft import Draft
from accprobe.infer.elimination import eliminate
from accprobe.infer.findings import Bound, Finding, values
from accprobe.infer.rivals import in_all
from accprobe.infer.search import improvements, neighbours
from accprobe.infer.workbench import Workbench
from accprobe.model.features import of_alignment
from accprobe.model.fields import Value
from accprobe.model.tree import DotModel, FloatArithmetic, ProductExponent, Role, Rounding
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import joined

SEED = 20_25
DENSE = 1500
"""Random dot products for the roundings."""
POOL = (80, 240, 480, 240)
"""Random dot products of each kind for the whole model, round by round; the last is for models that needed a change."""
THOROUGH = 2
"""The round from which on no neighbour is spared, unless the device changes its mind."""
SETTLED = "settled on random operands"
MOST = 600
"""Dot products of a round that are kept where the model got some wrong: as many of those, and as many others."""


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
    """A model that explains every random dot product that was asked, or the one nearest to it; the findings changed likewise.

    Each round asks fresh ones; those that the model gets wrong join the pool on which a better one is looked for. Those
    that are known to contradict other models are in it from the beginning. The bench gets other models that explain the pool.
    """
    inst = bench.inst
    bench.others = []
    pool = [(operands, bench.ask(operands, model)) for operands in bench.known_operands()]
    for turn, each in enumerate(POOL):
        if turn == len(POOL) - 1 and not pool:
            break
        rng = np.random.default_rng([SEED, turn])
        operands = joined([draw(kind, inst, rng, each) for kind in kinds(inst)])
        d = bench.ask(operands, model)
        wrong = np.flatnonzero(evaluate(model, inst, operands) != d)
        if len(wrong):
            kept = np.unique(np.concatenate([np.arange(0, len(d), -(-len(d) // MOST)), wrong[:MOST]]))
            pool.append((operands[kept], d[kept]))
        if pool:
            answers = Answers(inst, joined([o for o, _ in pool]), np.concatenate([d for _, d in pool]))
            thorough = turn >= THOROUGH and not bench.unstable
            for better in improvements(inst, model, findings, answers, thorough):
                model = better
                findings = _settled(findings, model)
    if pool and not bench.unstable:
        others = neighbours(inst, model, findings, thorough)
        bench.others = [other for other in others if other != model and answers.explained_by(other)]
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
    width = arithmetic.result_bits if arithmetic.result_bits in left else max(left)
    return candidates[width], {
        **findings,
        "result_bits": replace(bits, value=min(left), bound=bound, evidence=found.evidence),
    }


def _settled(findings: dict[str, Finding], model: DotModel) -> dict[str, Finding]:
    """The findings brought in line with a model that the search has chosen."""
    changed = dict(findings)
    known = values(model)
    if known.get("alignment_bits") is not None:
        changed = {feature: Finding(feature, known[feature], note=SETTLED) for feature in of_alignment()} | changed
    for feature, value in known.items():
        finding = changed.get(feature)
        if finding and finding.value != value and not _above(finding, value):
            changed[feature] = replace(finding, value=value, bound="exact", left=(), note=SETTLED)
    return changed


def _above(finding: Finding, value: Value) -> bool:
    """Whether a value is one that the lower bound allows for; None stands for all bits."""
    if finding.bound != "at least" or not isinstance(finding.value, int):
        return False
    return value is None or (isinstance(value, int) and value > finding.value)

"""Judge accprobe's row of a planted product by fresh results of the plant and by what was planted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import judgements
import numpy as np
from planted_boxes import box_of
from planted_models import model_of
from planted_products import Planted

from accprobe.callables.operands import draw_operands
from accprobe.evaluate.any_order import given_by_some_order
from accprobe.evaluate.product import product
from accprobe.gemm.blackbox import scales_of_lines
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import ProductOutcome, RegionOutcome, findings, status
from accprobe.model.product import Merged, Nested, Node, ProductModel, nested

Verdict = Literal["right", "wrong", "called unstable", "not confirmed", "crashed", "too late"]
"""right: confirmed, and nothing contradicts it. wrong: confirmed, and the plant contradicts it, in a result or in the order of
its additions. called unstable: although identical calls give the same bits. crashed, too late: there is no row."""

WAYS = ("normal", "wide", "same sign", "cancelling", "sparse")
"""Kinds of fresh operands."""


@dataclass(frozen=True, kw_only=True)
class Judgement(judgements.Judgement):
    """The judgement of a matrix product; status, reason: of its main region.

    undetermined: undetermined findings of a confirmed row.
    """

    verdict: Verdict
    undetermined: list[str] = field(default_factory=list)


def parameters(plan: Planted) -> dict[str, Any]:
    """Return the parameters that differ from the defaults, and the formats and shape."""
    plain = Planted(m=0, n=0, k=1)
    told = {name: value for name, value in asdict(plan).items() if name not in ("_order", "seed")}
    return {name: value for name, value in told.items() if name in ("a", "b", "out") or value != getattr(plain, name)}


def judged(plan: Planted, elements: int = 1 << 16) -> Judgement:
    """Judge a plan. elements: of the verification."""
    started = time.process_time()
    outcome = characterise(box_of(plan), elements=elements, seed=plan.seed)
    seconds = time.process_time() - started
    has_model = not plan.around and plan.truncated_step is None  # None has one step of its own.
    return judgement(
        (plan.seed, parameters(plan), plan.is_deterministic),
        outcome,
        seconds,
        contradictions(plan, outcome.main.plan),
        lambda: has_model and is_planted_order(plan, outcome.main),
        [f"{name}: {value}, {true}" for name, value, true in false_findings(plan, outcome, outcome.main)],
    )


def judgement(
    planted: tuple[int, dict[str, Any], bool],
    outcome: ProductOutcome,
    seconds: float,
    compared: tuple[int, int],
    has_planted_order: Callable[[], bool],
    false: list[str],
) -> Judgement:
    """Judge an outcome. planted: seed, parameters, whether identical calls give the same bits; compared: fresh results, wrong.

    has_planted_order: of a confirmed outcome. false: its exact findings that are false.
    """
    (seed, parameters, is_deterministic), (fresh, contradicted) = planted, compared
    found, reason = status(outcome)
    verdict: Verdict = "not confirmed"
    if found == "confirmed":
        verdict = "right" if fresh and not contradicted and has_planted_order() else "wrong"
    elif found == "unstable" and is_deterministic:
        verdict = "called unstable"
    told = findings(outcome)
    return Judgement(
        seed=seed,
        parameters=parameters,
        verdict=verdict,
        status=found,
        reason=reason,
        seconds=round(seconds, 2),
        fresh=fresh,
        contradicted=contradicted,
        undetermined=[name for name, x in told.items() if x.bound == "undetermined"] if found == "confirmed" else [],
        false_exact=false,
    )


def contradictions(plan: Planted, model: ProductModel | None) -> tuple[int, int]:
    """Return the numbers of fresh elements of the plant and of mismatches of the model."""
    if model is None:
        return 0, 0
    box, fresh, wrong = box_of(plan), 0, 0
    for number, way in enumerate(WAYS):
        a, b, scales = draw_operands(box.spec, way, np.random.default_rng((plan.seed, number, 0x1D6E)))
        d = box.product(a, b, scales)
        if model.is_ordered:
            differ = product(model, a, b, scales=scales) != d
        else:
            rows = np.arange(min(plan.m, max(1, 2048 // plan.n)))
            of_rows = scales and scales_of_lines(scales, rows, np.arange(plan.n))
            differ = ~given_by_some_order(model, a[rows], b, d[rows], of_rows)
        fresh, wrong = fresh + differ.size, wrong + int(np.count_nonzero(differ))
    return fresh, wrong


def is_planted_order(plan: Planted, found: RegionOutcome) -> bool:
    """Return whether the same is added to the same; of integers, whether the same products are."""
    model, expected = found.plan, model_of(plan)
    if plan.out == "s32":
        mine, planted = (sorted(int(k) for chain in x.chains() for k in chain.ks() if k >= 0) for x in (model, expected))
        return mine == planted
    return additions(model.tree) == additions(expected.tree)


def additions(node: Node) -> object:
    """Return a tree of additions: for each chain its k, for each sum the unordered pair that it adds."""
    if not isinstance(node, Merged):
        return tuple(int(k) for k in node.ks() if k >= 0)
    order = nested("forward", len(node.parts)) if node.order == "unordered" else node.nested
    return _additions(node, order)


def _additions(node: Merged, order: Nested) -> object:
    if isinstance(order, int):
        return additions(node.parts[order])
    total = _additions(node, order[0])
    for other in order[1:]:
        total = frozenset([total, _additions(node, other)])
    return total


def false_findings(plan: Planted, outcome: ProductOutcome, found: RegionOutcome) -> Iterator[tuple[str, object, object]]:
    """Yield the findings of a region that are exact and not as planted: name, value, truth."""
    truth: dict[str, object] = {}
    if plan.out != "s32":
        bits, kept = plan.alignment_bits, plan.result_bits
        truth = {
            "products_per_sum": plan.products_per_sum,
            "alignment_bits": bits,
            "result_bits": kept,
            "effective_bits": kept if bits is None else min(bits, kept),
            "sum_rounding": plan.sum_rounding,
            "result_rounding": "RNE" if plan.merge == "serial" and plan.partial_format == plan.out else plan.result_rounding,
            "each_product_once": "no" if plan.dropped_tail or plan.doubled_k is not None else "yes",
        }
        if plan.partial_format != "f32":
            truth |= {"partial_format": plan.partial_format, "reduction_order": plan.merge, "split_k": len(plan.slices)}
    if plan.mispaired is not None:
        truth.pop("each_product_once", None)
    told = findings(outcome, found)
    truth["first_calls"] = "other bits" if plan.around and plan.around.kind == "first calls" else "same bits"
    truth["repeatable"] = "yes" if plan.is_deterministic else "no"
    if "depends_on" in told and (told["depends_on"].value != "own row and column") != plan.depends_on_others:
        truth["depends_on"] = "other rows, or columns" if plan.depends_on_others else "own row and column"
    for name, finding in told.items():
        if finding.bound == "exact" and name in truth and finding.value != truth[name]:
            yield name, finding.value, truth[name]
        promoted = name == "promote_every" and plan.interleave is not None  # Lanes are never promoted parts.
        if finding.bound == "exact" and name in OF_ONE_STRUCTURE and has_other_structures(plan) and not promoted:
            yield name, finding.value, "one of several structures with the same bits"
    if plan.mispaired is not None:  # of the elements that are
        notes = [findings(outcome, found)["each_product_once"].note for found in outcome.found]
        if not any(plan.mispaired.named(plan.k) in note for note in notes):
            yield "each_product_once", "; ".join(notes), plan.mispaired.named(plan.k)


OF_ONE_STRUCTURE = ("split_k", "promote_every", "slice_sizes")
"""Findings that differ between structures with the same bits for all operands."""


def has_other_structures(plan: Planted) -> bool:
    """Return whether other slices, promoted parts or lanes give the same bits: parts of one size, whose f32 sums are added."""
    if plan.out == "s32" or plan.partial_format != "f32" or plan.merge == "unordered":
        return False
    parts, last = plan.slices or (plan.k,), max(plan.slices or (plan.k,))
    chunked = plan.promote_every is not None and plan.promote_every < last
    return chunked or (len(parts) > 1 and len(set(parts[:-1])) == 1 and parts[-1] <= parts[0])

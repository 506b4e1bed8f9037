"""Judge accprobe's row of a planted reduction by fresh results of the plant and by the order of its additions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
from planted_reductions import COMPENSATED, TYPES, Planted
from product_judge import WAYS, Judgement, judgement

from accprobe.callables.arrays import open_arrays
from accprobe.callables.operands import draw_operands
from accprobe.callables.reductions import ReductionAdapter
from accprobe.callables.spec import Spec
from accprobe.evaluate.any_order import given_by_some_order
from accprobe.evaluate.product import product
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import ProductOutcome, RegionOutcome, findings
from accprobe.isa.formats import FORMATS
from accprobe.model.product import Chain, Node, folded


class Term:
    """An element that numpy can add: a sum is the unordered pair of its terms."""

    def __init__(self, key: object) -> None:
        self.key = key

    def __add__(self, other: Term) -> Term:
        return Term(_pair(self.key, other.key))


def _pair(x: object, y: object) -> object:
    return frozenset((x, y))


def planted_order(plan: Planted, row: int) -> object:
    """Return the additions of a row, from the plant itself; of atomics, the sums that they add."""
    terms = np.array([Term(k) for k in range(plan.k)], object)[None]
    if plan.fault == "atomics":
        return {term.key for term in plan.parts(terms)[0]}
    last = plan.fault == "another row" and row == plan.rows - 1
    return plan.added(terms[:, ::-1] if last else terms)[0].key


def order_found(node: Node) -> object:
    if isinstance(node, Chain):
        return reduce(_pair, node.taken.tolist())
    if node.order == "unordered":
        return {order_found(part) for part in node.parts}
    return folded(node.nested, [order_found(part) for part in node.parts], _pair)


def adapter(plan: Planted) -> ReductionAdapter:
    fmt = FORMATS[plan.kind]
    factor = 1 - plan.k.bit_length() if plan.fault.startswith("mean") else 0
    spec = Spec(1, plan.rows, plan.k, fmt, fmt, fmt, a_exponent=factor)
    return ReductionAdapter(spec, lambda b: plan(b.T)[None], open_arrays("numpy"), plan.name, by_columns=True)


def outcome_of(plan: Planted, seed: int, elements: int) -> ProductOutcome:
    return characterise(adapter(plan), elements=elements, seed=seed)


def judged(plan: Planted, seed: int, elements: int = 1 << 12) -> Judgement:
    started = time.process_time()
    outcome = outcome_of(plan, seed, elements)
    seconds = time.process_time() - started
    return judgement(
        (seed, plan.parameters(), plan.fault != "atomics"),
        outcome,
        seconds,
        contradictions(plan, outcome, seed),
        lambda: all(has_planted_order(plan, each) for each in outcome.found),
        list(false_findings(plan, outcome)),
    )


def has_planted_order(plan: Planted, found: RegionOutcome) -> bool:
    """Return whether the same is added to the same. Compensated sums that are exact are one fused sum."""
    if plan.order in COMPENSATED:
        return found.plan.step.products == plan.k
    order = order_found(found.plan.tree)
    return all(planted_order(plan, int(row)) == order for row in found.region.columns)


def contradictions(plan: Planted, outcome: ProductOutcome, seed: int) -> tuple[int, int]:
    """Return the numbers of fresh results of the plant and of those that a model of their region contradicts."""
    fresh, wrong = 0, 0
    for number, way in enumerate(WAYS):
        a, b, _ = draw_operands(outcome.spec, way, np.random.default_rng((seed, number, 0x1D6E)))
        words: Any = plan(b.view(TYPES[plan.kind]))
        got = words.view(outcome.spec.out.dtype)[None]
        for found in outcome.found:
            if (model := found.plan) is not None:
                columns = found.region.columns
                some = got[:, columns]
                if model.is_ordered:
                    differ = product(model, a, b[columns]) != some
                else:
                    differ = ~given_by_some_order(model, a, b[columns], some)
                fresh, wrong = fresh + some.size, wrong + int(np.count_nonzero(differ))
    return fresh, wrong


def false_findings(plan: Planted, outcome: ProductOutcome) -> Iterator[str]:
    """Yield the exact findings that are not as planted."""
    bits = FORMATS[plan.partial].mantissa_bits
    incomplete = plan.fault in ("dropped tail", "doubled element")
    truth: dict[str, object] = {
        "effective_bits": bits,
        "result_bits": bits,
        "each_product_once": "no" if incomplete else "yes",
        "repeatable": "no" if plan.fault == "atomics" else "yes",
        "first_calls": "same bits",
    }
    for found in outcome.found:
        for name, finding in findings(outcome, found).items():
            if finding.bound == "exact" and name in truth and finding.value != truth[name]:
                yield f"{name}: {finding.value}, {truth[name]}"

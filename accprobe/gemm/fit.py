"""Which plan explains the answers: arithmetics are tried until none is contradicted, or the one is left that is least."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.gemm.battery import Answered, wrong
from accprobe.gemm.candidates import any_steps, known_steps, single_steps
from accprobe.gemm.parts import Groups, Merging, width
from accprobe.gemm.plans import Plan, alternatives, readings
from accprobe.gemm.spec import Spec
from accprobe.model.tree import DotModel

ROUNDS = 4
"""How often all respects are gone through."""


@dataclass(frozen=True)
class Fitted:
    """The plan that explains most. wrong: answers that it does not explain, of `answers`."""

    plan: Plan
    wrong: int
    answers: int


def fit(spec: Spec, tree: Groups | Merging, answered: Answered, inner: Answered, unordered: bool = False) -> Fitted:
    """The plan with the fewest contradictions. inner: those of the answers whose terms are all of one chain."""
    best: Fitted | None = None
    for reading in readings(tree):
        step = _step(spec, reading, inner)
        found = _others(Plan(spec, reading, step, unordered=unordered and isinstance(reading, Merging)), answered)
        if best is None or found.wrong < best.wrong:
            best = found
        if not best.wrong:
            break
    assert best is not None
    return best


def _step(spec: Spec, tree: Groups | Merging, inner: Answered) -> DotModel:
    """The arithmetic of a chain's sums, as far as D's last rounding lets it be seen."""
    products = width(tree)
    best, fewest = None, len(inner) + 1
    for candidate in _steps(spec, products):
        for plan in (Plan(spec, tree, candidate), Plan(spec, tree, candidate, result_rounding="RZ")):
            count = _wrong(plan, inner)
            if count is not None and count < fewest:
                best, fewest = candidate, count
            if not fewest:
                break
            if spec.out.name == "f32":
                break
        if not fewest:
            break
    if best is None:
        raise AccprobeError(f"no sum of {products} products is known for {spec.a} and {spec.b}")
    return best


def _steps(spec: Spec, products: int) -> Iterator[DotModel]:
    if products == 1:
        yield from single_steps()
    for _, step in known_steps(spec.a, spec.b, products):
        yield step
    if products > 1:
        yield from any_steps(products)


def _others(plan: Plan, answered: Answered) -> Fitted:
    fewest = _wrong(plan, answered)
    if fewest is None:
        fewest = len(answered)
    for _ in range(ROUNDS):
        changed = False
        for _, _, other in alternatives(plan):
            if not fewest:
                break
            count = _wrong(other, answered)
            if count is not None and count < fewest:
                plan, fewest, changed = other, count, True
        if not changed:
            break
    return Fitted(plan, fewest, len(answered))


def _wrong(plan: Plan, answered: Answered) -> int | None:
    """Answers that a plan contradicts; None where it cannot be evaluated."""
    try:
        return wrong(plan.model(), answered)
    except AccprobeError:
        return None


def within(answered: Answered, groups: Iterable[int]) -> Answered:
    """The answers whose terms are all among those k."""
    inside = np.isin(answered.dots.ks, np.fromiter(groups, np.int64)) | (answered.dots.a == 0)
    rows = inside.all(axis=1)
    return Answered(answered.dots[rows], answered.d[rows])

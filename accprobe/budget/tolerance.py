"""Which tolerance a test of a product may ask, and which mistakes a test with these very inputs would notice.

Three tests, each of a result against the exact sums: that of DeepGEMM (github.com/deepseek-ai/DeepGEMM), calc_diff =
1 - 2·sum(x·y) / sum(x² + y²) over all elements, below 1e-3; an absolute tolerance of 1e-2; and each element within its bound
(`accprobe.budget.bounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accprobe.budget.accumulation import Accumulation
from accprobe.budget.closeness import Tolerance
from accprobe.budget.data import DATA_KINDS, Data, drawn_patterns
from accprobe.budget.mutants import MUTATIONS, Operation, never_promoted
from accprobe.errors import AccprobeError
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import ScaleWords, SumWords, rounded_to
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import ProductModel, ScaleOf, Scales

CALC_DIFF, ATOL = 1e-3, 1e-2

BLOCK_OF_SCALE = 128

USUAL_SIDE = 64
"""Rows, and columns, of a result that is asked about."""

OTHER_SIDE = 32
"""Rows and columns of other inputs on which a mistake is looked for."""


def calc_diff(got: Floats, reference: Floats) -> float:
    """As DeepGEMM has it."""
    both = float((got * got + reference * reference).sum())
    return 1.0 - 2.0 * float((got * reference).sum()) / both if both else 0.0


def _beyond_calc_diff(tolerance: Tolerance, got: Floats) -> bool:
    return not calc_diff(got, _rounded(tolerance)) < CALC_DIFF


def _beyond_atol(tolerance: Tolerance, got: Floats) -> bool:
    return not bool((np.abs(got - _rounded(tolerance)) <= ATOL).all())


def _beyond_bound(tolerance: Tolerance, got: Floats) -> bool:
    return bool(tolerance.beyond(got).any())


TESTS: dict[str, Callable[[Tolerance, Floats], bool]] = {
    "calc_diff": _beyond_calc_diff,
    "atol": _beyond_atol,
    "bound": _beyond_bound,
}
"""Whether a test notices."""


def _rounded(tolerance: Tolerance) -> Floats:
    """The reference of such tests: exact sums in the result's format."""
    model = tolerance.asked.model
    if model.result is FORMATS["f64"]:
        return tolerance.exact.sums
    words = SumWords(np.ascontiguousarray(tolerance.exact.sums).view(np.uint64), FORMATS["f64"])
    return model.result.values(rounded_to(words, model.result))


@dataclass(frozen=True)
class Inquiry:
    """What is asked. scale: what has a scale of its own, float32 numbers drawn from 1 to 2; None: no scales."""

    accumulation: Accumulation
    k: int
    m: int
    n: int
    promote_every: int | None
    split_k: int
    out: Format
    data: Data
    scale: ScaleOf | None
    seed: int

    @cached_property
    def model(self) -> ProductModel:
        """Raises AccprobeError."""
        blocks = self.scale is not None and "x" in self.scale
        if blocks and self.promote_every != BLOCK_OF_SCALE:
            raise AccprobeError(f"scales of blocks are applied where sums are promoted: promote every {BLOCK_OF_SCALE}")
        if blocks and self.split_k > 1:
            raise AccprobeError("scales of blocks and split K are not told together")
        scales = Scales(self.scale) if self.scale else None
        return self.accumulation.model(self.k, self.promote_every, self.split_k, self.out, scales)

    def operation(self, data: Data, m: int, n: int) -> Operation:
        rng = np.random.default_rng(self.seed)
        a, b = drawn_patterns(data, self.model.a, self.model.b, m, n, self.k, rng)
        if self.scale is None:
            return Operation(self.model, a, b)
        blocks = -(-self.k // BLOCK_OF_SCALE)
        shapes = {"tensor": ((1, 1), (1, 1)), "row": ((m, 1), (1, n))}.get(self.scale, ((m, blocks), (blocks, n)))
        of_a, of_b = (rng.uniform(1, 2, shape).astype(np.float32) for shape in shapes)
        if self.scale == "128x128":
            of_b = of_b[:, np.arange(n) // BLOCK_OF_SCALE * BLOCK_OF_SCALE]
        return Operation(self.model, a, b, ScaleWords(of_a, of_b))


@dataclass(frozen=True)
class Killed:
    """A mistake, and for each of TESTS whether it notices. noticed_with: other kinds of data with which the bound would."""

    mistake: str
    by: dict[str, bool]
    noticed_with: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advised:
    """What a test may ask.

    over_sum: the largest bound relative to its sum of |a·b|, over_any_sum: of any operands. largest: the largest bound,
    relative: the same relative to the root mean square of the exact sums (None where they are zero). observed: the largest
    error of the arithmetic itself over its bound. false_alarms: of TESTS, those that the arithmetic itself does not pass.
    """

    asked: Inquiry
    over_sum: float
    over_any_sum: float | None
    largest: float
    relative: float | None
    observed: float
    false_alarms: tuple[str, ...]
    kill_table: tuple[Killed, ...]


def advised(asked: Inquiry, show: Callable[[str], object] = lambda _: None) -> Advised:
    """Raises AccprobeError where no bound follows."""
    show("bounds")
    operation = asked.operation(asked.data, asked.m, asked.n)
    tolerance = Tolerance.of(operation)
    unbounded = int(np.count_nonzero(np.isinf(tolerance.bound)))
    if unbounded:
        raise AccprobeError(
            f"{unbounded:,} of {tolerance.bound.size:,} outputs have no bound: sums can be too large for"
            f" {operation.model.result}, or for what {asked.accumulation.name} adds in"
        )
    got, exact = operation.values(operation.computed()), tolerance.exact
    off = np.maximum(np.abs(got - exact.sums) - exact.off, 0.0)
    size = float(np.sqrt(np.square(exact.sums).mean()))
    return Advised(
        asked=asked,
        over_sum=tolerance.over_sum,
        over_any_sum=tolerance.over_any_sum,
        largest=float(tolerance.bound.max()),
        relative=float(tolerance.bound.max()) / size if size else None,
        observed=float(np.divide(off, tolerance.bound, out=np.zeros_like(off), where=tolerance.bound > 0).max()),
        false_alarms=tuple(name for name, notices in TESTS.items() if notices(tolerance, got)),
        kill_table=tuple(_kill_table(asked, tolerance, show)),
    )


def _kill_table(asked: Inquiry, tolerance: Tolerance, show: Callable[[str], object]) -> Iterator[Killed]:
    others: dict[str, Tolerance] = {}
    for mistake, mutation in MUTATIONS.items():
        show(mistake)
        if mutation is never_promoted and asked.promote_every is None:
            continue
        d = mutation(tolerance.asked)
        if d is None:
            continue
        by = {name: notices(tolerance, tolerance.asked.values(d)) for name, notices in TESTS.items()}
        if by["bound"]:
            yield Killed(mistake, by)
            continue
        others = others or dict(_others(asked))
        noticing = []
        for kind, other in others.items():
            wrong = mutation(other.asked)
            if wrong is not None and _beyond_bound(other, other.asked.values(wrong)):
                noticing.append(kind)
        yield Killed(mistake, by, tuple(noticing))


def _others(asked: Inquiry) -> Iterator[tuple[str, Tolerance]]:
    """Inputs of other kinds, few rows and columns of each."""
    for kind in DATA_KINDS:
        if kind != asked.data:
            tolerance = Tolerance.of(asked.operation(kind, OTHER_SIDE, OTHER_SIDE))
            if np.isfinite(tolerance.bound).all():
                yield kind, tolerance

"""Which tolerance a test of a product may have, and which mistakes tests notice.

Each test compares a result with a reference: DeepGEMM's (github.com/deepseek-ai/DeepGEMM), calc_diff = 1 - 2·sum(x·y) /
sum(x² + y²) over all elements, below 1e-3; rtol and atol as numpy.allclose has them, advised here or the user's own; and each
element within what its arithmetic allows, at a rate of false alarms (`accprobe.budget.tail`) or in the worst case
(`accprobe.budget.bounds`). Every mistake is computed exactly, on many tests of fresh operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from accprobe.budget.accumulation import Accumulation
from accprobe.budget.data import DATA_KINDS, Data, drawn_patterns
from accprobe.budget.error_check import Tolerance
from accprobe.budget.mutants import MUTATIONS, Operation, mistake_name, never_promoted
from accprobe.budget.tail import FALSE_ALARMS, Emulated, Tail, rounded_values, tail_of
from accprobe.errors import AccprobeError
from accprobe.evaluate.error_free import Floats, Truths
from accprobe.evaluate.product import ScaleWords, product
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import Chain, ProductModel, ScaleOf, Scales, multiply_add

CALC_DIFF = 1e-3

BLOCK_OF_SCALE = 128

USUAL_SIDE = 64
"""Rows, and columns, of the result of one test, at most where nothing is said of them."""

TESTS, SHARING = 200, 10
"""Tests, and those that share a B."""

PRODUCTS = 1 << 30
"""Products of numbers that are computed in all, about: results of tests are smaller where K is long."""

FEWEST_TESTS = 20

OTHER_SIDE = 32
"""Rows and columns of other inputs on which a mistake is looked for."""

Reference = Literal["f64", "f32", "bf16"]


class OwnTest(NamedTuple):
    """|got - reference| <= atol + rtol · |reference|. reference: the exact sum; a chain of f32 multiply-adds; that in bf16."""

    atol: float
    rtol: float
    reference: Reference = "f64"


def calc_diff(got: Floats, reference: Floats) -> Floats:
    """As DeepGEMM has it, of each test [tests, m, n]."""
    both = (got * got + reference * reference).sum(axis=(1, 2))
    once = 2.0 * (got * reference).sum(axis=(1, 2))
    return np.asarray(1.0 - np.divide(once, both, out=np.ones_like(both), where=both != 0))


@dataclass(frozen=True)
class Inquiry:
    """What is looked into. m, n: of one test's result, None: as K allows; scale: what has a scale of its own, float32 numbers
    drawn from 1 to 2; None: no scales. rate: of false alarms among correct elements; own: a test of the user's.
    """

    accumulation: Accumulation
    k: int
    m: int | None
    n: int | None
    promote_every: int | None
    split_k: int
    out: Format
    data: Data
    scale: ScaleOf | None
    seed: int
    rate: float = FALSE_ALARMS
    own: OwnTest | None = None

    @cached_property
    def model(self) -> ProductModel:
        """Raises AccprobeError."""
        blocks = self.scale is not None and "x" in self.scale
        if blocks and self.promote_every != BLOCK_OF_SCALE:
            raise AccprobeError(f"scales of blocks are applied where sums are promoted: promote every {BLOCK_OF_SCALE}")
        if blocks and self.split_k > 1:
            raise AccprobeError("scales of blocks and split K are not told together")
        if self.scale is not None and self.own and self.own.reference != "f64":
            raise AccprobeError(f"--reference {self.own.reference} has no scales: give --reference f64, or --scale none")
        scales = Scales(self.scale) if self.scale else None
        return self.accumulation.model(self.k, self.promote_every, self.split_k, self.out, scales)

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Tests, and m and n of each."""
        outputs = PRODUCTS // (self.k * (len(MUTATIONS) + 1))
        side = max(8, 1 << max(0, (outputs // TESTS).bit_length() - 1) // 2)
        m, n = (min(side, USUAL_SIDE) if given is None else given for given in (self.m, self.n))
        return min(TESTS, max(FEWEST_TESTS, outputs // (m * n) // SHARING * SHARING)), m, n

    def operation(self, data: Data, m: int, n: int, draw: int = 0, tests: int = 1) -> Operation:
        """tests: with the same B, each of m rows."""
        rng = np.random.default_rng([self.seed, draw])
        rows = tests * m
        a, b = drawn_patterns(data, self.model.a, self.model.b, rows, n, self.k, rng)
        if self.scale is None:
            return Operation(self.model, a, b, tests=tests)
        blocks = -(-self.k // BLOCK_OF_SCALE)
        shapes = {"tensor": ((1, 1), (1, 1)), "row": ((rows, 1), (1, n))}.get(self.scale, ((rows, blocks), (blocks, n)))
        of_a, of_b = (rng.uniform(1, 2, shape).astype(np.float32) for shape in shapes)
        if self.scale == "128x128":
            of_b = of_b[:, np.arange(n) // BLOCK_OF_SCALE * BLOCK_OF_SCALE]
        return Operation(self.model, a, b, ScaleWords(of_a, of_b), tests)


class Draw(NamedTuple):
    """Some tests with the same B: their product, what is accepted of it, and the references of tests."""

    emulated: Emulated
    quantile: Tolerance
    worst: Tolerance
    reference: Floats
    own: Floats

    @classmethod
    def of(cls, asked: Inquiry, operation: Operation) -> Draw:
        emulated = Emulated.of(operation)
        model = asked.model
        return cls(
            emulated,
            Tolerance.at_rate(emulated, asked.rate),
            Tolerance.at_rate(emulated, None),
            rounded_values(emulated.exact.sums, model.result),
            _own_reference(asked, emulated),
        )

    def tests(self, x: Floats) -> Floats:
        """Of the whole product, [tests, m, n]."""
        return x.reshape(self.emulated.asked.tests, -1, x.shape[1])


def _own_reference(asked: Inquiry, emulated: Emulated) -> Floats:
    if asked.own is None or asked.own.reference == "f64":
        return emulated.exact.sums
    model, fmt = asked.model, FORMATS[asked.own.reference]
    chain = ProductModel(model.a, model.b, model.k, multiply_add(), Chain(0, model.k, (0,)), fmt)
    return fmt.values(product(chain, emulated.asked.a, emulated.asked.b))


@dataclass(frozen=True)
class Advised:
    """What a test may have.

    recommended: rtol and atol of a test against f64 sums, at the rate of false alarms; atol_worst: in the worst case.
    over_sum: what sums may be off before D is rounded, at the rate, relative to sums of |a·b|, at most; worst_over_sum: in the
    worst case, of D; over_any_sum: of any operands, None where no bound follows. size: the root mean square of the exact sums.
    passed: by test, the share of tests that the arithmetic itself passes; kill_table: what notices each mistake.
    """

    asked: Inquiry
    recommended: OwnTest
    atol_worst: float
    over_sum: float
    worst_over_sum: float
    over_any_sum: float | None
    size: float
    tail: Tail
    passed: Mapping[str, float]
    kill_table: tuple[Killed, ...]


@dataclass(frozen=True)
class Killed:
    """A mistake, and by test the share of tests that notice it.

    size: what it changes results by, over what the recommended test allows, of root mean squares; noticed_with: other kinds of
    data with which that would notice, where it does not always.
    """

    mistake: str
    by: Mapping[str, float]
    size: float
    noticed_with: tuple[str, ...] = ()


Notices = Callable[[Draw, Floats], Truths]
"""Which tests of a draw fail with these results."""


def tests_of(asked: Inquiry, recommended: OwnTest) -> dict[str, Notices]:
    """By name, the recommended one first."""

    def close(test: OwnTest, reference: Callable[[Draw], Floats]) -> Notices:
        def beyond(draw: Draw, got: Floats) -> Truths:
            wanted = reference(draw)
            with np.errstate(invalid="ignore"):
                return _any(draw, ~(np.abs(got - wanted) <= test.atol + test.rtol * np.abs(wanted)))

        return beyond

    found: dict[str, Notices] = {
        "elements": lambda draw, got: _any(draw, draw.quantile.beyond(got)),
        "allclose": close(recommended, lambda draw: draw.emulated.exact.sums),
        "worst_case": lambda draw, got: _any(draw, draw.worst.beyond(got)),
        "calc_diff": lambda draw, got: ~(calc_diff(draw.tests(got), draw.tests(draw.reference)) < CALC_DIFF),
    }
    return found | ({"own": close(asked.own, lambda draw: draw.own)} if asked.own else {})


def _any(draw: Draw, beyond: Truths) -> Truths:
    return np.asarray(beyond.reshape(draw.emulated.asked.tests, -1).any(axis=1))


def advised(asked: Inquiry, show: Callable[[str], object] = lambda _: None) -> Advised:
    """Raises AccprobeError where no bound follows."""
    tests, m, n = asked.shape
    draws = []
    for first in range(0, tests, SHARING):
        show(f"test {first} of {tests}")
        draws.append(Draw.of(asked, asked.operation(asked.data, m, n, first, min(SHARING, tests - first))))
        _check_bounded(asked, draws[-1].worst)
    tail = _tail(draws)
    recommended = recommended_test(asked, draws, tail)
    every = tests_of(asked, recommended)
    exact = [draw.emulated.exact for draw in draws]
    return Advised(
        asked=asked,
        recommended=recommended,
        atol_worst=max(float(draw.emulated.worst.max()) for draw in draws),
        over_sum=tail.at(asked.rate) * max(_over(draw.emulated.worst, draw.emulated.exact.sizes) for draw in draws),
        worst_over_sum=max(draw.worst.over_sum for draw in draws),
        over_any_sum=draws[0].worst.over_any_sum,
        size=float(np.sqrt(np.mean([np.square(each.sums).mean() for each in exact]))),
        tail=tail,
        passed={name: 1 - _share(notices, draws, [draw.emulated.d for draw in draws]) for name, notices in every.items()},
        kill_table=tuple(_kill_table(asked, every, draws, show)),
    )


def recommended_test(asked: Inquiry, draws: Sequence[Draw], tail: Tail) -> OwnTest:
    """rtol is D's own rounding, atol what sums may be off before it, at the rate of false alarms."""
    model, f32 = asked.model, FORMATS["f32"]
    half = model.result_rounding in ("RNE", "RNA")
    rtol = 2.0 ** -(model.result.mantissa_bits + half) if model.result.mantissa_bits < f32.mantissa_bits else 0.0
    return OwnTest(tail.at(asked.rate) * max(float(draw.emulated.worst.max()) for draw in draws) * (1 + rtol), rtol)


def usual_test(asked: Inquiry) -> OwnTest | None:
    """The recommended test, by one product; None where no bound follows."""
    draw = Draw.of(asked, asked.operation(asked.data, USUAL_SIDE, USUAL_SIDE))
    return recommended_test(asked, [draw], _tail([draw])) if np.isfinite(draw.worst.bound).all() else None


def _tail(draws: Sequence[Draw]) -> Tail:
    every = [draw.emulated for draw in draws]
    shares = [each.errors[each.worst > 0] / each.worst[each.worst > 0] for each in every]
    return tail_of(np.concatenate(shares), sum(sum(each.worst.shape) for each in every))


def _over(bound: Floats, sizes: Floats) -> float:
    return float(np.divide(bound, sizes, out=np.zeros_like(sizes), where=sizes > 0).max(initial=0.0))


def _check_bounded(asked: Inquiry, tolerance: Tolerance) -> None:
    unbounded = int(np.count_nonzero(np.isinf(tolerance.bound)))
    if unbounded:
        raise AccprobeError(
            f"{unbounded:,} of {tolerance.bound.size:,} outputs have no bound: sums can be too large for"
            f" {asked.model.result}, or for what {asked.accumulation.name} adds in"
        )


def _share(notices: Notices, draws: Sequence[Draw], results: Sequence[Floats]) -> float:
    return float(np.mean(np.concatenate([notices(draw, d) for draw, d in zip(draws, results, strict=True)])))


def _kill_table(
    asked: Inquiry, every: Mapping[str, Notices], draws: Sequence[Draw], show: Callable[[str], object]
) -> Iterator[Killed]:
    others: dict[str, Draw] = {}
    for mistake, mutation in MUTATIONS.items():
        show(mistake)
        words = [mutation(draw.emulated.asked) for draw in draws]
        if (mutation is never_promoted and asked.promote_every is None) or any(d is None for d in words):
            continue
        wrong = [draw.emulated.asked.values(d) for draw, d in zip(draws, words, strict=True) if d is not None]
        by = {name: _share(notices, draws, wrong) for name, notices in every.items()}
        size = float(np.mean([_change(draw, d) for draw, d in zip(draws, wrong, strict=True)]))
        noticing = []
        if by["elements"] < 1:
            others = others or dict(_others(asked))
            for kind, other in others.items():
                found = mutation(other.emulated.asked)
                if found is not None and every["elements"](other, other.emulated.asked.values(found)).all():
                    noticing.append(kind)
        yield Killed(mistake_name(mistake, asked.model), by, size, tuple(noticing))


def _change(draw: Draw, wrong: Floats) -> float:
    with np.errstate(all="ignore"):
        change = np.square(wrong - draw.emulated.d).mean()
        return float(np.sqrt(change / np.square(draw.quantile.bound).mean())) if change else 0.0


def _others(asked: Inquiry) -> Iterator[tuple[str, Draw]]:
    """Inputs of other kinds, few rows and columns of each."""
    for kind in DATA_KINDS:
        if kind != asked.data:
            draw = Draw.of(asked, asked.operation(kind, OTHER_SIDE, OTHER_SIDE))
            if np.isfinite(draw.worst.bound).all():
                yield kind, draw

"""Verify a plan: compare its predictions with the results of fresh random operands of every distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from accprobe.callables.adapter import one_sentence
from accprobe.callables.operands import (
    OWN,
    ROW_DISTRIBUTIONS,
    DrawOwn,
    Ints,
    draw_operands,
    layout_of,
    power,
    random_windows,
)
from accprobe.evaluate.additions import addition_list
from accprobe.evaluate.any_order import Evaluate, given_by_some_order, on_cpu
from accprobe.evaluate.product import ScaleWords, WindowSums, product
from accprobe.gemm.blackbox import Call, RecordedCallable, scales_of_lines
from accprobe.gemm.checks.regions import Region
from accprobe.isa.formats import Bits, Format, ordered
from accprobe.model.product import ProductModel
from accprobe.operands.distributions import DISTRIBUTIONS

# Mismatches that are kept as counterexamples.
MOST_SHOWN = 4
# Elements that are predicted together: several calls of a small product.
TOGETHER = 1 << 12
# From so many small calls on, predicting all of them together on the CPU is faster than one by one on a GPU.
MANY = 16
# Calls of a reduction that are made before their results are read and compared.
CALLS_TOGETHER = 1 << 15
# Calls of a reduction that are repeated if one of them contradicts the plan.
MOST_DISPUTED = 16


EXPECTED_NAN = "any NaN"
"""An expected NaN, where all patterns of NaN count as equal (see `one_nan`)."""


@dataclass(frozen=True)
class ElementMismatch:
    """An element with a result other than the prediction. kind: the operand distribution."""

    row: int
    column: int
    got: int
    expected: int
    kind: str = ""

    def in_words(self, fmt: Format) -> str:
        found = got_and_expected(fmt, self.got, self.expected, got_nan="a NaN", expected_nan=EXPECTED_NAN)
        return f"row {self.row}, column {self.column} of {self.kind} operands: {found}"


def got_and_expected(fmt: Format, got: int, expected: int, got_nan: str = "", expected_nan: str = "") -> str:
    """Return "0x3f800001 (1.00000012), expected 0x3f800000 (1), 1 ulp". got_nan, expected_nan: replace the pattern of a NaN."""
    distance = "" if (far := ulps(fmt, got, expected)) is None else f", {far:,} ulp"
    return f"{_pattern(fmt, got, got_nan)}, expected {_pattern(fmt, expected, expected_nan)}{distance}"


def ulps(fmt: Format, got: int, expected: int) -> int | None:
    """Return the distance in units in the last place; None of infinities, NaNs and integers."""
    words = np.array([got, expected], fmt.dtype)
    if fmt.is_integer or not np.isfinite(fmt.values(words)).all():
        return None
    first, second = ordered(fmt, words)
    return abs(int(first) - int(second))


def is_nan_pattern(fmt: Format, pattern: int) -> bool:
    return not fmt.is_integer and bool(np.isnan(fmt.values(np.array([pattern], fmt.dtype))[0]))


def _pattern(fmt: Format, pattern: int, nan: str = "") -> str:
    value = float(fmt.values(np.array([pattern], fmt.dtype))[0])
    if nan and is_nan_pattern(fmt, pattern):
        return nan
    return f"0x{pattern:0{fmt.storage_bits // 4}x} ({value:.{fmt.digits}g})"


@dataclass
class PlanVerification:
    """Compared elements and mismatches, also by operand distribution.

    subnormal: mismatches of two subnormal words. first: the first mismatches. disputed: the calls with the first one.
    """

    elements: int = 0
    mismatches: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    mismatches_of: dict[str, int] = field(default_factory=dict)
    subnormal: int = 0
    first: list[ElementMismatch] = field(default_factory=list)
    disputed: list[Call] = field(default_factory=list)

    def count(self, kind: str, elements: int, mismatches: int) -> None:
        self.elements += elements
        self.kinds[kind] = self.kinds.get(kind, 0) + elements
        self.mismatches += mismatches
        self.mismatches_of[kind] = self.mismatches_of.get(kind, 0) + mismatches

    def compare(self, kind: str, fmt: Format, got: Bits, expected: Bits, rows: Ints, columns: Ints) -> None:
        """Count the mismatches of results [..., rows, columns]."""
        expected = np.broadcast_to(expected, got.shape)
        differ = got != expected
        count = int(np.count_nonzero(differ))
        self.count(kind, got.size, count)
        if count:
            self.subnormal += int(np.count_nonzero(differ & fmt.is_subnormal(got) & fmt.is_subnormal(expected)))
        for place in map(tuple, np.argwhere(differ)[: MOST_SHOWN - len(self.first)] if count else ()):
            y, x = place[-2:]
            self.first.append(ElementMismatch(int(rows[y]), int(columns[x]), int(got[place]), int(expected[place]), kind))


def evaluator_of(device: str) -> Evaluate:
    """Return the fastest evaluator for results of this device."""
    if not device.startswith("cuda"):
        return on_cpu
    from accprobe.evaluate.cuda.whole import on_gpu

    gpu = on_gpu(device)
    if gpu is None:
        return on_cpu

    def evaluate(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None) -> Bits:
        with one_sentence(f"the plan cannot be evaluated on {device}:", device):
            return gpu(model, a, b, scales)

    return evaluate


def verify_plans(
    subject: RecordedCallable,
    parts: Sequence[tuple[Region, ProductModel]],
    elements: int,
    verification: PlanVerification,
    progress: Callable[[int], None],
    own: DrawOwn | None = None,
) -> None:
    """Compare `elements` fresh results or more, of every distribution; fewer if one contradicts a plan in no fixed order.

    parts: regions and their models. verification: the record to fill. progress: called with the elements compared so far. own:
    draws the user's operands, a further distribution.
    """
    if subject.takes_windows and own is None and all(addition_list(model) is not None for _, model in parts):
        _verify_windows(subject, parts, elements, verification, progress)
        return
    rng, kinds = subject.rng(0xF5E5), DISTRIBUTIONS if own is None else (*DISTRIBUTIONS, OWN)
    share, area = -(-elements // len(kinds)), sum(len(region.rows) * len(region.columns) for region, _ in parts)
    batch_size = max(1, min(TOGETHER // area, -(-share // area)))
    at_once = subject.spec.scale is None and batch_size > (1 if subject.evaluate is on_cpu else MANY - 1)
    for number, kind in enumerate(cycle(kinds), 1):
        calls = []
        for _ in range(batch_size):
            a, b, scales = draw_operands(subject.spec, kind, rng, own=own)
            calls.append(Call(a, b, scales, subject.product(a, b, scales, keep=False)))
        for region, model in parts:
            left = max(1, (share if number <= len(kinds) else min(share, elements - verification.elements)) // batch_size)
            rows = region.rows
            if len(rows) * len(region.columns) > left:
                rows = np.sort(rng.permutation(rows)[: max(1, left // len(region.columns))])
            for call in [_stacked(calls)] if at_once and model.is_ordered else calls:
                _compare(subject, verification, kind, model, rows, region.columns, call)
        if verification.mismatches and not verification.disputed:
            verification.disputed = calls
        progress(verification.elements)
        enough = verification.elements >= elements and number >= len(kinds)
        if enough or (verification.mismatches and not all(model.is_ordered for _, model in parts)):
            return


def _verify_windows(
    subject: RecordedCallable,
    parts: Sequence[tuple[Region, ProductModel]],
    elements: int,
    verification: PlanVerification,
    progress: Callable[[int], None],
) -> None:
    """Verify the plans of a reduction on rows that are windows of random words, many calls at once."""
    spec, rng = subject.spec, subject.rng(0xF5E6)
    factor = np.full((1, spec.k), power(spec.a, spec.a_exponent or 0), spec.a.dtype)
    area = sum(len(region.columns) for region, _ in parts)
    calls = -(-elements // (len(ROW_DISTRIBUTIONS) * area))
    for kind in ROW_DISTRIBUTIONS:
        words, starts = random_windows(spec, kind, calls * spec.n, rng)
        starts = starts.reshape(calls, spec.n)
        predicted = [(region.columns, model, WindowSums(model, factor, words, subject.gpu)) for region, model in parts]
        for first in range(0, calls, CALLS_TOGETHER):
            some = starts[first : first + CALLS_TOGETHER]
            got = subject.reduce_windows(words, some)
            for columns, model, sums in predicted:
                expected = sums(some[:, columns].reshape(-1)).reshape(len(some), 1, -1)
                verification.compare(kind, model.result, got[:, :, columns], expected, np.array([0]), columns)
            if verification.mismatches and not verification.disputed:
                rows = np.lib.stride_tricks.sliding_window_view(words, spec.k)
                disputed = zip(some[:MOST_DISPUTED], got, strict=False)
                verification.disputed = [Call(factor, rows[each], None, d) for each, d in disputed]
            progress(verification.elements)


def _stacked(calls: Sequence[Call]) -> Call:
    """Return calls without scales as one, a [calls, M, K], b [calls, N, K] and d [calls, M, N]."""
    a, b, _, d = zip(*calls, strict=True)
    return Call(np.stack(a), np.stack(b), None, np.stack(d))


def _compare(
    subject: RecordedCallable,
    verification: PlanVerification,
    kind: str,
    model: ProductModel,
    rows: Ints,
    columns: Ints,
    call: Call,
) -> None:
    distinct, (*batch, m, n) = layout_of(subject.spec).distinct_rows(rows), call.d.shape
    rows = rows if model.is_ordered else distinct
    whole = len(rows) == m and len(columns) == n  # then no copies are needed
    got = call.d if whole else call.d[..., rows[:, None], columns]
    a, b = call.a if len(distinct) == m else call.a[..., distinct, :], call.b if whole else call.b[..., columns, :]
    scales = call.scales and scales_of_lines(call.scales, distinct, columns)
    evaluate = on_cpu if batch else subject.evaluate
    if model.is_ordered:
        verification.compare(kind, model.result, got, evaluate(model, a, b, scales), rows, columns)
        return
    found = given_by_some_order(model, a, b, got, scales, evaluate, stop=True)
    verification.count(kind, len(found), int(np.count_nonzero(~found)))
    for place in np.flatnonzero(~found)[: MOST_SHOWN - len(verification.first)]:
        y, x = divmod(int(place), len(columns))
        scale = scales and scales_of_lines(scales, np.array([y]), np.array([x]))
        one = product(model, a[[y]], b[[x]], scales=scale)
        verification.first.append(ElementMismatch(int(rows[y]), int(columns[x]), int(got[y, x]), int(one[0, 0]), kind))


def count_wrong(evaluate: Evaluate, model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None, got: Bits) -> int:
    """Count the elements that the model does not give, in no order if partial sums are added in any order."""
    if model.is_ordered:
        return int(np.count_nonzero(evaluate(model, a, b, scales) != got))
    return int(np.count_nonzero(~given_by_some_order(model, a, b, got, scales, evaluate)))

"""Infer the table model of a function of one f32 argument from its results alone.

Each reduction is a hypothesis. The search takes the fewest segments, and the largest unit, for which every segment has integer
coefficients that explain all its results. Each smaller number of segments is contradicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from accprobe.function.model import SCALINGS, SPECIAL_INPUTS, F32Words, FunctionModel
from accprobe.function.quadratic import SQUARER_BITS, Constraints, Int64s, Square, in_parts, solve, square
from accprobe.function.reductions import (
    BIAS,
    FRACTION,
    INFINITY,
    MASK,
    Exponential,
    Logarithm,
    Octaves,
    Power,
    Reduction,
    Turns,
    octave,
)
from accprobe.records.functions import TableModelRecord, TableRecord

# Input words to result words.
WordFunction = Callable[[F32Words], F32Words]

MOST_SEGMENTS = 512
# Exponents of the units that are tried. Sums of values near 1 in the smallest unit stay exact in 64-bit integers.
LOWEST_UNIT, HIGHEST_UNIT = -44, -30
# Segments on which a hypothesis is tried before all are solved.
TRIED_SEGMENTS = (0, 1, 3, -1)
MOST_EXACT = 16
NO_BOUND = -(1 << 62)  # Bound of the value of an argument that no query has.


def infer_table_model(function: WordFunction) -> tuple[FunctionModel | None, list[str]]:
    """Return the model of a function of f32 words, None if no hypothesis explains it, and hypotheses that results exclude."""
    contradicted: list[str] = []
    specials = infer_specials(function)
    for reduction in hypotheses(function):
        tables = [_fit_table(function, reduction, number, contradicted) for number in range(reduction.tables)]
        if all(tables):
            fitted = [each for each in tables if each is not None]
            record = TableModelRecord(
                reduction=reduction.name,
                parameters=vars(reduction),
                tables=tuple(table for table, _ in fitted),
                specials=specials,
                first={str(i): first for i, (_, first) in enumerate(fitted) if first is not None},
            )
            return _completed(function, record), contradicted
    return None, contradicted


def infer_specials(function: WordFunction) -> dict[str, str]:
    """Return the results, as hex, of the classes of special inputs that have one each."""
    specials = {}
    for name, (_, words) in SPECIAL_INPUTS.items():
        results = np.unique(function(np.array(words, np.uint32)))
        if len(results) == 1:
            specials[name] = f"0x{results[0]:08x}"
    return specials


def hypotheses(function: WordFunction) -> Iterator[Reduction]:
    """Yield the reductions that a few results do not exclude."""
    sample = np.linspace(1, MASK, 4096).astype(np.int64) & ~1
    for period, direction in ((1, -1), (2, 1), (2, -1), (1, 1)):
        base, other = (_at(function, sample | e + BIAS << FRACTION) for e in (0, period * 3))
        if (other - base == 3 * direction << FRACTION).all():
            yield Power(period, direction)
    if (_at(function, sample | BIAS << FRACTION) == _at(function, _plus_one(sample)) - (1 << FRACTION)).all():
        yield Exponential()
    powers = np.arange(1, 40)
    if (_at(function, powers + BIAS << FRACTION).astype(np.uint32).view(np.float32) == powers).all():
        yield Logarithm()
    for quarters in (0, 1):
        if _depends_on_phase(function, Turns(quarters)):
            yield Turns(quarters)
    if octaves := _octaves(function):
        yield octaves


def _at(function: WordFunction, words: Int64s) -> Int64s:
    return function(words.astype(np.uint32)).astype(np.int64)


def _plus_one(sample: Int64s) -> Int64s:
    """Return the words of 1.m + 1 for even m."""
    values = (sample | BIAS << FRACTION).astype(np.uint32).view(np.float32)
    return (values + np.float32(1)).view(np.uint32).astype(np.int64)


def _depends_on_phase(function: WordFunction, turns: Turns) -> bool:
    """Return whether inputs from 0.25 to 3 with one argument have one result except for the sign, near the argument's sine."""
    words = np.linspace(0x3E800000, 0x40400000, 4096).astype(np.int64)
    split, results = turns.split(words), _at(function, words)
    order = np.argsort(split.argument, kind="stable")
    same = split.argument[order][1:] == split.argument[order][:-1]
    sizes = results[order] & (1 << 31) - 1
    expected = np.sin(np.pi / 2 * (split.argument + 0.5) / (1 << FRACTION))
    values = np.abs(results.astype(np.uint32).view(np.float32).astype(np.float64))
    return bool((sizes[1:][same] == sizes[:-1][same]).all() and np.abs(values - expected).max() < 1e-5)


def _octaves(function: WordFunction) -> Octaves | None:
    """Return octaves of an odd function that returns small x and is constant for large x."""
    sample = np.linspace(0, MASK, 4096).astype(np.int64)
    exponents = range(-20, 10)
    results = {e: _at(function, sample | e + BIAS << FRACTION) for e in exponents}
    same = [e for e in exponents if (results[e] == sample | e + BIAS << FRACTION).all()]
    constant = [e for e in exponents if len(np.unique(results[e])) == 1]
    if not same or not constant or (_at(function, sample | 1 << 31 | BIAS << FRACTION) != results[0] | 1 << 31).any():
        return None
    first, end = max(same) + 1, min(constant)
    above = int(results[end][0])
    ignored = tuple(_ignored_bits(_at(function, octave(e))) for e in range(first, end))
    return Octaves(first, ignored, above) if above < INFINITY and ignored else None


def _ignored_bits(results: Int64s) -> int:
    """Return how many of the lowest bits of the argument have no effect."""
    ignored = 0
    while ignored < FRACTION and (results.reshape(-1, 2 << ignored) == results.reshape(-1, 2 << ignored)[:, :1]).all():
        ignored += 1
    return ignored


# A table, and the value of argument 0 if the table does not give it.
_Fitted = tuple[TableRecord, int | None]


class _Results:
    """The results of one table, by argument: the bounds of its values in any unit."""

    def __init__(self, function: WordFunction, reduction: Reduction, number: int) -> None:
        self.reduction, self.bits = reduction, reduction.argument_bits[number]
        covers = list(reduction.cover(number))
        arguments = [in_parts(lambda part: reduction.split(part).argument, words) for words in covers]
        self._queried = [(words, each, _at(function, words)) for words, each in zip(covers, arguments, strict=True)]

    def constraints(self, unit: int, segments: int, segment: int, kind: Square) -> Constraints:
        """Return what the results say of one segment's values in units of 2^unit."""
        bits = self.bits - (segments.bit_length() - 1)
        start = segment % segments << bits
        low, high = np.full(1 << bits, NO_BOUND), np.full(1 << bits, -NO_BOUND)
        for words, arguments, results in self._queried:
            rows = slice(*np.searchsorted(arguments, (start, start + (1 << bits))))
            x = arguments[rows] - start
            lowest, highest = self.reduction.bounds(self.reduction.split(words[rows]), results[rows], unit)
            low[x], high[x] = np.maximum(low[x], lowest), np.minimum(high[x], highest)
        x = np.flatnonzero(low > NO_BOUND)
        return Constraints(x, square(x << SQUARER_BITS - bits, kind), low[x], high[x])


def _fit_table(function: WordFunction, reduction: Reduction, number: int, contradicted: list[str]) -> _Fitted | None:
    results = _Results(function, reduction, number)
    segments = max(1, 1 << results.bits - SQUARER_BITS) if results.bits > SQUARER_BITS else 1
    squares: tuple[Square, ...] = ("truncated", "exact")
    while segments <= MOST_SEGMENTS and segments <= 1 << results.bits:
        for kind in squares:
            if fitted := _with_segments(results, segments, kind):
                return fitted
            contradicted.append(f"{reduction.name}, table {number}: {segments} segments, {kind} square")
        segments *= 2
    return None


def _with_segments(results: _Results, segments: int, kind: Square) -> _Fitted | None:
    """Return the table in the largest unit for which each segment has coefficients."""

    def tried(unit: int) -> bool:
        return all(_solved(results, unit, segments, i, kind) for i in TRIED_SEGMENTS)

    if results.reduction.nested and not tried(LOWEST_UNIT):
        return None
    for unit in range(HIGHEST_UNIT, LOWEST_UNIT - 1, -1):
        if tried(unit):
            solved = [_solved(results, unit, segments, i, kind) for i in range(segments)]
            found = [each for each in solved if each is not None]
            if len(found) == segments:
                coefficients = tuple(each[:3] for each in found)
                return TableRecord(bits=results.bits, unit=unit, square=kind, coefficients=coefficients), found[0][3]
    return None


def _solved(results: _Results, unit: int, segments: int, segment: int, kind: Square) -> tuple[int, int, int, int | None] | None:
    """Return c0, c1, c2 of a segment, and the value of argument 0 if it is an exception."""
    constraints = results.constraints(unit, segments, segment, kind)
    if solution := solve(constraints):
        return *solution, None
    if segment == 0 and len(constraints.x) > 1 and (solution := solve(constraints[1:])):
        return *solution, int(constraints.low[0])
    return None


def _completed(function: WordFunction, record: TableModelRecord) -> FunctionModel:
    """Add the scaling and the treatment of subnormal inputs that explain most random inputs, and powers of two that differ."""
    rng = np.random.default_rng(0)
    random = rng.integers(0, 1 << 32, 1 << 14, np.uint32)
    subnormal = rng.integers(0, 1 << FRACTION, 1 << 12, np.uint32) >> rng.integers(0, FRACTION, 1 << 12, np.uint32)
    words = np.concatenate([random, subnormal, subnormal | np.uint32(1 << 31)])
    results = function(words)

    choices = [{"scalings": scalings, "flushed": flushed} for scalings in SCALINGS for flushed in (True, False)]
    models = [FunctionModel(record.model_copy(update=choice)) for choice in choices]
    return _with_exact(function, min(models, key=lambda model: int((model.words(words) != results).sum())))


def _with_exact(function: WordFunction, model: FunctionModel) -> FunctionModel:
    """Add the powers of two that the model does not predict, if they are few."""
    words = (np.arange(1, 255, dtype=np.int64) << FRACTION).astype(np.uint32)
    results = function(words)
    wrong = np.flatnonzero(model.words(words) != results)
    if not len(wrong) or len(wrong) > MOST_EXACT:
        return model
    exact = {f"0x{words[i]:08x}": f"0x{results[i]:08x}" for i in wrong}
    return FunctionModel(model.record.model_copy(update={"exact": exact}))

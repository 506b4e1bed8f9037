"""Models of functions of one f32 argument: a reduction, tables of quadratics, and the words of special inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate import tiles
from accprobe.function.quadratic import IN_CACHE, SQUARER_BITS, all_squares, in_parts, module_of
from accprobe.function.reductions import INFINITY, MASK, REDUCTIONS, SIGN, Reduction
from accprobe.function.reference import FormatConversion, values_of_words, words_of_singles
from accprobe.isa.formats import FORMATS, Format
from accprobe.records.functions import ScalingRecord, TableModelRecord

F32Words = NDArray[np.uint32]

# About how many words numpy computes in a second. With it `tiles.pays` decides whether compiled code is worth loading.
NUMPY_RATE = 1.5e7

REDUCTION_KINDS: dict[str, type[Reduction]] = {kind.name: kind for kind in REDUCTIONS}

SMALL = 2.0**-126
SCALINGS: tuple[tuple[ScalingRecord, ...], ...] = (
    (),
    (ScalingRecord(size=False, below=True, limit=-126.0, factor=0.5, then="square"),),
    (ScalingRecord(size=True, below=True, limit=SMALL, factor=2.0**24, then="plus", value=-24.0),),
    (ScalingRecord(size=True, below=True, limit=SMALL, factor=2.0**24, then="times", value=2.0**12),),
    (ScalingRecord(size=True, below=True, limit=SMALL, factor=2.0**24, then="times", value=2.0**-12),),
    (
        ScalingRecord(size=True, below=True, limit=SMALL, factor=2.0**24, then="times", value=2.0**24),
        ScalingRecord(size=True, below=False, limit=2.0**126, factor=0.25, then="times", value=0.25),
    ),
)
"""Scalings that the compiler puts around the unit for functions without `.ftz`, read in SASS of sm_90a."""


def _is_scaled(scaling: ScalingRecord, x: Any) -> Any:
    size = module_of(x).abs(x) if scaling.size else x
    return size < scaling.limit if scaling.below else size > scaling.limit


def _corrected(scaling: ScalingRecord, y: Any) -> Any:
    """Return the result of a table, corrected for the factor of its operand."""
    if scaling.then == "square":
        return y * y
    return y * scaling.value if scaling.then == "times" else y + scaling.value


SPECIAL_INPUTS: dict[str, tuple[Callable[[Any, Any, Any], Any], list[int]]] = {
    "negative": (
        lambda size, zero, negative: negative & ~zero & (size < INFINITY),
        [0xBF800000, 0x80800000, 0xC2280000, 0xFF7FFFFF, 0xBF000001],
    ),
    "+0": (lambda size, zero, negative: zero & ~negative, [0]),
    "-0": (lambda size, zero, negative: zero & negative, [SIGN]),
    "+inf": (lambda size, zero, negative: (size == INFINITY) & ~negative, [INFINITY]),
    "-inf": (lambda size, zero, negative: (size == INFINITY) & negative, [SIGN | INFINITY]),
    "nan": (
        lambda size, zero, negative: size > INFINITY,
        [INFINITY | 1, INFINITY | 1 << 22, SIGN | INFINITY | 1, 0x7FFFFFFF, 0xFFFFFFFF],
    ),
}
"""Classes of inputs that may have one result without a table: the test for their words (size, zero, sign), and examples."""


class FunctionModel:
    """The results of a table model.

    specials: result words by class of input. exact: result words by input word. first: by table, its value at argument 0, if it
    differs from the quadratic's. coefficients: of the segments of all tables, [segments, 3].
    """

    def __init__(self, record: TableModelRecord) -> None:
        parameters: dict[str, Any] = dict(record.parameters)
        self.record, self.tables, self.scalings, self.flushed = record, record.tables, record.scalings, record.flushed
        self.reduction = REDUCTION_KINDS[record.reduction](**parameters)
        self.units = [table.unit for table in self.tables]
        self.specials = {name: int(word, 16) for name, word in record.specials.items()}
        self.exact = {int(word, 16): int(result, 16) for word, result in record.exact.items()}
        self.first = {int(table): value for table, value in record.first.items()}
        self.coefficients = np.concatenate([np.array(table.coefficients, np.int64) for table in self.tables])

    def words(self, words: Any) -> Any:
        """Return the result words, uint32, of input words, uint32; arrays of numpy or cupy."""
        given = words.reshape(-1)
        if module_of(words) is not np or words.size <= IN_CACHE:
            found = self._words(given)
        elif tiles.pays(words.size / NUMPY_RATE):
            from accprobe.function import compiled

            found = self._words(given, partial(compiled.ordinary_words, self))
        else:
            found = in_parts(self._words, given)
        return found.reshape(words.shape)

    def _words(self, words: Any, ordinary: Callable[[Any], Any] | None = None) -> Any:
        xp, scaled, scales = module_of(words), words, []
        if self.scalings:
            x = words.view(np.float32) if xp is np else values_of_words(words, _F32)  # cupy's f32 flushes subnormal numbers
            scales = [(scaling, xp.flatnonzero(_is_scaled(scaling, x))) for scaling in self.scalings]
            scaled = words.copy()
        for scaling, rows in scales:
            scaled[rows] = words_of_singles(values_of_words(words[rows], _F32) * scaling.factor)
        found = self._with_specials(scaled, (ordinary or self.ordinary_words)(scaled))
        for scaling, rows in scales:
            found[rows] = words_of_singles(_corrected(scaling, values_of_words(found[rows], _F32)))
        return found

    def _with_specials(self, words: Any, found: Any) -> Any:
        xp, size = module_of(words), words & SIGN - 1
        is_zero = size <= (MASK if self.flushed else 0)
        if "negative" in self.specials:
            found = xp.where(words >= SIGN, np.uint32(self.specials["negative"]), found)
        rows = xp.flatnonzero(is_zero | (size >= INFINITY))
        results, some = found[rows], (size[rows], is_zero[rows], words[rows] >= SIGN)
        for name, word in self.specials.items():
            results[SPECIAL_INPUTS[name][0](*some)] = word
        found[rows] = results
        for word, result in self.exact.items():
            found[words == word] = result
        return found

    def words_of(self, words: Any, operand: Format, result: Format) -> Any:
        """Return result words of a function of other formats: operands are numbers of f32, results are truncated."""
        if operand is result is _F32:
            return self.words(words)
        found = values_of_words(self.words(words_of_singles(values_of_words(words, operand))), _F32)
        return FormatConversion("RZ", nan=None).words(found, result).astype(result.dtype)

    def ordinary_words(self, words: Any) -> Any:
        """Return the result words of operands as if none was special."""
        split = self.reduction.split(words.astype(np.int64))
        table = split.table.clip(0, len(self.tables) - 1) if len(self.tables) > 1 else 0
        found = self.reduction.join(split, self._values(table, split.argument), _by_table(self.units, table))
        return found.astype(np.uint32)

    def _values(self, table: Any, argument: Any) -> Any:
        """Return c0 + c1·x + c2·square(x) of arguments of tables, int64."""
        xp, tables = module_of(argument), self.tables
        start = _by_table(np.cumsum([0, *(len(each.coefficients) for each in tables)])[:-1].tolist(), table)
        bits = _by_table([each.segment_bits for each in tables], table)
        row = _by_table([(each.square == "exact") << SQUARER_BITS for each in tables], table)
        c0, c1, c2 = xp.asarray(self.coefficients.T.copy())
        segment, x = start + (argument >> bits), argument & (1 << bits) - 1
        values = c0[segment] + c1[segment] * x + c2[segment] * xp.asarray(all_squares())[row + (x << SQUARER_BITS - bits)]
        for number, value in self.first.items():
            values[(argument == 0) & (table == number)] = value
        return values


def _by_table(numbers: Sequence[int], table: Any) -> Any:
    """Return the number of each table; one for all if they are equal."""
    return numbers[0] if len(set(numbers)) == 1 else module_of(table).asarray(np.array(numbers))[table]


_F32 = FORMATS["f32"]

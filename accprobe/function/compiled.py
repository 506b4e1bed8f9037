"""Evaluation of table models by code that numba compiles, on blocks of words that stay in the cache of a CPU's core.

Import this module only where it is needed: it imports numba, which takes a few tenths of a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accprobe.function.model import FunctionModel
from accprobe.function.quadratic import SQUARER_BITS, all_squares
from accprobe.function.reductions import (
    BIAS,
    FRACTION,
    HIDDEN,
    INFINITY,
    MASK,
    REDUCTIONS,
    Turns,
)
from accprobe.isa.formats import Bits

# Decorates functions without type annotations, which numba infers.
_compiled = njit(nogil=True, cache=True, error_model="numpy")

_POWER, _EXP2, _LOG2, _TURNS = range(4)  # places in REDUCTIONS
_FACTOR = int(np.float32(Turns.FACTOR).view(np.uint32))
# 2^x overflows, or becomes zero, long before x has the first exponent; shifts of integers beyond the second lose all bits.
_LARGEST_POWER, _WIDEST_SHIFT = 16, 40
# Words of a block.
WORDS_TOGETHER = 1024

# The parameters that any reduction has; 0 where it lacks one. A record of a reduction, and a record of a table.
_PARAMETERS = ("period", "direction", "dropped", "quarters", "first", "above")
_STEP = np.dtype([(name, np.int64) for name in ("reduction", *_PARAMETERS)])
_FIELDS = ("segment_bits", "exact_square", "unit", "has_first", "first", "ignored", "coefficients")
_TABLE = np.dtype([(name, np.int64) for name in _FIELDS])


def ordinary_words(model: FunctionModel, words: Bits) -> Bits:
    """Return the result words of f32 words, as `FunctionModel.ordinary_words` does."""
    reduction: Any = model.reduction
    parameters = (getattr(reduction, name, 0) for name in _PARAMETERS)
    step = np.array([(REDUCTIONS.index(type(reduction)), *parameters)], _STEP)
    coefficients = model.coefficients.T.copy()
    found = np.empty_like(words)
    _words(step[0], _tables(model), coefficients, all_squares().reshape(2, -1), words, found)
    return found


def _tables(model: FunctionModel) -> np.ndarray[Any, np.dtype[np.void]]:
    ignored = getattr(model.reduction, "ignored", (0,) * len(model.tables))
    records, row = [], 0
    for number, (table, unit) in enumerate(zip(model.tables, model.units, strict=True)):
        first, exact = model.first.get(number), table.square == "exact"
        records.append((table.segment_bits, exact, unit, first is not None, first or 0, ignored[number], row))
        row += len(table.coefficients)
    return np.array(records, _TABLE)


@_compiled
def _words(p, tables, coefficients, squares, words, found):
    table, argument, sign, exponent, values = np.zeros((5, WORDS_TOGETHER), np.int64)
    for start in range(0, len(words), WORDS_TOGETHER):
        given, results = words[start : start + WORDS_TOGETHER], found[start : start + WORDS_TOGETHER]
        _block(p, tables, coefficients, squares, given, table, argument, sign, exponent, values, results)


@_compiled
def _block(p, tables, coefficients, squares, words, table, argument, sign, exponent, values, found):
    """Compute the words of one block."""
    for i in range(len(words)):
        exponent[i] = 0
    if p.reduction == _POWER:
        _split_power(p.period, p.direction, words, table, argument, sign, exponent)
    elif p.reduction == _EXP2:
        _split_exp2(words, argument, exponent)
    elif p.reduction == _LOG2:
        for i in range(len(words)):
            argument[i] = words[i] & MASK
    elif p.reduction == _TURNS:
        _split_turns(p.quarters, words, argument, sign)
    else:
        _split_octaves(p.first, tables.ignored, words, table, argument, sign)
    _evaluate(tables, coefficients, squares, len(words), table, argument, exponent, values)
    if p.reduction == _LOG2:
        _add_exponents(p.dropped, tables[0].unit, words, sign, exponent, values)
    for i in range(len(words)):
        found[i] = _assembled(sign[i], values[i], exponent[i])
    if p.reduction > _TURNS:
        lowest, above, end = p.first + BIAS, p.above, p.first + BIAS + len(tables)
        for i in range(len(words)):
            biased = words[i] >> FRACTION & 255
            of_table, constant = found[i], np.uint32(above | sign[i] << 31)
            found[i] = words[i] if biased < lowest else constant if biased >= end else of_table


@_compiled
def _split_power(period, direction, words, table, argument, sign, exponent):
    for i in range(len(words)):
        word = np.int64(words[i])
        power = (word >> FRACTION & 255) - BIAS
        table[i], argument[i], sign[i] = power & period - 1, word & MASK, word >> 31
        exponent[i] = direction * (power >> period - 1)


@_compiled
def _split_exp2(words, argument, exponent):
    for i in range(len(words)):
        word = np.int64(words[i])
        biased = word >> FRACTION & 255
        fixed = _shifted(word & MASK | HIDDEN, min(biased - BIAS, _LARGEST_POWER))
        fixed = fixed if biased > 0 else 0
        fixed = -fixed - (fixed & MASK != 0) if word >> 31 else fixed
        argument[i], exponent[i] = fixed & MASK, fixed >> FRACTION


@_compiled
def _split_turns(quarters, words, argument, sign):
    for i in range(len(words)):
        word = np.int64(words[i])
        biased, product = word >> FRACTION & 255, (word & MASK | HIDDEN) * (_FACTOR & MASK | HIDDEN)
        carry = product >> 2 * FRACTION + 1
        left = biased + (_FACTOR >> FRACTION) - 2 * BIAS + carry + 2
        normal = (biased > 0) & (left + BIAS > 2) & (left < _WIDEST_SHIFT)
        phase = _shifted(product >> FRACTION + carry, left) * normal
        quarter = (phase >> FRACTION) + quarters
        argument[i] = phase & MASK ^ MASK * (quarter & 1)
        sign[i] = quarter >> 1 & 1 ^ (word >> 31) * (quarters == 0)


@_compiled
def _split_octaves(lowest, ignored, words, table, argument, sign):
    for i in range(len(words)):
        word = np.int64(words[i])
        table[i] = min(max((word >> FRACTION & 255) - BIAS - lowest, 0), len(ignored) - 1)
        argument[i] = (word & MASK) >> ignored[table[i]]
        sign[i] = word >> 31


@_compiled
def _evaluate(tables, coefficients, squares, count, table, argument, exponent, values):
    """Compute the values of the tables, and add their units to the exponents."""
    c0, c1, c2 = coefficients
    bits, rows, units, exact = tables.segment_bits, tables.coefficients, tables.unit, tables.exact_square
    for i in range(count):
        of = table[i]
        row, x = rows[of] + (argument[i] >> bits[of]), argument[i] & (1 << bits[of]) - 1
        values[i] = c0[row] + c1[row] * x + c2[row] * squares[exact[of], x << SQUARER_BITS - bits[of]]
        exponent[i] += units[of]
    if tables.has_first.any():
        for i in range(count):
            if argument[i] == 0 and tables[table[i]].has_first:
                values[i] = tables[table[i]].first


@_compiled
def _add_exponents(dropped, unit, words, sign, exponent, values):
    """Add the operand's exponent to a logarithm."""
    for i in range(len(words)):
        total = (np.int64(words[i] >> FRACTION & 255) - BIAS << -unit - dropped) + (values[i] >> dropped)
        sign[i], values[i], exponent[i] = total < 0, ~total if total < 0 else total, unit + dropped


@_compiled
def _assembled(sign, value, exponent):
    """Return the word of ±value · 2^exponent, truncated to 24 bits."""
    length = (np.float64(value).view(np.int64) >> 52) - 1022
    biased = length + exponent + BIAS - 1
    word = min(biased << FRACTION | _shifted(value, 24 - length) & MASK, INFINITY)
    return np.uint32(word * ((value > 0) & (biased > 0)) | sign << 31)  # a branch here takes longer


@_compiled
def _shifted(value, left):
    return value << min(max(left, 0), _WIDEST_SHIFT) >> min(max(-left, 0), 63)

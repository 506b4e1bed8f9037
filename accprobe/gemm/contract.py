"""Detect callables that do not compute A·B: an added bias, a factor, a transposed operand, or a result without operands."""

from __future__ import annotations

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.gemm.adapter import of_ones
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import WholeNumbers, layout_of, numbers_of
from accprobe.gemm.pairs import Ints
from accprobe.gemm.units import power
from accprobe.isa.formats import Format

# Tolerance in units of the last place: the product and the added value are both rounded.
LAST_PLACES = 4

# Rows, columns or elements in one message.
MOST_LISTED = 3


def refuse_non_products(subject: RecordedCallable, seed: int) -> None:
    """Raise AccprobeError if the result is transposed, ignores the operands or adds something to A·B."""
    _refuse_transposed(subject, seed)
    spec = subject.spec
    layout = layout_of(spec)
    a, b = layout.blank()
    of_zeros = subject.product(a, b, keep=False)
    added = np.nan_to_num(numbers_of(spec.out, of_zeros))
    there = added != 0
    if not there.any():
        return
    if np.array_equal(of_zeros, subject.product(*of_ones(spec), keep=False)):
        raise AccprobeError("the result does not depend on the operands of this call (cached?): zeros and ones give the same")
    a[:, 0], b[:, 0] = layout.one()
    one = numbers_of(spec.out, subject.product(a, b, keep=False))
    near = abs(one - added - 1) <= LAST_PLACES * _last_place(spec.out, np.maximum(abs(one), abs(added)))
    if (near & (abs(added) >= _least(spec.out)))[there].all():
        raise AccprobeError(f"it adds {added_in_words(added)}: this is no product of two matrices (a bias?)")
    if there.mean() > 0.5:
        row, column = np.argwhere(there)[0]
        again = numbers_of(spec.out, subject.product(*layout.blank(), keep=False))[row, column]
        doubt = "an activation?" if again == added[row, column] else f"and {again:.9g} when it is probed again"
        raise AccprobeError(
            f"with zeros the result is {added[row, column]:.9g} (row {row}, column {column}), and {one[row, column]:.9g} if"
            f" one product is 1: this is no product of two matrices ({doubt})"
        )


def added_in_words(added: WholeNumbers) -> str:
    """Name the values added to a product: "2 to each element of column 3"."""
    if (added == added[0, 0]).all():
        return f"{added[0, 0]:.9g} to each element"
    for name, lines in (("column", added), ("row", added.T)):
        if (lines == lines[0]).all():
            return _listed([f"{lines[0, i]:.9g} to each element of {name} {i}" for i in np.flatnonzero(lines[0])])
    return _listed([f"{added[i, j]:.9g} at row {i}, column {j}" for i, j in np.argwhere(added)])


def factor_in_words(subject: RecordedCallable, rows: Ints, columns: Ints, k: int) -> str:
    """Name the factor of a product: "0.125 times A·B". "" if results are not proportional to the product at this k."""
    spec, layout = subject.spec, layout_of(subject.spec)
    low, high = layout.exponents()
    found = []
    for exponent in (0, min(2, high), max(-2, low)):
        for negative in (False, True):
            a, b = layout.blank()
            word_a, word_b = layout.one() if spec.a.is_integer else layout.power(exponent)
            a[:, k], b[:, k] = word_a, word_b | (spec.b.sign_bit if negative and spec.b.is_float else 0)
            d = numbers_of(spec.out, subject.product(a, b, keep=False))[np.ix_(rows, columns)]
            exact = 1.0 if spec.a.is_integer else 2.0**exponent
            found.append(d / (-exact if negative and spec.b.is_float else exact))
    factor = found[0].flat[0]
    return f"{factor:.9g} times A·B" if factor and all((each == factor).all() for each in found) else ""


def _listed(phrases: list[str]) -> str:
    return ", ".join([*phrases[:MOST_LISTED], *(["…"] if len(phrases) > MOST_LISTED else [])])


def _last_place(out: Format, size: WholeNumbers) -> WholeNumbers:
    return np.zeros(size.shape) if out.is_integer else np.exp2(np.frexp(size)[1] - 1.0 - out.mantissa_bits)


def _least(out: Format) -> float:
    """Return the smallest normal number. Smaller values count as a stray bit."""
    return 1.0 if out.is_integer else 2.0**out.min_exponent


def _refuse_transposed(subject: RecordedCallable, seed: int) -> None:
    """Raise AccprobeError if the result is the product of a transposed matrix. Each row of A has one 1, which selects a row of
    B.
    """
    spec = subject.spec
    if spec.a_exponent is not None:
        return
    rng = np.random.default_rng((seed, 0x7A5))
    which = rng.permutation(max(spec.m, spec.k))[: spec.m] % spec.k
    picked = np.zeros((spec.m, spec.k), np.float32)
    picked[np.arange(spec.m), which] = 1
    numbers = rng.integers(0, 2, (spec.k, spec.n)).astype(np.float32)
    one_a, one_b = (1, 1) if spec.a.is_integer else (power(spec.a, 0), power(spec.b, 0))
    a, b = (picked != 0) * spec.a.dtype.type(one_a), (numbers.T != 0) * spec.b.dtype.type(one_b)
    d = subject.product(a, np.ascontiguousarray(b), keep=False)
    got = spec.out.integers(d) if spec.out.is_integer else spec.out.values(d)
    if np.array_equal(got, numbers[which]):
        return
    others = {
        "(A·B)ᵀ": numbers[which].T,
        "A·Bᵀ": numbers.T[which] if spec.k == spec.n else None,
        "Aᵀ·B": picked.T @ numbers if spec.k == spec.m else None,
        "Aᵀ·Bᵀ": picked.T @ numbers.T if spec.k == spec.m == spec.n else None,
    }
    for name, expected in others.items():
        if expected is not None and np.array_equal(got, expected):
            raise AccprobeError(f"the result is {name}: this is no product of A [M, K] and B [K, N] (a transposed operand?)")

"""What becomes of operands' last bits where words are wider than their format (tf32): cut, or rounded to it before anything is
multiplied, by the library or by the instruction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accprobe.evaluate.product import rounded_words
from accprobe.gemm.battery import Answered, Sparse, query
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.decomposition import FusedGroups
from accprobe.gemm.pairs import Ints
from accprobe.gemm.units import power
from accprobe.isa.formats import Bits, Format
from accprobe.model.product import OPERAND_ROUNDINGS
from accprobe.model.tree import Rounding

_HALF_STEPS = 8
"""Numbers from 1 on, half a last bit from one another, that are asked: above and below even ones and odd ones."""


class LowBits(NamedTuple):
    """The rounding that explains most of the answers."""

    rounding: Rounding
    answered: Answered


def low_bits(asked: RecordedCallable, chain: FusedGroups, rows: Ints, columns: Ints) -> LowBits:
    """Asks numbers at ties and beside them, of both signs, of A and of B: each times 1, and of its own chain less 1."""
    spec = asked.spec
    of_a, of_b = _words(spec.a), _words(spec.b)
    one_a, one_b = np.full(len(of_b), power(spec.a, 0), spec.a.dtype), np.full(len(of_a), power(spec.b, 0), spec.b.dtype)
    a, b = np.concatenate([of_a, one_a]), np.concatenate([one_b, of_b])
    ks = [k for group in chain for k in group][:2]
    less = spec.a.values(a) * spec.b.values(b) > 0
    minus = np.where(less, power(spec.a, 0, negative=True), power(spec.a, 0)).astype(spec.a.dtype)
    columns_of = [(a, b), (minus, np.full(len(a), power(spec.b, 0), spec.b.dtype))][: len(ks)]
    dots = Sparse(np.tile(np.array(ks), (len(a), 1)), *(np.stack(each, axis=1) for each in zip(*columns_of, strict=True)))
    answered = query(asked, dots, rows, columns)
    found = spec.out.values(answered.d)

    def wrong(how: Rounding) -> int:
        x, y = (fmt.values(rounded_words(fmt, words, how)) for fmt, words in ((spec.a, dots.a), (spec.b, dots.b)))
        return int(np.count_nonzero((x * y).sum(axis=1)[: len(found)] != found))

    return LowBits(min(OPERAND_ROUNDINGS, key=wrong), answered)


def _words(fmt: Format) -> Bits:
    """Of one operand, [n]; of a format that is as wide as its words, none."""
    if not fmt.ignored_low_bits:
        return np.zeros(0, fmt.dtype)
    half = 1 << (fmt.ignored_low_bits - 1)
    above = np.add.outer(np.arange(_HALF_STEPS) * half, [-1, 0, 1]).reshape(-1) + power(fmt, 0)
    return np.concatenate([above, above | fmt.sign_bit]).astype(fmt.dtype)

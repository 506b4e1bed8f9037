"""Operands and results that are whole numbers, whose sums are exact whatever they are added in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import layout_of
from accprobe.gemm.pairs import Ints
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits, Format

WholeNumbers = NDArray[np.float64]


def shift_of(spec: Spec) -> int:
    """Exponent of what is 1 in B."""
    return -(spec.a_exponent or 0)


def patterns(fmt: Format, numbers: WholeNumbers | Ints, shift: int = 0) -> Bits:
    """Patterns of whole numbers times 2^shift."""
    whole = numbers.astype(np.int64)
    least, values = int(whole.min()), range(int(whole.min()), int(whole.max()) + 1)
    words = [v % (1 << fmt.bits) if fmt.is_integer else fmt.encode(v < 0, abs(v), shift) if v else 0 for v in values]
    return np.array(words, fmt.dtype)[whole - least]


def numbers_of(out: Format, d: Bits) -> WholeNumbers:
    """The numbers that patterns stand for."""
    return np.asarray(out.integers(d) if out.is_integer else out.values(d), np.float64)


def zeros(spec: Spec) -> tuple[Ints, Ints]:
    """A [M, K] and B [N, K] to be filled."""
    return np.zeros((spec.m, spec.k), np.int64), np.zeros((spec.n, spec.k), np.int64)


def result(asked: RecordedCallable, a: Ints, b: Ints) -> WholeNumbers:
    """Probe a product of whole numbers: D [M, N]. Where A is the callable's own, what is given for it does not count."""
    spec = asked.spec
    words = layout_of(spec).a(patterns(spec.a, a)), patterns(spec.b, b, shift_of(spec))
    return numbers_of(spec.out, asked.product(*words, keep=False))

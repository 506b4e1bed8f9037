"""Whether a callable's own A is what it is taken to be: where D rounds a sum, ties tell that are none."""

from __future__ import annotations

import numpy as np

from accprobe.gemm import battery
from accprobe.gemm.battery import TERMS, Sparse
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import layout_of
from accprobe.gemm.pairs import Ints

QUARTERS = (1, 2, 3)
"""Of the last bit of D, beside numbers that D has: the second is a tie."""


def check_softmax_weights(asked: RecordedCallable, rows: Ints, columns: Ints) -> str:
    """In which direction A is off, "" where A is asked, or nothing tells.

    Of 1, and 1 and a bit more, each with quarters of D's last bit at other k: to nearest, ties go to even. Where all of them go
    up, and one quarter does not, A is larger than it is taken to be; where all go down, and three quarters do not, smaller.
    """
    spec = asked.spec
    if spec.a_exponent is None or spec.k < TERMS or spec.out.mantissa_bits > spec.b.mantissa_bits:
        return ""
    last = spec.out.mantissa_bits
    there = np.array([[1, odd, n >= 2, n % 2] for odd in (0, 1) for n in QUARTERS], np.int64)
    exponents = np.broadcast_to([0, -last, -last - 1, -last - 2], there.shape)
    a, b = layout_of(spec).patterns(there, exponents, np.full(there.shape, 8), np.random.default_rng(0))
    ks = np.broadcast_to(np.arange(there.shape[1]), there.shape)
    d = spec.out.values(battery.query(asked, Sparse(ks, a, b), rows, columns).d).reshape(2, len(QUARTERS))
    gone_up = (d - [[1], [1 + 2.0**-last]]) * 2.0**last
    if not np.array_equal(gone_up[:, [0, 2]], [[0, 1], [0, 1]]) or gone_up[0, 1] != gone_up[1, 1]:
        return ""
    size, way = ("more", "up") if gone_up[0, 1] else ("less", "down")
    return f"every element of A is a little {size} than 2^{spec.a_exponent}: ties of D go {way}"

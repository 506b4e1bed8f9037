"""Is every product counted once? Ones at one k alone, for every k."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.gemm.blackbox import Asked
from accprobe.gemm.layout import layout_of
from accprobe.gemm.pairs import Ints


def counts(asked: Asked, rows: Ints, columns: Ints) -> Ints:
    """How often each k is counted, [K]. Raises AccprobeError where the result is no number of products."""
    found = alone(asked, rows, columns, np.arange(asked.spec.k), *layout_of(asked.spec).one())
    whole = np.round(found)
    if not np.array_equal(found, whole) or (found < 0).any():
        wrong = int(np.flatnonzero(~(found == whole) | (found < 0))[0])
        again = alone(asked, rows, columns, np.array([wrong]), *layout_of(asked.spec).one())[0]
        why = (
            "scales, an activation or another order of the operands?"
            if again == found[wrong]
            else f"and {again:g} when it is asked again"
        )
        raise AccprobeError(
            f"of ones at k = {wrong} alone the result is {found[wrong]:g}: this is no product of two matrices ({why})"
        )
    if not whole.any():
        raise AccprobeError("the result is 0 whichever k has ones: this is no product of two matrices")
    if (least := int(whole.min())) > 1:
        raise AccprobeError(
            f"of ones at one k alone the result is {least} or more, whichever k it is: this is no product of two matrices"
            " (a factor, or something that is added?)"
        )
    return whole.astype(np.int64)


def alone(asked: Asked, rows: Ints, columns: Ints, ks: Ints, word_a: int, word_b: int) -> NDArray[np.float64]:
    """What comes out of the product of two words at each k, where everything else is zero, [len(ks)].

    Element (i, j) has them at one k: rows share runs of as many k as there are columns, a column one of each run.
    """
    spec, layout = asked.spec, layout_of(asked.spec)
    rows = layout.unlike(rows)
    found = np.empty(len(ks), np.float64)
    width = len(columns)
    for start in range(0, len(ks), width * len(rows)):
        a, b = layout.blank()
        some = ks[start : start + width * len(rows)]
        y, x = np.divmod(np.arange(len(some)), width)
        a[rows[y], some] = word_a
        b[columns[x], some] = word_b
        d = asked.product(a, b)[rows[y], columns[x]]
        found[start : start + len(some)] = spec.out.integers(d) if spec.out.is_integer else spec.out.values(d)
    return found

"""Detect what an output depends on besides its own products: other rows, other columns, elements whose product is zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.distributions import random_lines, times_power
from accprobe.gemm.layout import layout_of
from accprobe.gemm.repeatability import first_operands
from accprobe.isa.formats import Bits, Format

# Exponent added to changed numbers; some 8-bit ones become the largest of their format. A scale derived from the maximum of a
# row or matrix then changes too, and not by a power of two.
LARGER = 10

# Share of the other rows or columns that change with one line if outputs depend on the whole tensor.
NEARLY_ALL = 0.9

OWN, TENSOR = "own row and column", "whole tensor"
ON_OTHERS = {(True, False): "other rows", (False, True): "other columns", (True, True): "other rows and columns"}
# Values by (changes in A matter, changes in B matter). ON_ZEROS: the products of all changed elements are zero.
ON_ZEROS = {(True, False): "whole row of A", (False, True): "whole column of B", (True, True): "whole row and column"}


@dataclass(frozen=True)
class Dependence:
    """value: what an output depends on, as in the finding; note: the evidence."""

    value: str = OWN
    note: str = ""

    def __str__(self) -> str:
        words = f"an output depends on {'the ' * (self.value == TENSOR)}{self.value}"
        return f"{words}: {self.note}" if self.note else words

    @property
    def is_on_others(self) -> bool:
        """Return whether an output depends on more than its own row of A and column of B."""
        return self.value == TENSOR or self.value in ON_OTHERS.values()


def find_dependence(subject: RecordedCallable, seed: int = 0) -> Dependence:
    """Change other rows and columns, then elements whose products are zero, in a few calls."""
    changes = _Changes(subject, seed)
    if changes.of_others(True, True) and (value := ON_OTHERS.get(_seen(changes.of_others))):
        return _named(changes, value)
    if subject.spec.a_exponent is None and changes.of_zeros(True, True) and (value := ON_ZEROS.get(_seen(changes.of_zeros))):
        return Dependence(value, "elements whose product is zero change it")
    return Dependence()


def _seen(changes: Callable[[bool, bool], bool]) -> tuple[bool, bool]:
    return changes(True, False), changes(False, True)


def _named(changes: _Changes, value: str) -> Dependence:
    """Add evidence from single lines. A line that changes nearly all others belongs to a matrix scaled by its maximum."""
    notes = []
    for of_a, what in ((True, "rows"), (False, "columns")):
        line, changed, others = changes.of_one(of_a)
        if changed:
            notes.append(f"{what[:-1]} {line} changes {changed} of the {others} other {what}")
        if changed > NEARLY_ALL * others > 0:
            value = TENSOR
    return Dependence(value, "; ".join(notes))


class _Changes:
    """Calls with changed operands, compared with one unchanged call."""

    def __init__(self, subject: RecordedCallable, seed: int) -> None:
        self._subject, self._rng = subject, np.random.default_rng((seed, 0xDE9))
        self._a, self._b = first_operands(subject.spec)
        self._d = subject.product(self._a, self._b)
        self._rows, self._columns = (self._half(len(lines)) for lines in (self._a, self._b))

    def _half(self, lines: int) -> NDArray[np.bool_]:
        """Return half of the lines, or the only one."""
        return np.asarray(self._rng.permutation(lines) < -(-lines // 2))

    def _redrawn(self, fmt: Format, lines: Bits) -> Bits:
        """Return new numbers, some in each line larger than all of `first_operands`."""
        found = random_lines(fmt, lines.shape, "normal", self._rng)
        if fmt.storage_bits > 8:
            return times_power(fmt, found, LARGER)
        found[..., :1] = fmt.largest
        return found

    def _changed(self, a: Bits, b: Bits, of_a: Any, of_b: Any) -> Bits:
        """Return the result with these elements of A and B redrawn."""
        a, b, spec = a.copy(), b.copy(), self._subject.spec
        a[of_a] = layout_of(spec).a(self._redrawn(spec.a, a[of_a]))
        b[of_b] = self._redrawn(spec.b, b[of_b])
        return self._subject.product(a, b)

    def of_others(self, in_a: bool, in_b: bool) -> bool:
        """Return whether outputs of half of the rows and columns change with the other half of the lines, for either half."""
        for rows, columns in ((self._rows, self._columns), (~self._rows, ~self._columns)):
            d = self._changed(self._a, self._b, ~rows & in_a, ~columns & in_b)
            kept = np.ix_(rows | (not in_a), columns | (not in_b))
            if (d[kept] != self._d[kept]).any():
                return True
        return False

    def of_zeros(self, in_a: bool, in_b: bool) -> bool:
        """Return whether outputs change with elements whose product is zero: a quarter of K in A, another quarter in B."""
        a, b, quarter = self._a.copy(), self._b.copy(), self._rng.permutation(self._a.shape[1]) % 4
        a[:, quarter == 1], b[:, quarter == 0] = 0, 0
        d = self._subject.product(a, b)
        whole = slice(None)
        other = self._changed(a, b, (whole, (quarter == 0) & in_a), (whole, (quarter == 1) & in_b))
        numbers = (d | other) << d.dtype.type(1) != 0  # of sums of zeros alone the sign may change
        return bool(((other != d) & numbers).any())

    def of_one(self, of_a: bool) -> tuple[int, int, int]:
        """Redraw one row of A or column of B. Return its number, the other lines whose outputs change, and how many others
        exist.
        """
        line = int(self._rng.integers(len(self._a if of_a else self._b)))
        d = self._changed(self._a, self._b, [line] if of_a else [], [] if of_a else [line])
        lines = (d != self._d).any(axis=1 if of_a else 0)
        return line, int(np.delete(lines, line).sum()), len(lines) - 1

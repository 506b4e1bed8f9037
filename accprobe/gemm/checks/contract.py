"""Detect callables that do not compute A·B alone: an added bias, a factor, a transposed operand, or other dependences.

Count how often each product is added: with ones at a single k, and at many k for elements that differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.operands import Ints, first_operands, layout_of, ones
from accprobe.errors import AccprobeError
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.checks import pairing
from accprobe.gemm.checks.pairing import ElementMask, whole_product
from accprobe.gemm.checks.quantisation import find_quantisation
from accprobe.gemm.checks.regions import Region, region_of, without
from accprobe.isa.formats import Bits, Format
from accprobe.operands.distributions import random_lines, times_power

# Tolerance in units of the last place: the product and the added value are both rounded.
LAST_PLACES = 4


def refuse_non_products(subject: RecordedCallable) -> None:
    """Raise AccprobeError if the result is transposed, ignores the operands or adds something to A·B."""
    _refuse_transposed(subject)
    spec = subject.spec
    layout = layout_of(spec)
    a, b = layout.blank()
    of_zeros = subject.product(a, b, keep=False)
    added = np.nan_to_num(spec.out.values(of_zeros))
    there = added != 0
    if not there.any():
        return
    if np.array_equal(of_zeros, subject.product(*ones(spec), keep=False)):
        raise AccprobeError("the result does not depend on the operands of this call (cached?): zeros and ones give the same")
    a[:, 0], b[:, 0] = layout.one()
    one = spec.out.values(subject.product(a, b, keep=False))
    least, last_place = 1.0, np.zeros(one.shape)
    if spec.out.is_float:  # values below the smallest normal number count as a stray bit
        least, size = 2.0**spec.out.min_exponent, np.maximum(abs(one), abs(added))
        last_place = np.exp2(np.frexp(size)[1] - 1.0 - spec.out.mantissa_bits)
    near = abs(one - added - 1) <= LAST_PLACES * last_place
    row, column = np.argwhere(there)[0]
    found = f"with zeros the result is {added[row, column]:.9g} (row {row}, column {column})"
    if (near & (abs(added) >= least))[there].all():
        raise AccprobeError(f"{found}: this is not {spec.kind} (a bias?)")
    if there.mean() > 0.5:
        term = "product" if spec.a_exponent is None else "element"
        raise AccprobeError(
            f"{found}, and {one[row, column]:.9g} if one {term} is 1: this is not {spec.kind} (noise, or an activation?)"
        )


def _refuse_transposed(subject: RecordedCallable) -> None:
    """Raise AccprobeError if the result is the product of a transposed matrix. One 1 in each row of A selects a row of B."""
    spec = subject.spec
    if spec.a_exponent is not None:
        return
    rng = subject.rng(0x7A5)
    which = rng.permutation(max(spec.m, spec.k))[: spec.m] % spec.k
    picked = np.zeros((spec.m, spec.k), np.int64)
    picked[np.arange(spec.m), which] = 1
    numbers = rng.integers(0, 2, (spec.k, spec.n))
    got = whole_product(subject, picked, np.ascontiguousarray(numbers.T))
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
            raise AccprobeError(f"{subject.name} returns {name}, not A·B: give a function of A [M, K] and B [K, N]")


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
    """value: what an output depends on, as in the finding; note: the evidence; quantised: whether it names a quantisation."""

    value: str = OWN
    note: str = ""
    quantised: bool = False

    def __str__(self) -> str:
        words = f"an output depends on {'the ' * self.value.startswith('whole')}{self.value}"
        return f"{words}: {self.note}" if self.note else words

    @property
    def is_on_others(self) -> bool:
        """Return whether an output depends on more than its own row of A and column of B."""
        return self.value == TENSOR or self.value in ON_OTHERS.values()

    @property
    def is_on_zeros(self) -> bool:
        """Return whether elements with zero products change an output."""
        return self.value in ON_ZEROS.values()


def find_dependence(subject: RecordedCallable) -> Dependence:
    """Change other rows and columns, then elements with zero products, in a few calls. Name dynamic quantisation."""
    found = _dependence(subject)
    if found.value != OWN and (how := find_quantisation(subject)):
        return replace(found, note=how, quantised=True)
    if found.is_on_zeros:
        wide = subject.spec.a.storage_bits > 16
        ozaki = ", as of the Ozaki scheme (integer slices that share an exponent)" if wide else ""
        return replace(found, note=f"{found.note}{ozaki}; no quantisation that accprobe knows explains it")
    return found


def _dependence(subject: RecordedCallable) -> Dependence:
    changes = _Changes(subject)
    others, zeros = changes.of_others, changes.of_zeros
    if others(True, True) and (value := ON_OTHERS.get((others(True, False), others(False, True)))):
        return _named(changes, value)
    if subject.spec.a_exponent is not None or not zeros(True, True):
        return Dependence()
    value = ON_ZEROS.get((zeros(True, False), zeros(False, True)), "")
    return Dependence(value, "elements whose product is zero change it") if value else Dependence()


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

    def __init__(self, subject: RecordedCallable) -> None:
        self._subject, self._rng = subject, subject.rng(0xDE9)
        self._a, self._b = first_operands(subject.spec)
        self._d = subject.product(self._a, self._b)
        halves = (self._rng.permutation(len(lines)) < -(-len(lines) // 2) for lines in (self._a, self._b))
        self._rows, self._columns = halves  # or the only line

    def _redrawn(self, fmt: Format, lines: Bits) -> Bits:
        """Return new numbers, some in each line larger than all of `first_operands`."""
        found = random_lines(fmt, lines.shape, "normal", self._rng)
        if fmt.storage_bits > 8:
            return times_power(fmt, found, LARGER)
        found[..., :1] = fmt.largest
        return found

    def _changed(self, a: Bits, b: Bits, of_a: Any, of_b: Any) -> Bits:
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
        """Return whether outputs change with elements of zero products: a quarter of K in A, another quarter in B."""
        a, b, quarter = self._a.copy(), self._b.copy(), self._rng.permutation(self._a.shape[1]) % 4
        a[:, quarter == 1], b[:, quarter == 0] = 0, 0
        d = self._subject.product(a, b)
        whole = slice(None)
        other = self._changed(a, b, (whole, (quarter == 0) & in_a), (whole, (quarter == 1) & in_b))
        numbers = (d | other) << d.dtype.type(1) != 0  # of sums of zeros alone the sign may change
        return bool(((other != d) & numbers).any())

    def of_one(self, of_a: bool) -> tuple[int, int, int]:
        """Redraw one row of A or column of B. Return its number, how many other lines change, and how many there are."""
        line = int(self._rng.integers(len(self._a if of_a else self._b)))
        d = self._changed(self._a, self._b, [line] if of_a else [], [] if of_a else [line])
        lines = (d != self._d).any(axis=1 if of_a else 0)
        return line, int(np.delete(lines, line).sum()), len(lines) - 1


# Sign patterns with which each element adds ones at every k. Two missing products escape all of them in one of 256 cases.
SIGN_PATTERNS = 8
# Ones added in one query: f16 and bf16 hold sums of this many exactly.
ONES = 128
# Largest number of element groups to locate missing products in.
MOST_MISCOUNTED = 4


class Counted(NamedTuple):
    """A region and how often it adds each k. mispaired: other products it adds; reason: why it has no plan."""

    region: Region
    once: Ints
    reason: str = ""
    mispaired: str = ""


def count_products(subject: RecordedCallable, regions: Sequence[Region]) -> list[Counted]:
    """Return the products that each region adds. Elements that add other products than their region form their own region.

    Raises AccprobeError if the result is no number of products.
    """
    known = [(region, term_multiplicity(subject, region.rows, region.columns)) for region in regions]
    there, draws = pairing.differing(subject, known)
    others = list(_miscounted(subject, there, draws, known))
    rest = there.copy()
    for same, _ in others:
        rest &= ~same
    wrong = list(pairing.mispaired(subject, rest, draws, known[0][1]))
    if wrong:  # Counted anew: the ones of wrong elements may have come from other lines.
        moved = np.any([each.there for each in wrong], axis=0)
        known = [(x, term_multiplicity(subject, x.rows, x.columns)) for region in regions if (x := without(region, moved))]
        others = list(_miscounted(subject, there & ~moved, draws, known)) if known else []
    ones = np.ones(subject.spec.k, np.int64)
    return [
        *(Counted(*each) for each in known),
        *(Counted(region_of(each.there), ones, each.description, each.description) for each in wrong),
        *(Counted(region_of(same), once, "these elements add other products than most elements do") for same, once in others),
    ]


def term_multiplicity(subject: RecordedCallable, rows: Ints, columns: Ints) -> Ints:
    """Return how often each k is counted, [K]. Raises AccprobeError if the result is no number of products."""
    found = single_products(subject, rows, columns, np.arange(subject.spec.k), *layout_of(subject.spec).one())
    whole = np.round(found)
    if not np.array_equal(found, whole) or (found < 0).any():
        wrong = int(np.flatnonzero(~(found == whole) | (found < 0))[0])
        raise AccprobeError(
            f"with ones at k = {wrong} only, the result is {found[wrong]:.9g}: not {subject.spec.kind} (a factor,"
            " scales, an activation or another order of the operands?)"
        )
    if not whole.any():
        raise AccprobeError(
            f"{subject.name} returns only zeros where its operands have ones: not {subject.spec.kind}"
            + "; return d [M, N], such as a @ b" * (subject.spec.a_exponent is None)
        )
    if (least := int(whole.min())) > 1:
        raise AccprobeError(
            f"with ones at a single k, the result is {least} or more at every k: not {subject.spec.kind} (a"
            " factor, or an activation?)"
        )
    return whole.astype(np.int64)


def single_products(
    subject: RecordedCallable, rows: Ints, columns: Ints, ks: Ints, word_a: int, word_b: int
) -> NDArray[np.float64]:
    """Return the product of two words at each k, with zeros elsewhere, [len(ks)].

    Each element (i, j) probes one k: a row holds as many k as there are columns, and each column selects one of them.
    """
    spec, layout = subject.spec, layout_of(subject.spec)
    rows = layout.distinct_rows(rows)
    found = np.empty(len(ks), np.float64)
    width = len(columns)
    if spec.a_exponent is not None:

        def fill(lines: Bits, some: slice) -> None:
            lines[np.arange(len(lines)), ks[some]] = word_b

        return spec.out.values(subject.of_columns(layout.blank()[0], rows[0], columns, len(ks), fill))
    for start in range(0, len(ks), width * len(rows)):
        a, b = layout.blank()
        some = ks[start : start + width * len(rows)]
        y, x = np.divmod(np.arange(len(some)), width)
        a[rows[y], some] = word_a
        b[columns[x], some] = word_b
        d = subject.product(a, b)[rows[y], columns[x]]
        found[start : start + len(some)] = spec.out.values(d)
    return found


def _miscounted(
    subject: RecordedCallable, there: ElementMask, draws: Sequence[pairing.OperandDraw], known: Sequence[tuple[Region, Ints]]
) -> Iterator[tuple[ElementMask, Ints]]:
    """Yield groups of these elements that count some k differently from their region (or the first one), with their counts.

    Half of the ones of floats are negative. Missing products change the sum unless their signs balance.
    """
    spec, rng = subject.spec, np.random.default_rng(0)
    if not there.any():
        return
    ks, region_number = np.arange(spec.k), np.zeros(there.shape, np.int64)
    for number, (region, _) in enumerate(known):
        region_number[np.ix_(region.rows, region.columns)] = number
    whole = np.ones(spec.k, np.int64)
    signs = [whole if spec.b.is_integer else rng.permutation(np.resize([1, -1], spec.k)) for _ in range(SIGN_PATTERNS)]
    sums = np.stack([spec.out.values(_ones(subject, ks, each)[there]) for each in signs], axis=1)
    usual = np.array([[once @ each for each in signs] for _, once in known])[region_number[there]]
    deviating = (sums != usual).any(axis=1) & (sums == np.round(sums)).all(axis=1)
    places = np.argwhere(there)[deviating]
    _, groups, sizes = np.unique(sums[deviating], axis=0, return_inverse=True, return_counts=True)
    for group in np.argsort(-sizes, kind="stable")[:MOST_MISCOUNTED]:
        rows, columns = places[groups.reshape(-1) == group].T
        once = known[0][1].copy()
        for window in np.array_split(ks, -(-spec.k // ONES)):
            _count_part(subject, rows[0], columns[0], window, once, rng)
        same = np.zeros_like(there)
        same[rows, columns] = True
        same &= pairing.explained(spec.out, draws, once)
        if same.any():
            yield same, once


def _ones(subject: RecordedCallable, ks: Ints, signs: Ints) -> Bits:
    """Return D [M, N] for ones at some k, some of them negative."""
    layout, b_format = layout_of(subject.spec), subject.spec.b
    a, b = (lines[:1].copy() for lines in layout.blank())
    a[:, ks], b[:, ks] = layout.one()
    if b_format.is_float:
        b[:, ks[signs < 0]] |= b_format.dtype.type(b_format.sign_bit)
    return subject.product(np.repeat(a, subject.spec.m, axis=0), np.repeat(b, subject.spec.n, axis=0), keep=False)


def _count_part(subject: RecordedCallable, row: int, column: int, ks: Ints, once: Ints, rng: np.random.Generator) -> None:
    """Write into `once` how often an element counts each of some k. Skip halves with the expected result."""
    for signs in (
        np.ones(len(ks), np.int64),
        *(rng.choice([-1, 1], len(ks)) for _ in range(SIGN_PATTERNS if len(ks) > 1 else 0)),
    ):
        found = float(subject.spec.out.values(_ones(subject, ks, signs)[row, column, None])[0])
        if found != once[ks] @ signs:
            break
    else:
        return
    if len(ks) == 1:
        once[ks] = int(found)
        return
    for half in np.array_split(ks, 2):
        _count_part(subject, row, column, half, once, rng)

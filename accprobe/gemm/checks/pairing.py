"""Detect whether a[i, k] is multiplied by b[k, j] for every i, k and j, with sums of random whole numbers.

A and B consist of a few distinct rows and columns, at random places. Their sums are exact in any order and precision.
Which elements of A and B an element of D reads is determined only for elements that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.operands import Ints, layout_of, whole_operands, whole_zeros
from accprobe.callables.spec import Spec
from accprobe.evaluate.error_free import Floats
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.checks.regions import Region, first_few, ranges
from accprobe.isa.formats import Bits, Format

# Random products in which every element is compared.
CALLS = 8
# Further products probed after a mismatch, to find all elements that differ.
MORE_CALLS = 24
# Minimum number of products in which an element must differ: a single mismatch may have another cause.
MIN_MISMATCHES = 2
# Distinct rows, and distinct columns, of a call.
DISTINCT_LINES = 64
# Largest whole numbers up to which partial sums in f16, and in bf16, are exact.
EXACT_IN_F16, EXACT_IN_BF16 = 1 << 11, 1 << 8
# Standard deviations of a random sum that must stay exact: fewer than one of 10^14 sums exceeds them.
DEVIATIONS = 8
# Mean square of the whole numbers from 1 to each maximum.
MEAN_SQUARES = {4: 7.5, 2: 2.5, 1: 1.0}
# Maximum width of the digits that encode line numbers.
MAX_DIGIT_BITS = 8
# Maximum number of element groups that are explained, each with its own mistake.
MAX_GROUPS = 4
# Maximum number of calls that probe single k.
MAX_CALLS = 1024
# Partner of a k that no element of B multiplies.
NO_PARTNER = -1
DEPENDS_ON_VALUES = "which products are added depends on the values of the operands"

ElementMask = NDArray[np.bool_]


class Mispaired(NamedTuple):
    """Elements that add the same other products. description: which products."""

    there: ElementMask
    description: str


@dataclass(frozen=True)
class OperandDraw:
    """Random integer operands, and the product d that the callable returned for them.

    Row i of A is distinct_a[row_of[i]], column j of B is distinct_b[column_of[j]].
    """

    distinct_a: Floats
    distinct_b: Floats
    row_of: Ints
    column_of: Ints
    d: Bits

    def differs(self, out: Format, products: Ints | _Source) -> ElementMask:
        """Return the elements that differ from the expected sum, [M, N].

        products: how often each k is counted, or the operands that are multiplied instead.
        """
        a, b, rows, columns = self.distinct_a, self.distinct_b, self.row_of, self.column_of
        if isinstance(products, _Source):
            some = products.partner != NO_PARTNER
            a, b = a[:, some], b[:, products.partner[some]]
            rows, columns = rows[products.row], columns[products.column]
        else:
            a = a * products
        return _differ(out, np.asarray(a @ b.T), rows, columns, self.d)


@dataclass(frozen=True)
class _Source:
    """The row of A for each row of D, the column of B for each column, and the k of B for each k of A."""

    row: Ints
    column: Ints
    partner: Ints

    def applies(self) -> ElementMask:
        """Return the elements of D that read an operand that is not their own, [M, N]."""
        rows, columns, ks = (lines != np.arange(len(lines)) for lines in (self.row, self.column, self.partner))
        return np.asarray(rows[:, None] | columns | ks.any())

    def named(self, there: ElementMask) -> str:
        """Describe what these elements of D read instead of their own operands."""
        rows, columns = (
            np.where(there.any(axis=1 - axis), lines, np.arange(len(lines)))
            for axis, lines in enumerate((self.row, self.column))
        )
        names = (
            name_lines(columns, "column", "B"),
            name_lines(rows, "row", "A"),
            name_ks(self.partner),
        )
        return "; ".join(filter(None, names))


def name_ks(partner: Ints) -> str:
    """Name the factors of each a[k]. partner [K]: the k of B, or NO_PARTNER. "" if each is b[k]."""
    moved = [(lines, f"b[{sources}]" if sources else "nothing") for lines, sources in _moved_runs(partner)]
    return first_few([f"a[{lines}] {'' if n else 'is multiplied '}by {factor}" for n, (lines, factor) in enumerate(moved)])


def name_lines(source: Ints, line: str, operand: str) -> str:
    """Name the rows or columns of D that read another line of an operand. "" if each reads its own."""
    names = []
    for lines, sources in _moved_runs(source):
        many = "s" * ("-" in lines)
        names.append(f"{line}{many} {lines} read{'' if many else 's'} {operand} of {line}{many} {sources}")
    return first_few(names)


def _moved_runs(source: Ints) -> Iterator[tuple[str, str]]:
    """Yield runs of lines that read other lines at one distance, as in ("3-5", "0-2"), or nothing, as in ("3", "")."""
    nothing = source == NO_PARTNER
    offset = np.where(nothing, 0, source - np.arange(len(source)))
    edges = np.flatnonzero((np.diff(offset) != 0) | (np.diff(nothing) != 0)) + 1
    for run in np.split(np.arange(len(source)), edges):
        if offset[run[0]] or nothing[run[0]]:
            yield ranges(run), "" if nothing[run[0]] else ranges(source[run])


def differing(subject: RecordedCallable, known: Sequence[tuple[Region, Ints]]) -> tuple[ElementMask, list[OperandDraw]]:
    """Return the elements that add other products than their region counts, [M, N], and the random products that show it."""
    out = subject.spec.out
    if not any(_mismatches(out, draw, known).any() for draw in _draws(subject, EXACT_IN_F16)):
        return np.zeros((subject.spec.m, subject.spec.n), bool), []
    draws = list(_draws(subject, EXACT_IN_BF16, MORE_CALLS))
    times = np.sum([_mismatches(out, draw, known) for draw in draws], axis=0)
    return (times >= MIN_MISMATCHES) & _whole_numbers(subject, draws), draws


def mispaired(subject: RecordedCallable, there: ElementMask, draws: Sequence[OperandDraw], once: Ints) -> Iterator[Mispaired]:
    """Yield these elements in groups with the operands that each group reads instead of a[i, k] and b[k, j]."""
    for _ in range(MAX_GROUPS):
        group = _first_group(subject, there, draws, once) if there.any() else None
        if group is None:
            return
        yield group
        there = there & ~group.there


def _draws(subject: RecordedCallable, exact_limit: int, more: int = 0) -> Iterator[OperandDraw]:
    """Yield random products with whole partial sums up to a limit. If K is too long, several cover it in parts."""
    spec, rng = subject.spec, np.random.default_rng(exact_limit)
    if spec.out.is_float:
        exact_limit = min(exact_limit, int(spec.out.largest_value))
    fitting = [most for most, square in MEAN_SQUARES.items() if (DEVIATIONS * square) ** 2 * spec.k <= exact_limit**2]
    most = fitting[0] if fitting else 1
    terms = spec.k if fitting else max(1, int((exact_limit / DEVIATIONS) ** 2))
    for _ in range(more + CALLS * -(-spec.k // terms)):
        distinct = []
        for fmt, lines in ((spec.a, spec.m), (spec.b, spec.n)):
            shape, top = (min(lines, DISTINCT_LINES), spec.k), min(most, fmt.largest) if fmt.is_integer else most
            signs = rng.choice([-1, 1], shape) if fmt.signed else 1
            distinct.append(np.asarray(rng.integers(1, top + 1, shape) * signs, np.float64))
        of_a, of_b = distinct
        if terms < spec.k:
            kept = rng.permuted(np.broadcast_to(np.arange(spec.k) < terms, of_a.shape), axis=1)
            of_a, of_b = (of_a * kept, of_b) if spec.a_exponent is None else (of_a, of_b * kept[:1])
        if spec.a_exponent is not None:
            of_a[:] = 1  # the factor of a fixed A, which `whole_operands` compensates
        row_of, column_of = (rng.permutation(np.arange(n) % min(n, DISTINCT_LINES)) for n in (spec.m, spec.n))
        a, b = whole_operands(spec, of_a, of_b)
        yield OperandDraw(of_a, of_b, row_of, column_of, subject.product(a[row_of], b[column_of], keep=False))


def _mismatches(out: Format, draw: OperandDraw, known: Sequence[tuple[Region, Ints]]) -> ElementMask:
    """Return the elements that differ from the sum of the products that their region counts, [M, N]."""
    found = draw.differs(out, known[0][1])
    for region, once in known[1:]:
        place = np.ix_(region.rows, region.columns)
        found[place] = draw.differs(out, once)[place]
    return found


def _differ(out: Format, sums: Floats, rows: Ints, columns: Ints, d: Bits) -> ElementMask:
    """Return the elements of d that are neither the exact sum nor, if the format lacks it, one of its two neighbours."""
    differ = np.asarray(out.patterns(sums)[np.ix_(rows, columns)] != d)
    if not differ.any():
        return differ
    i, j = np.nonzero(differ)
    exact, got = sums[rows[i], columns[j]], out.values(d[i, j])
    differ[i, j] = ~(abs(got - exact) < _step(out, exact))
    return differ


def _step(out: Format, exact: Floats) -> Floats:
    """Return the tolerance: one ulp if the sum is not representable in the format, otherwise less than one ulp."""
    if out.is_integer:
        return np.full(exact.shape, 0.5)
    step = np.exp2(np.frexp(exact)[1] - 1.0 - out.mantissa_bits)
    return np.where(exact % step == 0, 0.5 * np.minimum(step, 1), step)


def _whole_numbers(subject: RecordedCallable, draws: Sequence[OperandDraw]) -> ElementMask:
    """Return the elements that are whole numbers in each draw and zero for zero operands. Others are no sums of products."""
    spec = subject.spec
    a, b = layout_of(spec).blank()
    whole = spec.out.values(subject.product(a, b, keep=False)) == 0
    for draw in draws:
        values = spec.out.values(draw.d)
        whole &= values == np.round(values)
    return np.asarray(whole)


def _first_group(subject: RecordedCallable, there: ElementMask, draws: Sequence[OperandDraw], once: Ints) -> Mispaired | None:
    """Return the group of the first element. None if no single product is wrong, or a fixed A hides which are."""
    row, column = map(int, np.argwhere(there)[0])
    for source in _possible_sources(subject, there, row, column, once):
        same = explained(subject.spec.out, draws, source)
        if same[row, column]:
            differ = there & same
            same &= source.applies() & np.outer(differ.any(axis=1), differ.any(axis=0))
            return Mispaired(differ | same, source.named(differ) or DEPENDS_ON_VALUES)
    if subject.spec.a_exponent is not None:
        return None
    if (source.partner[once == 0] != NO_PARTNER).any():
        return Mispaired(there, DEPENDS_ON_VALUES)
    ks, columns = _wrong_singles(subject, once)
    return Mispaired(there, f"other products than a[i, k]·b[k, j] are added: {ks}, {columns}") if ks else None


def explained(out: Format, draws: Sequence[OperandDraw], products: Ints | _Source) -> ElementMask:
    """Return the elements that equal the sum of these products in each draw, [M, N]."""
    return np.asarray(~np.any([draw.differs(out, products) for draw in draws], axis=0))


def _possible_sources(subject: RecordedCallable, there: ElementMask, row: int, column: int, once: Ints) -> Iterator[_Source]:
    """Yield possible sources of an element: first other rows and columns, then also other k."""
    spec, ks = subject.spec, np.arange(subject.spec.k)
    counted = int(np.argmax(once == 1))
    rows, columns = np.arange(spec.m), _lines_read(subject, counted, of_a=False)[row]
    if spec.a_exponent is None:
        rows = _lines_read(subject, counted, of_a=True)[:, column]
    rows, columns = (np.where(lines < 0, np.arange(len(lines)), lines) for lines in (rows, columns))
    yield _Source(rows, columns, np.where(once == 0, NO_PARTNER, ks))
    if rows[row] != row or columns[column] != column:  # the counts may belong to other lines
        yield _Source(rows, columns, ks)
    if spec.a_exponent is None:
        yield _Source(rows, columns, _partners(subject, rows, np.flatnonzero(there[:, column]), column))


def _lines_read(subject: RecordedCallable, k: int, of_a: bool) -> Ints:
    """Return the line of an operand that each element reads at this k, [M, N]; -1: none. The other operand is ones."""
    spec = subject.spec
    lines = spec.m if of_a else spec.n

    def query(digits: Ints) -> Floats:
        a, b = whole_zeros(spec)
        if of_a:
            a[:, k], b[:] = digits, 1
        else:
            a[:], b[:, k] = 1, digits
        return whole_product(subject, a, b)

    return _decoded(spec, query, np.arange(lines))


def _partners(subject: RecordedCallable, rows: Ints, usable: Ints, column: int) -> Ints:
    """Return the k of B that multiplies each k of A in a column of D, [K]; no partners if that takes too many calls.

    rows: the row of A that each row of D reads; usable: rows of D in one group. Each is probed with a 1 at one k of its row
    of A.
    """
    spec = subject.spec
    _, first = np.unique(rows[usable], return_index=True)
    usable, partner = usable[first], np.full(spec.k, NO_PARTNER)
    parts = -(-spec.k // len(usable))
    for ks in np.array_split(np.arange(spec.k), parts) if parts * (1 + len(_digits(spec, spec.k))) <= MAX_CALLS else ():
        own = usable[: len(ks)]

        def query(digits: Ints, own: Ints = own, ks: Ints = ks) -> Floats:
            a, b = whole_zeros(spec)
            a[rows[own], ks], b[:] = 1, digits
            return np.asarray(whole_product(subject, a, b)[own, column])

        partner[ks] = _decoded(spec, query, np.arange(spec.k))
    return partner


def _wrong_singles(subject: RecordedCallable, once: Ints) -> tuple[str, str]:
    """Return the k of single products, and the columns, if their result is not the element of B; empty if all are right."""
    spec = subject.spec
    ks = np.flatnonzero(once == 1)
    ks = ks[np.unique(np.linspace(0, len(ks) - 1, min(len(ks), MAX_CALLS * spec.m)).astype(np.int64))]
    rng = np.random.default_rng(len(ks))
    wrong = np.zeros((spec.k, spec.n), bool)
    for some in np.array_split(ks, -(-len(ks) // spec.m)):
        a, b = whole_zeros(spec)
        a[np.arange(len(some)), some] = 1
        b[:] = rng.integers(1, 2 if spec.b.bits == 1 else 5, b.shape)
        wrong[some] |= whole_product(subject, a, b)[: len(some)] != b[:, some].T
    if not wrong.any():
        return "", ""
    return f"at k = {ranges(np.flatnonzero(wrong.any(axis=1)))}", f"columns {ranges(np.flatnonzero(wrong.any(axis=0)))}"


def _digits(spec: Spec, numbers: int) -> list[int]:
    """Return the powers, up to `numbers`, of the largest base with digits that fit in all formats."""
    bits = (fmt.bits - fmt.signed if fmt.is_integer else fmt.mantissa_bits + 1 for fmt in (spec.a, spec.b, spec.out))
    base = 1 << min(MAX_DIGIT_BITS, *bits)
    powers = [1]
    while powers[-1] * base < numbers:
        powers.append(powers[-1] * base)
    return powers


def _decoded(spec: Spec, query: Callable[[Ints], Floats], numbers: Ints) -> Ints:
    """Return the line number that each result encodes, -1 if none. The lines carry the digits of their numbers."""
    found = np.zeros(1, np.int64)
    powers = _digits(spec, len(numbers))
    base = powers[1] if len(powers) > 1 else len(numbers)
    one = query(np.ones(len(numbers), np.int64)) == 1
    for power in powers:
        digit = query(numbers // power % base)
        one &= (digit >= 0) & (digit < base) & (digit == np.round(digit))
        found = found + np.where(one, digit, 0).astype(np.int64) * power
    return np.where(one & (found < len(numbers)), found, -1)


def whole_product(subject: RecordedCallable, a: Ints, b: Ints) -> NDArray[np.float64]:
    """Probe a product of whole numbers and return D [M, N]."""
    return subject.spec.out.values(subject.product(*whole_operands(subject.spec, a, b), keep=False))

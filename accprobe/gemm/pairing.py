"""Is a[i, k] multiplied by b[k, j], for every i, k and j? Sums of random whole numbers that any other product changes.

Few unlike rows and columns, dealt out at random to those of A and B, have sums that are exact whatever they are added in. Only
where some element differs is it determined which elements of A and B it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm import mistakes
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import WholeNumbers, layout_of, numbers_of, patterns, result, shift_of, zeros
from accprobe.gemm.mistakes import pruned
from accprobe.gemm.pairs import Ints
from accprobe.gemm.regions import Region, ranges, region_of
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits, Format

CALLS = 8
"""Random products of which every element is compared."""

MORE_CALLS = 24
"""Of which as many more are asked where one differs: which elements do is to be known of each."""

LEAST_TIMES = 2
"""Products in which an element differs: in one alone another fault may have been at work."""

UNLIKE = 64
"""Unlike rows, and columns, of a call."""

HELD, SURELY_HELD = 1 << 11, 1 << 8
"""Whole numbers that partial sums in f16, and in bf16, hold."""

DEVIATIONS = 8
"""Standard deviations of a sum of random terms that have to be held: more come in less than one of 10^14 sums."""

MEAN_SQUARES = {4: 7.5, 2: 2.5, 1: 1.0}
"""Of the whole numbers from 1 on."""

MOST_BITS = 8
"""Of the digits by which lines are recognised."""

MOST_MISPAIRED = 4
"""Groups of elements, each with a mistake of its own, that are looked into."""

MOST_CALLS = 256
"""Calls in which the partners of single k are determined at first; of a larger K they are of k at even distances."""

DEPENDS_ON_VALUES = "which products are added depends on the values of the operands"

There = NDArray[np.bool_]


@dataclass(frozen=True)
class Mispaired:
    """Elements in which the same other products are added. told: which."""

    region: Region
    there: There
    told: str


@dataclass(frozen=True)
class _Draw:
    """A product of whole numbers: row i of A is unlike_a[row_of[i]], column j of B unlike_b[column_of[j]]. d: its result."""

    unlike_a: WholeNumbers
    unlike_b: WholeNumbers
    row_of: Ints
    column_of: Ints
    d: Bits

    def sums(self, weights: Ints | None = None, source: _Source | None = None) -> WholeNumbers:
        """[rows, columns] of the unlike ones: the exact sums, of products that are counted so often, or of other pairs."""
        a, b = self.unlike_a, self.unlike_b
        if source is not None:
            some = source.partner != mistakes.NO_PARTNER
            a, b = a[:, some], b[:, source.partner[some]]
        elif weights is not None:
            a = a * weights
        return np.asarray(a @ b.T)


@dataclass(frozen=True)
class _Source:
    """Which row of A and which column of B a row and a column of D read, and which k of B each k of A is multiplied by."""

    row: Ints
    column: Ints
    partner: Ints

    def applies(self) -> There:
        """Elements of D that read something else than they should, [M, N]."""
        rows, columns, ks = (lines != np.arange(len(lines)) for lines in (self.row, self.column, self.partner))
        return np.asarray(rows[:, None] | columns | ks.any())

    def named(self, there: There) -> str:
        """What these elements of D read that is not their own."""
        rows, columns = (
            np.where(there.any(axis=1 - axis), lines, np.arange(len(lines)))
            for axis, lines in enumerate((self.row, self.column))
        )
        names = (
            mistakes.name_lines(columns, "column", "B"),
            mistakes.name_lines(rows, "row", "A"),
            mistakes.name_ks(self.partner),
        )
        return "; ".join(filter(None, names))


def mispaired(asked: RecordedCallable, known: Sequence[tuple[Region, Ints]]) -> list[Mispaired]:
    """Elements that add other products than a[i, k]·b[k, j]. known: how often regions count each k, the largest first."""
    spec = asked.spec
    if not any(_unlike(spec, draw, known).any() for draw in _draws(asked, HELD)):
        return []
    draws = list(_draws(asked, SURELY_HELD, MORE_CALLS))
    times = np.sum([_unlike(spec, draw, known) for draw in draws], axis=0)
    there = (times >= LEAST_TIMES) & _whole_numbers(asked, draws)
    return list(_named(asked, there, draws, known[0][1]))


def _draws(asked: RecordedCallable, held: int, more: int = 0) -> Iterator[_Draw]:
    """Random products whose partial sums are whole numbers up to `held`. Where each has but some k, several for all of K."""
    spec, layout, rng = asked.spec, layout_of(asked.spec), np.random.default_rng(held)
    held = held if spec.out.is_integer else min(held, int(spec.out.values(np.array([spec.out.largest], spec.out.dtype))[0]))
    fitting = [most for most, square in MEAN_SQUARES.items() if (DEVIATIONS * square) ** 2 * spec.k <= held**2]
    most = fitting[0] if fitting else 1
    terms = spec.k if fitting else max(1, int((held / DEVIATIONS) ** 2))
    for _ in range(more + CALLS * -(-spec.k // terms)):
        of_a, of_b = (_random_numbers(fmt, most, (min(lines, UNLIKE), spec.k), rng) for fmt, lines in _sides(spec))
        if terms < spec.k:
            kept = rng.permuted(np.broadcast_to(np.arange(spec.k) < terms, of_a.shape), axis=1)
            of_a, of_b = (of_a * kept, of_b) if spec.a_exponent is None else (of_a, of_b * kept[:1])
        if spec.a_exponent is not None:
            of_a[:] = 1
        row_of, column_of = (rng.permutation(np.arange(n) % min(n, UNLIKE)) for n in (spec.m, spec.n))
        a, b = layout.a(patterns(spec.a, of_a)), patterns(spec.b, of_b, shift_of(spec))
        yield _Draw(of_a, of_b, row_of, column_of, asked.product(a[row_of], b[column_of], keep=False))


def _sides(spec: Spec) -> tuple[tuple[Format, int], tuple[Format, int]]:
    return (spec.a, spec.m), (spec.b, spec.n)


def _random_numbers(fmt: Format, most: int, shape: tuple[int, int], rng: np.random.Generator) -> WholeNumbers:
    top = min(most, fmt.largest) if fmt.is_integer else most
    signs = rng.choice([-1, 1], shape) if fmt.signed else 1
    return np.asarray(rng.integers(1, top + 1, shape) * signs, np.float64)


def _unlike(spec: Spec, draw: _Draw, known: Sequence[tuple[Region, Ints]]) -> There:
    """Elements that are not the sum of the products that their region counts, [M, N]."""
    unlike = _differ(spec.out, draw.sums(known[0][1]), draw.row_of, draw.column_of, draw.d)
    for region, once in known[1:]:
        rows, columns = region.rows, region.columns
        d = draw.d[np.ix_(rows, columns)]
        unlike[np.ix_(rows, columns)] = _differ(spec.out, draw.sums(once), draw.row_of[rows], draw.column_of[columns], d)
    return unlike


def _differ(out: Format, sums: WholeNumbers, rows: Ints, columns: Ints, d: Bits) -> There:
    """Elements d that are not the exact sums, nor a neighbour in the format of one that it does not hold. Most are the sum."""
    differ = np.asarray(_encoded(out, sums)[np.ix_(rows, columns)] != d)
    if not differ.any():
        return differ
    i, j = np.nonzero(differ)
    exact, got = sums[rows[i], columns[j]], numbers_of(out, d[i, j])
    differ[i, j] = ~(abs(got - exact) < _step(out, exact))
    return differ


def _encoded(out: Format, sums: WholeNumbers) -> Bits:
    if out.is_integer:
        return sums.astype(np.int64).astype(out.dtype)
    assert out.ml_dtype is not None
    with np.errstate(over="ignore"):
        return sums.astype(out.ml_dtype).view(out.dtype)


def _step(out: Format, exact: WholeNumbers) -> WholeNumbers:
    """What two neighbours in the format are apart where it does not hold the sum; else so little that only the sum is near."""
    if out.is_integer:
        return np.full(exact.shape, 0.5)
    step = np.exp2(np.frexp(exact)[1] - 1.0 - out.mantissa_bits)
    return np.where(exact % step == 0, 0.5 * np.minimum(step, 1), step)


def _whole_numbers(asked: RecordedCallable, draws: Sequence[_Draw]) -> There:
    """Elements that are whole numbers in each draw, and zero where B is: others are no sums of these products at all."""
    spec = asked.spec
    a, b = layout_of(spec).blank()
    whole = numbers_of(spec.out, asked.product(a, b, keep=False)) == 0
    for draw in draws:
        values = numbers_of(spec.out, draw.d)
        whole &= values == np.round(values)
    return np.asarray(whole)


def _named(asked: RecordedCallable, there: There, draws: Sequence[_Draw], once: Ints) -> Iterator[Mispaired]:
    """Groups of the elements, with what each reads."""
    for _ in range(MOST_MISPAIRED):
        if not there.any():
            return
        group = _first_group(asked, there, draws, once)
        if group is not None:
            yield group
        there = there & ~(there if group is None else group.there)


def _first_group(asked: RecordedCallable, there: There, draws: Sequence[_Draw], once: Ints) -> Mispaired | None:
    """The first of the elements and all that read their operands alike; None where single products are those that they should
    be: it is their sum that is wrong.
    """
    row, column = map(int, np.argwhere(there)[0])
    for source in _possible_sources(asked, there, row, column, once):
        explained = _explained(asked.spec.out, draws, source)
        if explained[row, column]:
            differ = there & explained
            explained &= source.applies() & np.outer(differ.any(axis=1), differ.any(axis=0))
            return _group(differ | explained, source.named(differ) or DEPENDS_ON_VALUES)
    if asked.spec.a_exponent is not None:
        return None
    told = pruned(asked, there)
    if told or (source.partner[once == 0] != mistakes.NO_PARTNER).any():
        return _group(there, told or DEPENDS_ON_VALUES)
    ks, columns = _wrong_singles(asked, once)
    return _group(there, f"other products than a[i, k]·b[k, j] are added: {ks}, {columns}") if ks else None


def _group(there: There, told: str) -> Mispaired:
    return Mispaired(region_of(there, int(there.sum())), there, told)


def _explained(out: Format, draws: Sequence[_Draw], source: _Source) -> There:
    """Elements that are the sum of these products in each draw, [M, N]."""
    explained: There = np.ones(draws[0].d.shape, bool)
    for draw in draws:
        sums = draw.sums(source=source)
        explained &= ~_differ(out, sums, draw.row_of[source.row], draw.column_of[source.column], draw.d)
    return explained


def _possible_sources(asked: RecordedCallable, there: There, row: int, column: int, once: Ints) -> Iterator[_Source]:
    """What an element, and those like it, may read: other rows and columns of the k that are counted, then other k as well."""
    spec, ks = asked.spec, np.arange(asked.spec.k)
    counted = int(np.argmax(once == 1))
    rows, columns = np.arange(spec.m), _lines_read(asked, counted, of_a=False)[row]
    if spec.a_exponent is None:
        rows = _lines_read(asked, counted, of_a=True)[:, column]
    rows, columns = (np.where(lines < 0, np.arange(len(lines)), lines) for lines in (rows, columns))
    yield _Source(rows, columns, np.where(once == 0, mistakes.NO_PARTNER, ks))
    if spec.a_exponent is None:
        yield _Source(rows, columns, _partners(asked, rows, np.flatnonzero(there[:, column]), column))


def _lines_read(asked: RecordedCallable, k: int, of_a: bool) -> Ints:
    """The line of an operand that each element reads at this k where the other operand is ones, [M, N]; -1 where it is none."""
    spec = asked.spec
    lines = spec.m if of_a else spec.n

    def answer(digits: Ints) -> WholeNumbers:
        a, b = zeros(spec)
        if of_a:
            a[:, k], b[:] = digits, 1
        else:
            a[:], b[:, k] = 1, digits
        return result(asked, a, b)

    return _decoded(spec, answer, np.arange(lines))


def _partners(asked: RecordedCallable, rows: Ints, usable: Ints, column: int) -> Ints:
    """The k of B that each k of A is multiplied by in a column of D, [K].

    rows: the row of A that each row of D reads; usable: rows of D that are alike. Of a large K some k are determined, and k
    between two that are unlike; others are taken to be as far from their partners as the one before.
    """
    spec = asked.spec
    _, first = np.unique(rows[usable], return_index=True)
    usable = usable[first]
    most = max(2, MOST_CALLS // (1 + len(_digits(spec, spec.k)))) * len(usable)
    ks = np.unique(np.linspace(0, spec.k - 1, min(spec.k, most)).astype(np.int64))
    partner = np.full(spec.k, mistakes.NO_PARTNER)
    known = np.zeros(spec.k, bool)
    for _ in range(spec.k.bit_length()):
        for some in np.array_split(ks, -(-len(ks) // len(usable))):
            partner[some] = _partners_of(asked, some, rows, usable[: len(some)], column)
        known[ks] = True
        ks = np.flatnonzero(known)
        offset = np.where(partner[ks] < 0, spec.k, partner[ks] - ks)
        apart = np.flatnonzero((np.diff(offset) != 0) & (np.diff(ks) > 1))[:most]
        if not len(apart):
            break
        ks = (ks[apart] + ks[apart + 1]) // 2
    ks = np.flatnonzero(known)
    before = ks[np.searchsorted(ks, np.arange(spec.k), side="right") - 1]
    found = np.where(partner[before] < 0, mistakes.NO_PARTNER, partner[before] - before + np.arange(spec.k))
    return np.where((found >= spec.k) | (found < 0), mistakes.NO_PARTNER, found)


def _partners_of(asked: RecordedCallable, ks: Ints, rows: Ints, of_d: Ints, column: int) -> Ints:
    """The same of as many k as there are rows of D: each reads a row of A that has a 1 at one k alone."""

    def answer(digits: Ints) -> WholeNumbers:
        a, b = zeros(asked.spec)
        a[rows[of_d], ks], b[:] = 1, digits
        return np.asarray(result(asked, a, b)[of_d, column])

    return _decoded(asked.spec, answer, np.arange(asked.spec.k))


def _wrong_singles(asked: RecordedCallable, once: Ints) -> tuple[str, str]:
    """The k of single ones in rows of A, and the columns, where something else comes out than stands in B; "": none."""
    spec = asked.spec
    ks = np.flatnonzero(once == 1)
    ks = ks[np.unique(np.linspace(0, len(ks) - 1, min(len(ks), MOST_CALLS * spec.m)).astype(np.int64))]
    rng = np.random.default_rng(len(ks))
    wrong = np.zeros((spec.k, spec.n), bool)
    for some in np.array_split(ks, -(-len(ks) // spec.m)):
        a, b = zeros(spec)
        a[np.arange(len(some)), some] = 1
        b[:] = rng.integers(1, 2 if spec.b.bits == 1 else 5, b.shape)
        wrong[some] |= result(asked, a, b)[: len(some)] != b[:, some].T
    if not wrong.any():
        return "", ""
    return f"at k = {ranges(np.flatnonzero(wrong.any(axis=1)))}", f"columns {ranges(np.flatnonzero(wrong.any(axis=0)))}"


def _digits(spec: Spec, numbers: int) -> list[int]:
    """What numbers below `numbers` are divided by for their digits, of which the formats hold each."""
    bits = (fmt.bits - fmt.signed if fmt.is_integer else fmt.mantissa_bits + 1 for fmt in (spec.a, spec.b, spec.out))
    base = 1 << min(MOST_BITS, *bits)
    powers = [1]
    while powers[-1] * base < numbers:
        powers.append(powers[-1] * base)
    return powers


def _decoded(spec: Spec, answer: Callable[[Ints], WholeNumbers], numbers: Ints) -> Ints:
    """The one of some numbers of lines that a result shows, where lines hold digits of theirs; -1 where it shows not one."""
    found = np.zeros(1, np.int64)
    powers = _digits(spec, len(numbers))
    base = powers[1] if len(powers) > 1 else len(numbers)
    one = answer(np.ones(len(numbers), np.int64)) == 1
    for power in powers:
        digit = answer(numbers // power % base)
        one &= (digit >= 0) & (digit < base) & (digit == np.round(digit))
        found = found + np.where(one, digit, 0).astype(np.int64) * power
    return np.where(one & (found < len(numbers)), found, -1)

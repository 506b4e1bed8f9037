"""Codes of the `events` of many dot products at once.

An event of an inner sum counts where no later sum adds anything: only then does it reach the result.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import ABSENT, NOTHING, leading
from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.rounding import bit_length, encode_wide
from accprobe.evaluate.terms import CachedTerms
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.verify.coverage.events import (
    BANDS,
    CANCEL_AT,
    CANCEL_EXPONENT,
    EXTREMES,
    NARROW_BANDS,
    ODD,
    ODD_TERMS,
    Key,
    bands,
    shown_carries,
    steps,
)
from accprobe.verify.coverage.operand_classes import OPERAND_CLASSES, SCALE_CLASSES, classes_of, classes_of_scales, magnitudes
from accprobe.verify.coverage.ranges import SumRange, largest_of, lead_of, sum_ranges
from accprobe.verify.coverage.scaled_groups import groups_seen
from accprobe.verify.coverage.sums import Sums

EventCodes = NDArray[np.integer]

# A family, dot products, and the code that each of them has; one may have several, and -1 says none.
Seen = Iterator[tuple[Key, EventCodes, EventCodes]]

NEAR_BITS = 6  # Where nothing is cut, a sum is near half a unit where it lies within a unit shifted down by so many bits.


class Trace:
    """The events of one model."""

    def __init__(self, inst: Instruction, model: DotModel) -> None:
        self.inst, self.model = inst, model
        self._nodes = list(model.root.nodes())
        self._bounds = sum_ranges(inst, model)

    def of(self, request: Request, only: int | None = None) -> Seen:
        """All that these dot products do, or what one sum does, -1: what their operands are."""
        with np.errstate(all="ignore"):
            if only in (None, -1):
                yield from _of_operands(self.inst, request)
                yield from _of_scales(self.inst, request)
            outside = self._outside(request) if len(self._nodes) > 1 else []
            for i, (node, bound) in enumerate(zip(self._nodes, self._bounds, strict=True)):
                if only not in (None, i):
                    continue
                if node is self.model.root:
                    rows, some = np.arange(len(request)), request
                else:
                    rows = np.flatnonzero(outside[i])
                    some = request[rows]
                if len(rows):
                    sums = Sums(self.inst, self.model, node, some)
                    for name, where, codes in (*_SumEvents(sums, bound).events(), *groups_seen(self.inst, node, sums, some)):
                        yield (i, name), rows[where], codes

    def _outside(self, request: Request) -> list[Truths]:
        """Of each sum, whether all leaves that are not below it are zero."""
        a, b = ((fmt, magnitudes(fmt, x)) for fmt, x in ((self.inst.a, request.a), (self.inst.b, request.b)))
        zero = (a[1] == 0) & (b[1] <= b[0].largest) | (b[1] == 0) & (a[1] <= a[0].largest)
        if self.inst.scale is not None:
            zero = CachedTerms(self.inst, request).products(tuple(range(self.inst.k)), self.model.subnormal_operands)[0].T == 0
        no_c = magnitudes(self.inst.c, request.c) == 0
        found = []
        for node in self._nodes:
            ks = [k for inner in node.nodes() for k in inner.products]
            alone = np.delete(zero, ks, axis=1).all(axis=1)
            found.append(alone if any(inner.has_addend for inner in node.nodes()) else alone & no_c)
        return found


def _of_operands(inst: Instruction, request: Request) -> Seen:
    a, b, c = (classes_of(fmt, x) for fmt, x in zip((inst.a, inst.b, inst.c), (request.a, request.b, request.c), strict=True))
    every = np.arange(len(request))
    wide = np.broadcast_to(every[:, None], a.shape)
    kinds = len(OPERAND_CLASSES)
    yield (-1, "classes"), wide, ((c[:, None] * kinds + a) * kinds + b).astype(np.int16)
    subnormal, infinity, nan = (OPERAND_CLASSES.index(word) for word in ("subnormal", "infinity", "NaN"))
    by_letter = (a, b, c[:, None])
    has = [[(x == kind).any(axis=1) for x in by_letter] for kind in (subnormal, infinity)]
    for i, (fmt, x, kind) in enumerate(
        zip((inst.a, inst.b, inst.c), (request.a, request.b, request.c), by_letter, strict=True)
    ):
        negative = (x & fmt.dtype.type(fmt.sign_bit) != 0).reshape(kind.shape)
        for sign in (0, 1):
            rows = np.flatnonzero(((kind == nan) & (negative == sign)).any(axis=1))
            yield (-1, "NaN"), rows, np.full(len(rows), 2 * i + sign)
        for j in range(3):
            if has[1][j].any():
                rows = np.flatnonzero(has[0][i] & has[1][j])
                yield (-1, "beside infinity"), rows, np.full(len(rows), 3 * i + j)
    largest = OPERAND_CLASSES.index("largest")
    rows = np.flatnonzero((a[:, 0] == largest) & (b[:, 0] == largest))
    rows = rows[(a[rows] == largest).all(axis=1) & (b[rows] == largest).all(axis=1)]
    if len(rows):
        signs = np.signbit(inst.a.values(request.a[rows])) ^ np.signbit(inst.b.values(request.b[rows]))
        size = min(lead_of(largest_of(inst.a) * largest_of(inst.b)), inst.c.max_exponent)
        addend = inst.c.values(request.c[rows])
        of_size = leading(np.where(np.isfinite(addend), addend, 0.0)) == size
        one_sign = (signs == np.signbit(addend)[:, None]).all(axis=1)
        both = signs.any(axis=1) & ~signs.all(axis=1)
        codes = np.where(one_sign, signs[:, 0], np.where(both, 2, -1))
        yield (-1, "extremes"), rows, np.where(of_size, codes, -1)


class _SumEvents:
    """The codes of one sum."""

    def __init__(self, sums: Sums, bound: SumRange) -> None:
        self._sums, self._bound, self._x = sums, bound, sums.arithmetic
        self._every = np.arange(len(sums.finite))
        total = sums.total
        self._top = np.where(total.magnitude == 0, NOTHING, total.exponent + bit_length(total.magnitude) - 1)
        self._sign = total.negative.astype(np.int64)
        self._carry = self._top - sums.lead
        self._sums_something = sums.finite & (total.magnitude != 0)
        self._rounded = self._rounding()

    def events(self) -> Iterator[tuple[str, EventCodes, EventCodes]]:
        """Of each family, dot products and their codes."""
        yield from self._shifts()
        yield from self._sizes()
        yield from self._outcome()
        yield "zeros", *self._zeros()
        yield "special", *self._specials()
        if self._sums.cuts:
            yield from self._cuts()
        if self._bound.floor is not None:
            yield from self._floor(self._bound.floor)
        yield from self._pairs()

    def _where(self, which: Truths, codes: EventCodes | int = 0) -> tuple[EventCodes, EventCodes]:
        """Those dot products, with their codes."""
        rows = np.flatnonzero(which)
        return rows, np.full(len(rows), codes) if isinstance(codes, int) else codes[rows]

    def _shifts(self) -> Iterator[tuple[str, EventCodes, EventCodes]]:
        table = np.array(steps(self._x, 0).codes, np.int16)
        for role, terms in self._sums.terms.items():
            apart = np.minimum(self._sums.aligned_to - terms.exponents, np.int16(len(table) - 1))
            codes = np.where(terms.exponents > ABSENT, table[apart], np.int16(-1))
            yield f"shift {role}", np.broadcast_to(self._every, codes.shape), codes

    def _sizes(self) -> Iterator[tuple[str, EventCodes, EventCodes]]:
        sums, carry = self._sums, self._carry
        most = (2 * self._bound.terms - 1).bit_length() - 1  # Bits of tiny terms that are rounded up can lie higher.
        yield "carry", *self._where(self._sums_something & (carry >= 0) & (carry <= most), 2 * carry + self._sign)
        table = np.array(steps(self._x, 1).codes)
        codes = table[np.clip(-carry, 0, len(table) - 1)]
        deepest = self._x.alignment_bits or 1 << 20
        yield "cancel", *self._where(self._sums_something & (carry < 0) & (-carry <= deepest), codes)
        several = sum(sums.nonzero(role).sum(axis=0) for role in sums.terms) > 1
        top = {role: terms.exponents == sums.largest for role, terms in sums.terms.items()}
        count = {role: x.sum(axis=0) for role, x in top.items()}
        tops = np.asarray(sum(count.values()))
        some = sums.finite & sums.some & several
        of_c, of_inner = (count.get(role, 0 * tops) > 0 for role in ("C", "inner sum"))
        code = np.full(len(tops), -1)
        if "product" in top:
            products = top["product"]
            code[(tops == 1) & products.any(axis=0)] = 4
            code[(tops == 1) & products[-1]] = 3 if len(products) > 1 else 2
            code[(tops == 1) & products[0]] = 2
            yield "largest", *self._where(some & (count["product"] > 1), 5)
        code[(tops == 1) & of_inner], code[(tops == 1) & of_c] = 1, 0
        yield "largest", *self._where(some, code)
        yield "largest", *self._where(some & (tops > 1) & of_c, 6)
        yield "largest", *self._where(some & (tops > 1) & of_inner, 7)
        yield CANCEL_AT, *self._cancelled(some & (tops > 1), BANDS)
        yield CANCEL_EXPONENT, *self._cancelled(some & (tops > 1), NARROW_BANDS)
        negative = [np.signbit(terms.values) for terms in sums.terms.values()]
        all_top = sums.finite & sums.some & (tops == self._bound.terms)
        for sign in (0, 1):
            one_sign = np.logical_and.reduce([(x == sign).all(axis=0) for x in negative])
            yield "dense", *self._where(all_top & one_sign, sign)

    def _cancelled(self, where: Truths, most: int) -> tuple[EventCodes, EventCodes]:
        """Of those dot products, the sums that are smaller than their largest terms, by the band of the exponent of these."""
        shared = self._bound.cancelling
        at = self._sums.largest.astype(np.int64) - shared.start
        less = (self._sums.total.magnitude == 0) | (self._carry < 0)
        starts = np.array([band.start for band in bands(len(shared), most)])
        return self._where(where & less & (at >= 0) & (at < len(shared)), np.searchsorted(starts, at, side="right") - 1)

    def _rounding(self) -> EventCodes:
        """Bits below the result's last: exact, below half, half beside an even bit or an odd one, above; and near half."""
        total, x = self._sums.total, self._x
        base = np.maximum(self._top, x.result.min_exponent)
        drop = np.clip(base - x.result_bits - total.exponent, 0, 62)
        self._kept = total.magnitude >> drop << np.clip(total.exponent - base + x.result_bits, 0, 62)
        rest, half = total.magnitude & ((np.int64(1) << drop) - 1), np.int64(1) << np.maximum(drop - 1, 0)
        near = np.int64(1) << np.maximum(drop - NEAR_BITS, 0) if x.alignment_bits is None else half * 0 + 2
        self._near = np.where(np.abs(rest - half) < near, np.sign(rest - half), 0) * (rest != 0)
        odd = self._kept & 1
        return np.where(rest == 0, 0, np.where(rest < half, 1, np.where(rest > half, 4, 2 + odd)))

    def _outcome(self) -> Iterator[tuple[str, EventCodes, EventCodes]]:
        fmt, sign, code = self._x.result, self._sign, self._rounded
        normal = self._sums_something & (self._top >= fmt.min_exponent) & (self._top <= fmt.max_exponent)
        self._normal = normal
        yield "rounded", *self._where(normal, 2 * code + sign)
        yield "near half", *self._where(normal & (self._near != 0), (self._near > 0) * 2 + sign)
        full = (1 << (self._x.result_bits + 1)) - 1
        up = {
            "RNE": (code == 4) | (code == 3),
            "RU": (code > 0) & (sign == 0),
            "RD": (code > 0) & (sign == 1),
        }.get(self._x.result_rounding, np.zeros(len(code), bool))
        yield "carried", *self._where(normal & (self._kept == full) & up, sign)
        which = np.array((0, 1, 2, 2, 3))[code]
        largest = normal & (self._top == fmt.max_exponent) & (self._kept == full)
        yield "over", *self._where(largest, 2 * which + sign)
        yield "over", *self._where(self._sums_something & (self._top > fmt.max_exponent), 8 + sign)
        smallest = normal & (self._top == fmt.min_exponent) & (self._kept == 1 << self._x.result_bits) & (code == 0)
        yield "under", *self._where(smallest, sign)
        yield "under", *self._where(self._sums_something & (self._top < fmt.min_exponent), 2 * self._subnormal() + sign)

    def _subnormal(self) -> EventCodes:
        """Places in UNDER of sums below the normal numbers."""
        kept, code = self._kept, self._rounded
        last = (1 << self._x.result_bits) - 1
        between = np.where(code == 0, 5, 6)
        between = np.where(kept == 1, np.where(code == 0, 7, 6), between)
        between = np.where(kept == last, np.array((4, 3, 2, 2, 1))[code], between)
        return np.where(kept == 0, np.array((5, 10, 9, 9, 8))[code], between)

    def _zeros(self) -> tuple[EventCodes, EventCodes]:
        sums = self._sums
        nothing = sums.finite & ~sums.some
        negative = [np.signbit(terms.values) for terms in sums.terms.values()]
        every = np.logical_and.reduce([x.all(axis=0) for x in negative])
        none = np.logical_and.reduce([~x.any(axis=0) for x in negative])
        cancelled = sums.finite & sums.some & (sums.total.magnitude == 0)
        for cut in sums.cuts.values():
            cancelled &= ~cut.lost.any(axis=0)
        return self._where(nothing | cancelled, np.where(cancelled, 3, np.where(none, 0, np.where(every, 1, 2))))

    def _specials(self) -> tuple[EventCodes, EventCodes]:
        values = [terms.values for terms in self._sums.terms.values()]
        nan = np.logical_or.reduce([np.isnan(x).any(axis=0) for x in values])
        plus, minus = (np.logical_or.reduce([(x == end).any(axis=0) for x in values]) for end in (np.inf, -np.inf))
        return self._where(~self._sums.finite, np.where(nan, 3, np.where(plus & minus, 2, minus.astype(np.int64))))

    def _cuts(self) -> Iterator[tuple[str, EventCodes, EventCodes]]:
        sums = self._sums
        fine = sums.finite & sums.some
        yield ODD_TERMS, *self._odd_terms()
        lost = {}
        for role, cut in sums.cuts.items():
            lost[role] = cut.lost & (sums.terms[role].exponents < sums.aligned_to)
            if role != "product":
                yield f"cut {role}", *self._where(fine & lost[role].any(axis=0))
                continue
            n, count, odd = len(cut.lost), lost[role].sum(axis=0), cut.odd.sum(axis=0)
            yield "cut products", *self._where(fine, _cut_codes(n)[count])
            for code, (low, high) in enumerate(ODD):
                yield "odd", *self._where(fine & (low <= odd) & (odd <= high), code)
            yield "odd", *self._where(fine & (odd == n), len(ODD))
        self._lost_signs = [
            np.logical_or.reduce(
                [(lost[role] & (np.signbit(terms.values) == bool(sign))).any(axis=0) for role, terms in sums.terms.items()]
            )
            for sign in (0, 1)
        ]
        plus, minus = self._lost_signs
        zero = fine & (sums.total.magnitude == 0) & (plus | minus)
        yield "lost zeros", *self._where(zero, np.where(plus & minus, 2, minus.astype(np.int64)))
        short = np.array((0, 1, 2, 2, 3))[self._rounded]
        yield "cut rounded", *self._where(self._normal & plus & minus, short)
        own = np.where(self._sign == 1, minus, plus)
        against = np.where(self._sign == 1, plus, minus)
        yield "cut against", *self._where(self._sums_something & own, 0)
        yield "cut against", *self._where(self._sums_something & against, 1)

    def _odd_terms(self) -> tuple[EventCodes, EventCodes]:
        """Numbers of terms with the last kept bit set, where the result would be another if their carry were lost: two less."""
        sums, total = self._sums, self._sums.total
        positive, negative = (
            np.sum(
                [(cut.odd & (np.signbit(sums.terms[role].values) == sign)).sum(axis=0) for role, cut in sums.cuts.items()],
                axis=0,
            )
            for sign in (False, True)
        )
        count = positive + negative
        rows = np.flatnonzero(sums.finite & sums.some & (count <= self._bound.most_odd))
        minus, magnitude, exponent = total.negative[rows], total.magnitude[rows], total.exponent[rows]
        less = np.where(minus, -magnitude, magnitude) - 2
        shown = encode_wide(minus, magnitude, exponent, self._x) != encode_wide(less < 0, np.abs(less), exponent, self._x)
        signs = np.where(negative == 0, 0, np.where(positive == 0, 1, 2))
        return rows[shown], (len(EXTREMES) * count + signs)[rows[shown]]

    def _floor(self, floor: int) -> Iterator[tuple[str, EventCodes, EventCodes]]:
        sums = self._sums
        some = sums.finite & sums.some
        above = sums.largest.astype(np.int64) - floor
        yield "floor", *self._where(some & (above <= 1), np.minimum(1 - above, 3))
        below = some & (above < 0) & (sums.aligned_to == floor)
        for sign in (0, 1):
            yield "floor lost", *self._where(below & self._lost_signs[sign], sign)
        if "C" in sums.terms:
            exponents = sums.terms["C"].exponents[0]
            subnormal = sums.terms["C"].leads[0] < exponents
            yield "subnormal C", *self._where(some & subnormal & (exponents == sums.largest) & (exponents <= floor))

    def _pairs(self) -> Iterator[tuple[str, EventCodes, EventCodes]]:
        sums, short = self._sums, np.array((0, 1, 2, 2, 3))[self._rounded]
        for place, carry in enumerate(shown_carries(self._bound)):
            yield "carry rounded", *self._where(self._normal & (self._carry == carry), 8 * place + 2 * short + self._sign)
        beyond = self._sums_something & (sums.lead > self._x.result.max_exponent) & (self._top <= self._x.result.max_exponent)
        yield "beyond", *self._where(beyond, self._sign)
        if "C" in sums.terms and self._bound.terms > 1:
            first = sums.finite & sums.some & (sums.terms["C"].exponents[0] == sums.largest)
            deep = (self._x.alignment_bits or self._x.result_bits) // 2
            nothing = sums.total.magnitude == 0
            yield "C cancelled", *self._where(first & ~nothing & (self._carry < 0), (-self._carry >= deep).astype(np.int64))
            yield "C cancelled", *self._where(first & nothing, 2)


def _of_scales(inst: Instruction, request: Request) -> Seen:
    """Classes of the two scales of a block, which count where that block alone has products that are not zero."""
    if inst.scale is None or inst.scale_block is None or request.scales_a is None or request.scales_b is None:
        return
    kinds, operands = len(SCALE_CLASSES), len(OPERAND_CLASSES)
    scales = [classes_of_scales(inst.scale, x) for x in (request.scales_a, request.scales_b)]
    a, b, c = (classes_of(fmt, x) for fmt, x in zip((inst.a, inst.b, inst.c), (request.a, request.b, request.c), strict=True))
    idle = ((a == 0) & (b < operands - 2) | (b == 0) & (a < operands - 2)).reshape(len(a), -1, inst.scale_block).all(axis=2)
    quiet = idle & (scales[0] < kinds - 1) & (scales[1] < kinds - 1)
    for block in range(idle.shape[1]):
        alone = np.flatnonzero(np.delete(quiet, block, axis=1).all(axis=1) & ~idle[:, block])
        x, y = (of[alone, block] for of in scales)
        without_c = np.flatnonzero(c[alone] == 0)
        yield (-1, "scales"), alone[without_c], ((block * kinds + x) * kinds + y)[without_c]
        ks = slice(block * inst.scale_block, (block + 1) * inst.scale_block)
        for own, of_scale in enumerate((x, y)):
            start = (own * kinds + of_scale) * operands
            for letter, classes in (("A", a[alone, ks]), ("B", b[alone, ks])):
                codes = (start[:, None] + classes)[without_c]
                yield (-1, f"scale beside {letter}"), np.broadcast_to(alone[without_c, None], codes.shape), codes
            yield (-1, "scale beside C"), alone, start + c[alone]


def _cut_codes(n: int) -> EventCodes:
    """Of 0 to n products that are cut."""
    codes = np.minimum(np.arange(n + 1), 3)
    codes[n - 1] = 4 if n > 1 else 0
    codes[n] = 5
    return codes

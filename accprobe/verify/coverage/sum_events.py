"""Events of one floating-point sum: of its terms, its alignment and its rounding."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np

from accprobe.evaluate.decoding import ABSENT, NOTHING
from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.rounding import bit_length, encode
from accprobe.model.tree import FloatArithmetic
from accprobe.verify.coverage.events import EXTREMES, CodeArrays, EventCodes, EventNames, SumRange, TermRole, signed
from accprobe.verify.coverage.sums import Sums

ROUNDED = ("exact", "below half", "half beside an even bit", "half beside an odd bit", "above half")
ROUNDED_SHORT = ("exact", "below half", "half", "above half")
SHORT = np.array((0, 1, 2, 2, 3))  # ROUNDED -> ROUNDED_SHORT.
LARGEST_TERMS = (
    "C alone",
    "an inner sum alone",
    "the first product alone",
    "the last product alone",
    "a middle product alone",
    "several products",
    "several, C among them",
    "several, inner sums among them",
)
ZEROS = ("zeros of +", "zeros of -", "zeros of both signs", "exact cancellation")
LOST = ("positive terms truncated away", "negative terms truncated away", "terms of both signs truncated away")
LOSSY_PRODUCTS = ("no product", "1 product", "2 products", "several products", "all products but one", "every product")
ABOVE = ("one above", "at", "one below", "far below")
LARGEST_NUMBER = (
    "the largest number",
    "less than half a unit above the largest number",
    "half a unit above the largest number",
    "more than half a unit above the largest number",
    "beyond the largest exponent",
)
SMALLEST_NUMBERS = (
    "the smallest normal number",
    "below the smallest normal number, above half a unit",
    "half a unit below the smallest normal number",
    "above the largest subnormal number, below half a unit",
    "the largest subnormal number",
    "a subnormal number",
    "between subnormal numbers",
    "the smallest subnormal number",
    "below the smallest subnormal number, above half of it",
    "half of the smallest subnormal number",
    "below half of the smallest subnormal number",
)
# ROUNDED -> SMALLEST_NUMBERS, about the largest subnormal number, and below the smallest.
ABOUT_LARGEST_SUBNORMAL, BELOW_SMALLEST = np.array((4, 3, 2, 2, 1)), np.array((5, 10, 9, 9, 8))
SPECIAL = ("an infinity, positive", "an infinity, negative", "infinities of both signs", "a NaN")
ODD = ((2, 2), (3, 3), (4, 7), (8, 15), (16, 31), (32, 1 << 30))  # Products with the last kept bit set: from, to.
CANCELLED = ("a little", "by half of its bits", "to nothing")

BANDS, NARROW_BANDS = 16, 128  # Bands of exponents, at most; the search keeps operands for narrow ones too.
NEAR_BITS = 6  # Near half a unit, for sums without truncation: within a unit shifted down by so many bits.


def steps(arithmetic: FloatArithmetic, first: int) -> list[int]:
    """Return the numbers of bits at which steps begin. The last step is open.

    Each number down to two below the last kept bit; without truncation, each about the result's last bit, few above.
    """
    bits = arithmetic.alignment_bits
    if bits is not None:
        return list(range(first, bits + 4))
    limit = arithmetic.result_bits + 2
    tail = max(4, limit - 4)
    return [x for x in (0, 1, 2, 3, 4, 8, 16, 32, 64) if first <= x < tail] + list(range(tail, limit + 2))


def _step_words(starts: list[int]) -> list[str]:
    words = [str(low) if low == end - 1 else f"{low}-{end - 1}" for low, end in pairwise(starts)]
    return [*words, f"more than {starts[-1] - 1}"]


def bands(count: int, most: int) -> list[int]:
    """Return where parts of about one size begin, at most `most` of so many numbers."""
    parts = min(most, count)
    return [count * i // parts for i in range(parts)]


def sum_families(bound: SumRange) -> dict[str, EventNames]:
    x, several = bound.arithmetic, bound.terms > 1
    products = bound.roles["product"].count if "product" in bound.roles else 0
    has_c, has_inner = "C" in bound.roles, "inner sum" in bound.roles
    present = (has_c, has_inner, products > 0, products > 1, products > 2, products > 1, has_c, has_inner)
    crossed = product(bound.shown_carries, ROUNDED_SHORT)
    found = {f"shift {role}": _shifts(bound, role) for role in bound.roles}
    found |= {
        "carry": signed(f"carry {bits} bits" for bits in range(bound.most_carry + 1)),
        "cancel": tuple(f"cancelled {word} bits" for word in _step_words(steps(x, 1))[: x.alignment_bits]),
        "cancel at": tuple(f"the largest terms, of {band}, cancelled" for band in _band_names(bound.cancelling)),
        "cancel at narrow": ("",) * NARROW_BANDS,
        "largest": tuple(f"the largest term: {x}" * (several and y) for x, y in zip(LARGEST_TERMS, present, strict=True)),
        "dense": signed(["every term at one exponent"]),
        "zeros": tuple(f"a sum of zero, {word}" for word in ZEROS),
        "rounded": signed(f"rounded, {word}" for word in ROUNDED),
        "near half": signed(["rounded, just below half", "rounded, just above half"]),
        "carried": signed(["rounded up to the next power of two"]),
        "over": signed(LARGEST_NUMBER),
        "under": signed(SMALLEST_NUMBERS),
        "special": SPECIAL,
        "carry rounded": signed(f"carry {carry} bits, {word}" for carry, word in crossed),
        "beyond": signed(["a term beyond the largest exponent, the sum within"]),
    }
    if x.alignment_bits is not None:
        found |= _of_alignment(bound, products)
    if has_c and several:
        found["C cancelled"] = tuple(f"C the largest term, cancelled {word}" for word in CANCELLED)
    if bound.floor is not None:
        found["floor"] = tuple(f"the largest term {word} the lowest alignment" for word in ABOVE)
        found["floor lost"] = signed(["bits lost below the lowest alignment"])
        found["subnormal C"] = ("a subnormal C the largest term, aligned to the floor",) * (has_c and several)
    return found


def _of_alignment(bound: SumRange, products: int) -> dict[str, EventNames]:
    """Return events of terms that lose bits, and of terms with the last kept bit set."""
    found: dict[str, EventNames] = {f"truncated {role}": (f"{role} truncated",) for role in bound.roles if role != "product"}
    if products:
        present = (True, products > 2, products > 3, products > 4, products > 1, True)
        found["truncated products"] = tuple(f"{x} truncated" * y for x, y in zip(LOSSY_PRODUCTS, present, strict=True))
        words = [f"{low if low == high else f'{low} or more'} products" * (low <= products) for low, high in ODD]
        found["odd"] = tuple(f"{word} with the last kept bit set" * bool(word) for word in (*words, "every product"))
    found["lost zeros"] = tuple(f"a sum of zero, {word}" for word in LOST)
    found["odd terms"] = tuple(
        f"{n or 'no'} term{'s' * (n != 1)} with the last kept bit set{f', {sign}' if n else ''}, and a carry shows"
        * (i <= min(n, 2))
        for n in range(bound.terms + 1)
        for i, sign in enumerate(EXTREMES)
    )
    if bound.terms > 1:
        found["truncated rounded"] = tuple(f"terms of both signs truncated, {word}" for word in ROUNDED_SHORT)
        found["truncated against"] = tuple(f"terms truncated {word} the sum's sign" for word in ("of", "against"))
    return found


def _shifts(bound: SumRange, role: TermRole) -> EventNames:
    """Return the steps by which a term of this role can be shifted; "" beyond the largest distance of two terms."""
    own = bound.roles[role]
    tops = [other.exponents[1] for name, other in bound.roles.items() if other.count > (name == role)]
    most = max([*tops, *([] if bound.floor is None else [bound.floor]), own.exponents[0]]) - own.exponents[0]
    starts = steps(bound.arithmetic, 0)
    return tuple(f"{role} shifted {word}" * (start <= most) for start, word in zip(starts, _step_words(starts), strict=True))


def _band_names(shared: range) -> list[str]:
    starts = bands(len(shared), BANDS)
    ends = [(shared[start], shared[end - 1]) for start, end in pairwise([*starts, len(shared)])]
    return [f"2^{low}" if low == high else f"2^{low} to 2^{high}" for low, high in ends]


class SumCodes:
    """The codes of `sum_families` for n dot products.

    top: exponent of the leading bit of the sum. carry: how far the largest term's exponent is below `top`. kept: the sum in
    units of the result's last bit. rounded: position in ROUNDED of the rest. near: whether the rest is near half, below or
    above.
    """

    def __init__(self, sums: Sums, bound: SumRange) -> None:
        self._sums, self._bound, self._x = sums, bound, sums.arithmetic
        total, fmt, self._sign = sums.total, sums.arithmetic.result, sums.total.negative.astype(np.int64)
        self._zero = total.magnitude == 0
        self._top = np.where(self._zero, NOTHING, total.exponent + bit_length(total.magnitude) - 1)
        self._carry = self._top - sums.lead
        self._some, self._nonzero = sums.finite & sums.some, sums.finite & ~self._zero
        self._normal = self._nonzero & (self._top >= fmt.min_exponent) & (self._top <= fmt.max_exponent)
        self._minus = {role: np.signbit(terms.values) for role, terms in sums.terms.items()}
        base = np.maximum(self._top, fmt.min_exponent)
        drop = np.clip(base - self._x.result_bits - total.exponent, 0, 62)
        self._kept = total.magnitude >> drop << np.clip(total.exponent - base + self._x.result_bits, 0, 62)
        rest, half = total.magnitude & ((np.int64(1) << drop) - 1), np.int64(1) << np.maximum(drop - 1, 0)
        self._rounded = np.where(rest == 0, 0, np.select([rest < half, rest > half], [1, 4], 2 + (self._kept & 1)))
        near = np.int64(1) << np.maximum(drop - NEAR_BITS, 0) if self._x.alignment_bits is None else 2
        self._near = np.where(np.abs(rest - half) < near, np.sign(rest - half), 0) * (rest != 0)

    def every(self) -> CodeArrays:
        yield from self._sizes()
        yield from self._largest_terms()
        yield from self._results()
        yield from self._zeros_and_specials()
        if self._x.alignment_bits is not None:
            yield from self._truncations()

    def _sizes(self) -> CodeArrays:
        sums, carry, x = self._sums, self._carry, self._x
        starts = np.array(steps(x, 0))
        for role, terms in sums.terms.items():
            shift = np.searchsorted(starts, sums.aligned_to - terms.exponents, side="right") - 1
            yield f"shift {role}", terms.exponents > ABSENT, shift
        # Bits of tiny terms that are rounded up can lie higher than the most carry.
        yield "carry", self._nonzero & (carry >= 0) & (carry <= self._bound.most_carry), 2 * carry + self._sign
        cancelled = self._nonzero & (carry < 0)
        if x.alignment_bits is not None:
            cancelled &= -carry <= x.alignment_bits
        yield "cancel", cancelled, np.searchsorted(np.array(steps(x, 1)), -carry, side="right") - 1
        for place, shown in enumerate(self._bound.shown_carries):
            yield "carry rounded", self._normal & (carry == shown), 8 * place + 2 * SHORT[self._rounded] + self._sign
        last = x.result.max_exponent
        yield "beyond", self._nonzero & (sums.lead > last) & (self._top <= last), self._sign
        if "C" in sums.terms and self._bound.terms > 1:
            first = self._some & (sums.terms["C"].exponents[0] == sums.largest)
            deep = -carry >= (x.result_bits if x.alignment_bits is None else x.alignment_bits) // 2
            yield "C cancelled", first & (self._zero | (carry < 0)), np.where(self._zero, 2, deep)

    def _largest_terms(self) -> CodeArrays:
        sums = self._sums
        top = {role: terms.exponents == sums.largest for role, terms in sums.terms.items()}
        tops = sum(x.sum(axis=0) for x in top.values())
        one, several = tops == 1, np.asarray(tops > 1)
        some = self._some & (sum(terms.nonzero.sum(axis=0) for terms in sums.terms.values()) > 1)
        if "product" in top:
            products = top["product"]
            yield "largest", some & one & products[0], 2
            yield "largest", some & one & products[-1] & ~products[0], 3
            yield "largest", some & one & products[1:-1].any(axis=0), 4
            yield "largest", some & (products.sum(axis=0) > 1), 5
        for code, role in enumerate(("C", "inner sum")):
            if role in top:
                there = top[role].any(axis=0)
                yield "largest", some & one & there, code
                yield "largest", some & several & there, 6 + code
        shared = self._bound.cancelling
        at = sums.largest.astype(np.int64) - shared.start
        cancelled = some & several & (self._zero | (self._carry < 0)) & (at >= 0) & (at < len(shared))
        for name, most in (("cancel at", BANDS), ("cancel at narrow", NARROW_BANDS)):
            yield name, cancelled, np.searchsorted(np.array(bands(len(shared), most)), at, side="right") - 1
        dense = self._some & (tops == self._bound.terms)
        for sign in (0, 1):
            yield "dense", dense & self._all_of_sign(sign), sign

    def _all_of_sign(self, sign: int) -> Truths:
        return np.asarray(np.logical_and.reduce([(minus == bool(sign)).all(axis=0) for minus in self._minus.values()]))

    def _results(self) -> CodeArrays:
        fmt, bits, sign, code, kept = self._x.result, self._x.result_bits, self._sign, self._rounded, self._kept
        yield "rounded", self._normal, 2 * code + sign
        yield "near half", self._normal & (self._near != 0), 2 * (self._near > 0) + sign
        up = {"RNE": code >= 3, "RNA": code >= 2, "RU": (code > 0) & (sign == 0), "RD": (code > 0) & (sign == 1)}
        full = self._normal & (kept == (2 << bits) - 1)
        yield "carried", full & up.get(self._x.result_rounding, False), sign
        yield "over", full & (self._top == fmt.max_exponent), 2 * SHORT[code] + sign
        yield "over", self._nonzero & (self._top > fmt.max_exponent), 8 + sign
        yield "under", self._normal & (self._top == fmt.min_exponent) & (kept == 1 << bits) & (code == 0), sign
        between = np.where(code == 0, np.where(kept == 1, 7, 5), 6)
        between = np.where(kept == (1 << bits) - 1, ABOUT_LARGEST_SUBNORMAL[code], between)
        between = np.where(kept == 0, BELOW_SMALLEST[code], between)
        yield "under", self._nonzero & (self._top < fmt.min_exponent), 2 * between + sign

    def _zeros_and_specials(self) -> CodeArrays:
        sums = self._sums
        lost = np.logical_or.reduce([terms.lost.any(axis=0) for terms in sums.terms.values()])
        yield "zeros", self._some & self._zero & ~lost, 3
        signs = np.where(self._all_of_sign(0), 0, np.where(self._all_of_sign(1), 1, 2))
        yield "zeros", sums.finite & ~sums.some, signs
        values = np.concatenate([terms.values for terms in sums.terms.values()])
        plus, minus = ((values == end).any(axis=0) for end in (np.inf, -np.inf))
        of_sign = np.where(plus & minus, 2, minus)
        yield "special", ~sums.finite, np.where(np.isnan(values).any(axis=0), 3, of_sign)

    def _truncations(self) -> CodeArrays:
        sums, some = self._sums, self._some
        lost = {role: terms.lost & (terms.exponents < sums.aligned_to) for role, terms in sums.terms.items()}
        for role in lost.keys() - {"product"}:
            yield f"truncated {role}", some & lost[role].any(axis=0), 0
        if "product" in lost:
            n, odd = len(lost["product"]), sums.terms["product"].odd.sum(axis=0)
            codes = np.minimum(np.arange(n + 1), 3)
            codes[n - 1 :] = 4 if n > 1 else 0, 5
            yield "truncated products", some, codes[lost["product"].sum(axis=0)]
            for code, (low, high) in enumerate(ODD):
                yield "odd", some & (low <= odd) & (odd <= high), code
            yield "odd", some & (odd == n), len(ODD)
        minus, plus = (
            np.logical_or.reduce([(lost[role] & (self._minus[role] == sign)).any(axis=0) for role in lost])
            for sign in (True, False)
        )
        yield "lost zeros", some & self._zero & (plus | minus), np.where(plus & minus, 2, minus)
        yield "truncated rounded", self._normal & plus & minus, SHORT[self._rounded]
        yield "truncated against", self._nonzero & np.where(self._sign == 1, minus, plus), 0
        yield "truncated against", self._nonzero & np.where(self._sign == 1, plus, minus), 1
        yield "odd terms", *self._odd_terms()
        if self._bound.floor is not None:
            yield from self._floor(self._bound.floor, plus, minus)

    def _odd_terms(self) -> tuple[Truths, EventCodes]:
        """Return the numbers of terms with the last kept bit set, where the result would be two units less without their
        carry.
        """
        total = self._sums.total
        minus, plus = (
            sum((terms.odd & (self._minus[role] == sign)).sum(axis=0) for role, terms in self._sums.terms.items())
            for sign in (True, False)
        )
        less = np.where(total.negative, -total.magnitude, total.magnitude) - 2
        shown = encode(*total[:3], self._x) != encode(less < 0, np.abs(less), total.exponent, self._x)
        signs = np.select([minus == 0, plus == 0], [0, 1], 2)
        return self._some & shown, len(EXTREMES) * (plus + minus) + signs

    def _floor(self, floor: int, plus: Truths, minus: Truths) -> CodeArrays:
        sums = self._sums
        above = sums.largest.astype(np.int64) - floor
        yield "floor", self._some & (above <= 1), np.minimum(1 - above, 3)
        below = self._some & (above < 0) & (sums.aligned_to == floor)
        yield "floor lost", below & plus, 0
        yield "floor lost", below & minus, 1
        if "C" in sums.terms and self._bound.terms > 1:
            exponents = sums.terms["C"].exponents[0]
            subnormal = sums.terms["C"].leads[0] < exponents
            yield "subnormal C", self._some & subnormal & (exponents == sums.largest) & (exponents <= floor), 0

"""The independent evaluator of models and of departures from them, vectorised: it shares no code with `accprobe.evaluate`.

A `Wide` has the departures of sums of products from the model. Sums that add only results and C have none. Sums of two narrow
terms that keep every bit are added in 64 bits, and other such sums in Python's integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from departures import PLAIN, Wide
from numpy.typing import NDArray
from outside_numbers import (
    ANY_SPECIAL,
    NOTHING,
    SPECIAL,
    ZERO,
    Ints,
    Parts,
    apart,
    bit_length,
    cut,
    is_nan,
    is_negative,
    packed,
)
from sparse_semantics import of_stored

from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, Product
from accprobe.operands.request import Request

CHUNK = 1 << 15
"""Products evaluated at once: the arrays fit into the cache of a core."""

EXACT_BITS = 52
"""Alignment bits of an exact sum of two terms: lower bits are or-ed into the last bit, which rounds to the same result."""

WIDEST_LEFT = 24
"""Bits of a left shift of terms above the exponent in use; higher bits are lost."""


class Unit:
    """The evaluator of the dot products of an instruction."""

    def __init__(self, inst: Instruction, model: DotModel, wide: Wide = PLAIN) -> None:
        self.inst, self.model, self.wide = inst, model, wide

    def dot(self, request: Request) -> Bits:
        """Return bit patterns of D, [N]."""
        step = max(1, CHUNK // self.inst.k)
        d = np.empty(len(request), self.inst.d.dtype)
        every_b = request.b if request.metadata is None else of_stored(self.inst, request.b, request.metadata)
        with np.errstate(all="ignore"):
            for start in range(0, len(d), step):
                rows = slice(start, start + step)
                a, b = (np.ascontiguousarray(x[rows].T) for x in (request.a, every_b))
                scales = [np.ascontiguousarray(x[rows].T) for x in (request.scales_a, request.scales_b) if x is not None]
                d[rows] = Chunk(self, a, b, request.c[rows], scales).of(self.model.root)
        return d


class _Other(NamedTuple):
    """C or an inner result as a term."""

    patterns: Bits
    fmt: Format
    flushed: bool


class _Scales(NamedTuple):
    """Products of both scales of each block, [blocks, n]; the last `fraction` bits of the significands are fractions."""

    significand: Ints
    exponent: Ints
    leading: Ints
    fraction: int


class Chunk:
    """a, b: [K, n]; c: [n]; scales: of A and B, each [blocks, n], or none."""

    def __init__(self, unit: Unit, a: Bits, b: Bits, c: Bits, scales: list[Bits]) -> None:
        self.inst, self.model, self.wide = unit.inst, unit.model, unit.wide
        self.a, self.b, self.c, self.scales = a, b, c, scales
        self.flushed = unit.model.subnormal_operands == "flushed"
        if self.wide.separately:
            self.a, self.b = _rounded_products(a, b)
        if self.wide.scaling.infinite_zero:
            kinds = [apart(fmt, x).exponent for fmt, x in ((self.inst.a, a), (self.inst.b, b))]
            zero = (np.sort(kinds, axis=0) == np.array([ZERO, SPECIAL])[:, None, None]).all(axis=0)
            self.a = np.where(zero & ~is_nan(self.inst.a, a), 0, a)
            self.b = np.where(zero & ~is_nan(self.inst.b, b), 0, b)

    def of(self, node: FusedSum) -> Bits:
        rules = node.arithmetic
        others = list(self._others(node))
        ks = [term.k for term in node.terms if isinstance(term, Product)]
        wide = self.wide if ks else PLAIN
        if isinstance(rules, IntegerArithmetic):
            return self._integers(ks, others, rules, wide)
        return self._floats(ks, others, rules, wide)

    def _others(self, node: FusedSum) -> Iterator[_Other]:
        for term in node.terms:
            if isinstance(term, Addend):
                yield _Other(self.c, self.inst.c, self.model.subnormal_addend == "flushed")
            elif isinstance(term, FusedSum):
                yield _Other(self.of(term), term.arithmetic.result, False)

    def _integers(self, ks: list[int], others: list[_Other], rules: IntegerArithmetic, wide: Wide) -> Bits:
        total = np.zeros(len(self.c), np.int64)
        products = _whole(self.inst.a, self.a[ks]) * _whole(self.inst.b, self.b[ks])
        self._spoil(products, ks, wide)
        if wide.integers:
            kind, bits, size = wide.integers
            for start in range(0, len(ks), size):
                total += _narrow(products[start : start + size].sum(axis=0), kind, bits)
        else:
            total += products.sum(axis=0)
        if wide.lost_carry:
            total -= _lost(products, wide.lost_carry)
        for other in others:
            total += _whole(other.fmt, other.patterns)
        return _narrow(total, rules.overflow, rules.result.bits).astype(rules.result.dtype)

    def _spoil(self, products: Ints, ks: list[int], wide: Wide, unit: int = 1) -> None:
        if entry := wide.entry:
            there = (self.a[ks] == entry.a) & (self.b[ks] == entry.b)
            if entry.k is not None:
                there &= (np.array(ks) == entry.k)[:, None]
            products[there] += entry.off * unit

    def _floats(self, ks: list[int], others: list[_Other], rules: FloatArithmetic, wide: Wide) -> Bits:
        wide_sums = rules.alignment_bits is None and (len(ks) + len(others) > 2 or rules.result.name == "f64")
        terms = [_read_term(other) for other in others]
        fractions = [other.fmt.mantissa_bits for other in others]
        if wide.addend_bits is not None:
            terms = [_shortened(part, fraction - wide.addend_bits) for part, fraction in zip(terms, fractions, strict=True)]
        leads = [part.exponent + wide.others_lift * (part.exponent > NOTHING) for part in terms]
        if ks:
            products, fraction = self._products(ks, rules, wide, wide_sums)
            fractions.append(fraction)
            terms.append(products)
            leads.append(products.leading)
        special = _largest(leads) > ANY_SPECIAL
        if wide_sums:
            total, scale = _exact_sum(terms, fractions)
        else:
            top = _aligned_to(leads, bool(ks), rules, wide)
            top[special] = 0
            total, scale = _aligned_sum(terms, fractions, top, len(others), rules, wide)
        d = packed(total, scale, rules, wide.packing)
        if rules.zero_sign == "ieee":
            d[(total == 0) & self._all_negative(ks, others)] = rules.result.sign_bit
        if special.any():
            d[special] = self._specials(np.flatnonzero(special), ks, others, rules, wide).astype(d.dtype)
        return d.astype(rules.result.dtype)

    def _products(self, ks: list[int], rules: FloatArithmetic, wide: Wide, wide_sums: bool) -> tuple[Parts, int]:
        """Return products [k, n], or groups that are scaled at once, and their fraction bits; leading: the exponent in use."""
        rule, size = rules.product_exponent, 1 if rules.alignment_bits is None else rules.scaled_products or 1
        zeros_count = rules.zero_terms == "aligned" and rule == "unnormalised"
        whole = slice(ks[0], ks[-1] + 1) if ks == list(range(ks[0], ks[-1] + 1)) else ks
        a = apart(self.inst.a, self.a[whole], self.flushed, zeros_count)
        b = apart(self.inst.b, self.b[whole], self.flushed, zeros_count)
        fraction = self.inst.a.mantissa_bits + self.inst.b.mantissa_bits
        significand = a.significand.astype(object if wide_sums else np.int64) * b.significand
        exponent = a.exponent + b.exponent
        leading = exponent if rule == "unnormalised" else a.leading + b.leading
        self._spoil(significand, ks, wide)
        if wide.product_bits is not None and (drop := fraction - wide.product_bits) > 0:
            significand = cut(significand, np.int64(drop), wide.product_word) << drop
        if self.scales:
            scales = self._scales_of(ks[::size], zeros_count)
            if size > 1:
                significand, exponent, leading = self._groups(significand, exponent, size, zeros_count)
            significand, fraction = significand * scales.significand, fraction + scales.fraction
            exponent = exponent + scales.exponent
            leading = leading + (scales.exponent if rule == "unnormalised" else scales.leading)
        if rule == "normalised product":
            leading = exponent - fraction + bit_length(np.abs(significand)) - 1
            leading = np.where((significand == 0) & (exponent < ANY_SPECIAL), ZERO, leading)
            leading = np.where(exponent > ANY_SPECIAL, exponent, leading)
        return Parts(significand, exponent, leading), fraction

    def _groups(self, significand: Ints, exponent: Ints, size: int, zeros_count: bool) -> Parts:
        """Add `size` products at once, before they are scaled; leading: 0, or ZERO of a group of zeros."""
        lowest = 2 - self.inst.a.bias - self.inst.b.bias
        whole = np.where(significand == 0, 0, significand << np.maximum(exponent - lowest, 0))
        total = whole.reshape(-1, size, whole.shape[-1]).sum(axis=1)
        drop = self.wide.scaling.group_bits
        total = np.sign(total) * (np.abs(total) >> drop << drop)
        busy = (whole != 0).reshape(-1, size, whole.shape[-1]).any(axis=1) | zeros_count
        return Parts(total, np.full_like(total, lowest), np.where(busy, 0, ZERO))

    def _scales_of(self, ks: list[int], zeros_count: bool) -> _Scales:
        """Return the scales of these products."""
        fmt, size, odd = self.inst.scale, self.inst.scale_block, self.wide.scaling
        patterns = [x.copy() for x in self.scales]
        if odd.last_is_b:
            patterns[0][-1] = patterns[1][-1]
        read = replace(fmt, specials="none") if odd.nan_is_number else fmt
        a, b = (apart(read, x[[k // size for k in ks]], odd.flushed, zeros_count) for x in patterns)
        m = fmt.mantissa_bits
        significands = [x.significand.astype(np.int64) for x in (a, b)]
        if odd.bits is not None:
            drop = m - odd.bits
            significands = [np.where(x >> m, x >> drop << drop, x) for x in significands]
        exponent, leading = a.exponent + b.exponent, a.leading + b.leading
        exponent, leading = (np.where(x > ANY_SPECIAL, x, np.minimum(x, odd.largest)) for x in (exponent, leading))
        return _Scales(significands[0] * significands[1], exponent, leading, 2 * m)

    def _all_negative(self, ks: list[int], others: list[_Other]) -> NDArray[np.bool_]:
        found = np.ones(len(self.c), bool)
        if ks:
            found &= (is_negative(self.inst.a, self.a[ks]) != is_negative(self.inst.b, self.b[ks])).all(axis=0)
        for other in others:
            found &= is_negative(other.fmt, other.patterns)
        return found

    def _kinds(
        self, rows: NDArray[np.intp], ks: list[int], others: list[_Other], wide: Wide
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which sums have a NaN, which an invalid operation, and which infinities of either sign, [2, rows]."""
        came, wrong, infinite = np.zeros(len(rows), bool), np.zeros(len(rows), bool), np.zeros((2, len(rows)), bool)
        for scale in self.scales:
            wrong |= is_nan(self.inst.scale, scale[:, rows]).any(axis=0) & (not wide.scaling.nan_is_number)
        if ks:
            a, b = self.a[ks][:, rows], self.b[ks][:, rows]
            ea, eb = (apart(fmt, x, self.flushed).exponent for fmt, x in ((self.inst.a, a), (self.inst.b, b)))
            either = is_nan(self.inst.a, a) | is_nan(self.inst.b, b)
            invalid = ~either & ((ea == SPECIAL) & (eb == ZERO) | (ea == ZERO) & (eb == SPECIAL))
            endless = ~either & ~invalid & ((ea == SPECIAL) | (eb == SPECIAL))
            minus = is_negative(self.inst.a, a) != is_negative(self.inst.b, b)
            came |= either.any(axis=0)
            wrong |= invalid.any(axis=0)
            infinite |= np.stack([(endless & ~minus).any(axis=0), (endless & minus).any(axis=0)])
        for other in others:
            x = other.patterns[rows]
            its = is_nan(other.fmt, x)
            endless, minus = (apart(other.fmt, x).exponent == SPECIAL) & ~its, is_negative(other.fmt, x)
            came |= its
            infinite |= np.stack([endless & ~minus, endless & minus])
        return came, wrong | infinite[0] & infinite[1], infinite

    def _specials(
        self, rows: NDArray[np.intp], ks: list[int], others: list[_Other], rules: FloatArithmetic, wide: Wide
    ) -> Ints:
        came, invalid, infinite = self._kinds(rows, ks, others, wide)
        nan, kind = came | invalid, np.dtype(object if rules.result.bits > 32 else np.int64)
        d = np.full(len(rows), rules.result.infinity, kind)
        d[infinite[1]] |= rules.result.sign_bit
        d[nan] = rules.nan
        if wide.nan == "invalid":
            d[invalid & ~came] ^= 1
        for other in others[-1:]:
            c = other.patterns[rows].astype(kind)
            if wide.nan == "signed":
                d = np.where(nan, d & ~rules.result.sign_bit | c & rules.result.sign_bit, d)
            if wide.nan == "from C" and rules.nan_payload == "dropped":
                d = np.where(is_nan(other.fmt, other.patterns[rows]), c | _quiet(rules), d)
        operands = {"a": self.a[ks], "b": self.b[ks], "c": [other.patterns for other in others], "dropped": []}
        in_turn = [x[rows] for letter in rules.nan_payload.split() for x in operands[letter]]
        for x in in_turn[::-1]:
            payload = x.astype(kind) | (0 if wide.nan == "from C" else _quiet(rules))
            d = np.where(is_nan(rules.result, x), payload, d)
        return d


def _quiet(rules: FloatArithmetic) -> int:
    return 1 << (rules.result.mantissa_bits - 1)


def _rounded_products(a: Bits, b: Bits) -> tuple[Bits, Bits]:
    """Return products of f64, and ones beside them; NaNs and what gives one as they are."""
    x, y = a.view(np.float64), b.view(np.float64)
    product = x * y
    nan = np.isnan(product)
    return np.where(nan, a, product.view(np.uint64)), np.where(nan, b, np.ones_like(y).view(np.uint64))


def _aligned_to(leads: list[Ints], has_products: bool, rules: FloatArithmetic, wide: Wide) -> Ints:
    """Return the exponents to which terms are aligned, 0 of sums of zeros."""
    top = _largest(leads)
    if wide.led_by:
        some = _largest(_looked_at(leads, wide.led_by, has_products))
        top = np.where(some < NOTHING, top, some)
    if rules.min_exponent is not None:
        top = np.maximum(top, rules.min_exponent)
    top[top < NOTHING] = 0
    return top


def _aligned_sum(
    terms: list[Parts], fractions: list[int], top: Ints, others: int, rules: FloatArithmetic, wide: Wide
) -> tuple[Ints, Ints]:
    """Return sums of aligned terms, products last, and the exponents of their last bits."""
    exact = rules.alignment_bits is None
    bits = EXACT_BITS if rules.alignment_bits is None else rules.alignment_bits
    kept = np.full(len(top), bits)
    if wide.short_at:
        modulus, residue, fewer = wide.short_at
        kept -= fewer * (top % modulus == residue)
    scale = top - kept
    word = "sticky" if exact else wide.word or rules.alignment_rounding
    rows: list[Ints] = []
    for i, (part, fraction) in enumerate(zip(terms, fractions, strict=True)):
        if i < others:
            rows.append(_aligned(part, fraction, scale, bits, wide.others_word or word, wide.others_short))
        else:
            rows += list(_aligned(part, fraction, scale, bits, word, wide.products_short))
    total = _added(rows, wide)
    if wide.accumulator:
        total = _narrow(total, wide.accumulator[0], bits + 1 + wide.accumulator[1])
    return total, scale


def _exact_sum(terms: list[Parts], fractions: list[int]) -> tuple[Ints, Ints]:
    """Return sums in Python's integers, and the exponents of their last bits."""
    significands = np.concatenate([np.atleast_2d(part.significand).astype(object) for part in terms])
    last = np.concatenate([np.atleast_2d(part.exponent - fraction) for part, fraction in zip(terms, fractions, strict=True)])
    zero = significands == 0
    scale = np.where(zero, SPECIAL, last).min(axis=0)
    scale[scale == SPECIAL] = 0
    return (significands << np.where(zero, 0, last - scale)).sum(axis=0), scale


def _read_term(other: _Other) -> Parts:
    return apart(other.fmt, other.patterns, other.flushed)


def _whole(fmt: Format, patterns: Bits) -> Ints:
    whole = patterns.astype(np.int64) & ((1 << fmt.bits) - 1)
    return whole - ((whole >> (fmt.bits - 1)) << fmt.bits) if fmt.kind == "signed" else whole


def _narrow(total: Ints, kind: str, bits: int) -> Ints:
    """Return signed numbers of that many bits, sign included."""
    limit = np.int64(1) << (bits - 1)
    return np.clip(total, -limit, limit - 1) if kind == "saturate" else ((total + limit) & (2 * limit - 1)) - limit


def _lost(terms: Ints, rule: tuple[int, int]) -> Ints:
    return ((terms & 1).sum(axis=0) == rule[0]).astype(np.int64) << rule[1]


def _shortened(part: Parts, drop: int) -> Parts:
    if drop <= 0:
        return part
    return part._replace(significand=cut(part.significand.astype(np.int64), np.int64(drop), "truncate") << drop)


def _largest(leads: list[NDArray[np.integer]]) -> Ints:
    rows = [lead.max(axis=0) if lead.ndim == 2 else lead for lead in leads]
    return np.max(rows, axis=0).astype(np.int64)


def _looked_at(leads: list[NDArray[np.integer]], which: str, has_products: bool) -> list[NDArray[np.integer]]:
    if which == "products" or len(leads) == 1 or not has_products:
        return leads[-1:]
    if which == "others":
        return leads[:-1]
    products = leads[-1]
    some = products[::2] if which == "even" else products[: max(1, len(products) // 2)]
    return [*leads[:-1], some]


def _aligned(part: Parts, fraction: int, scale: Ints, bits: int, word: str, short: int) -> Ints:
    """Return terms as multiples of 2^scale."""
    room = max(0, bits - fraction)
    right = scale + (fraction + room) - part.exponent
    value = part.significand.astype(np.int64) << room
    if right.min(initial=0) < 0:
        value = value << np.clip(-right, 0, WIDEST_LEFT)
        right = np.maximum(right, 0)
    return cut(value, right + short, word) << short if short else cut(value, right, word)


def _added(rows: list[Ints], wide: Wide) -> Ints:
    lost: Ints | int = _lost(np.stack(rows), wide.lost_carry) if wide.lost_carry else 0
    while wide.pairwise and len(rows) > 1:
        pairs = [(rows[i] + rows[i + 1]) & ~1 for i in range(0, len(rows) - 1, 2)]
        rows = pairs + rows[len(rows) // 2 * 2 :]
    return np.sum(rows, axis=0) - lost

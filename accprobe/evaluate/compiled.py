"""The same function as `accprobe.evaluate.evaluator`'s, compiled by numba: one interpreter of flat models, in integers.

One compilation serves every model and every format: fields and formats are run-time numbers (`accprobe.evaluate.flat`), so that
nothing is compiled for a model, and numba keeps the machine code on disk. All of it stands in this file, because numba compiles
again where the file of a function has changed, and looks at no other. Import this module where it is needed only: it
imports numba, which takes a few tenths of a second.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from accprobe.evaluate import flat
from accprobe.evaluate.cores import cores
from accprobe.evaluate.flat import OTHERS, A, B
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request

CHUNK = 1 << 14
"""Products evaluated at once by one thread: few enough for the arrays to stay in a core's cache."""

SHARE = 1 << 17
"""Products that are worth a thread of their own."""

LIMB, HALF = 32, 27
LOW_HALF = (1 << HALF) - 1
LIMBS = 4 + (2 * 2046 + 2 * 53 + 64) // LIMB
"""Limbs that hold any sum of f64 products."""

NEVER = -(1 << 40)
"""Below every exponent."""


def evaluate(model: DotModel, inst: Instruction, request: Request) -> Bits:
    """N dot products of operands that fit the instruction -> [N]; uses every core."""
    described = flat.flatten(model, inst)
    a, b, c = request.a, request.b, request.c
    d = np.empty(len(c), np.int64)
    rows = max(1, CHUNK // inst.k)

    def some(first: int, last: int) -> None:
        for start in range(first, last, rows):
            part = slice(start, min(start + rows, last))
            _run(*described, _integers(a[part]), _integers(b[part]), _integers(c[part]), d[part])

    shares = min(cores(), -(-len(c) * inst.k // SHARE))
    if shares < 2:
        some(0, len(c))
    else:
        bounds = [len(c) * i // shares for i in range(shares + 1)]
        for done in [_pool().submit(some, *pair) for pair in pairwise(bounds)]:
            done.result()
    return d.astype(inst.d.dtype)


def _integers(patterns: Bits) -> flat.Numbers:
    """As signed integers, in C order: another layout would be compiled for."""
    return np.ascontiguousarray(patterns).view(np.int64) if patterns.itemsize == 8 else patterns.astype(np.int64, order="C")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores())


@intrinsic
def _leading_zeros(typing_context: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


_compiled = njit(nogil=True, cache=True, error_model="numpy")
"""Of functions without type annotations: numba infers them, and mypy is told nothing of records."""


@_compiled
def _bit_length(x):
    return 64 - _leading_zeros(x)  # type: ignore[call-arg]


@_compiled
def _magnitude(pattern, fmt):
    return (pattern >> fmt.ignored) & (((fmt.biased_mask + 1) << fmt.mantissa) - 1)


@_compiled
def _special(pattern, fmt):
    """0 of a number, 1 of an infinity, 2 of a NaN."""
    magnitude = _magnitude(pattern, fmt)
    if magnitude <= fmt.largest:
        return np.int64(0)
    return np.int64(1 if fmt.has_infinity and magnitude == fmt.largest + 1 else 2)


@_compiled
def _significand(pattern, fmt):
    """As the unit reads it: signed, 0 where a subnormal is flushed."""
    magnitude = _magnitude(pattern, fmt)
    normal = np.int64(magnitude >> fmt.mantissa != 0)
    fraction = magnitude & ((np.int64(1) << fmt.mantissa) - 1)
    whole = (fraction & -(normal | (1 - fmt.flushed))) | normal << fmt.mantissa
    sign = (pattern >> fmt.sign_shift) & 1
    return (whole ^ -sign) + sign


@_compiled
def _exponent(pattern, fmt):
    """As encoded: that of the smallest normal number for subnormals and zeros."""
    return max(_magnitude(pattern, fmt) >> fmt.mantissa, 1) - fmt.bias


@_compiled
def _leading(pattern, fmt):
    """Exponent of the leading bit, NEVER of zero; of subnormals as they are even where they are flushed."""
    magnitude = _magnitude(pattern, fmt)
    if magnitude >> fmt.mantissa:
        return _exponent(pattern, fmt)
    return fmt.min_exponent - fmt.mantissa + _bit_length(magnitude) - 1 if magnitude else np.int64(NEVER)


@_compiled
def _is_negative(pattern, fmt):
    return (pattern >> fmt.sign_shift) & 1 == 1


@_compiled
def _integer(pattern, fmt):
    whole = pattern & ((np.int64(1) << fmt.bits) - 1)
    return whole - ((whole >> (fmt.bits - 1)) << fmt.bits) * fmt.signed


@_compiled
def _run(nodes, products, others, formats, a, b, c, d):
    """A few dot products, node by node: a, b [n, K], c, d [n]."""
    (n, k), sums = a.shape, len(nodes)
    results = np.empty((sums + 1, n), np.int64)
    results[sums] = c
    if nodes[0].kind == flat.INTEGER:
        for index in range(sums):
            _integer_sums(index, nodes, products, others, formats, a, b, results)
    else:
        product, exponent = np.empty((n, k), np.int64), np.empty((n, k), np.int64)
        _decode(a, formats[A], product, exponent, True)
        _decode(b, formats[B], product, exponent, False)
        significands, exponents = np.empty((sums + 1, 1, n), np.int64), np.empty((sums + 1, 1, n), np.int64)
        _decode(results[sums:], formats[OTHERS + sums], significands[sums], exponents[sums], True)
        special = _find_specials(a, b, c, formats)
        limbs, terms = np.empty(LIMBS, np.int64), np.empty((k + sums + 1, 3), np.int64)
        for index in range(sums):
            if nodes[index].kind == flat.EXACT:
                _exact_sums(index, nodes, products, others, formats, a, b, results, limbs, terms)
            else:
                _aligned_sums(
                    index, nodes, products, others, formats, a, b, results, product, exponent, significands, exponents
                )
            _put_specials(index, nodes, products, others, formats, a, b, results, special)
            _decode(results[index : index + 1], formats[OTHERS + index], significands[index], exponents[index], True)
    d[:] = results[sums - 1]


@_compiled
def _decode(patterns, fmt, product, exponent, first):
    """Significands and exponents as encoded; not the first time, multiplied with and added to what is there.

    The format is read into locals: of a record that might be written to, the compiler reads every field every time.
    """
    mantissa, ignored, bias, sign_shift, flushed = fmt.mantissa, fmt.ignored, fmt.bias, fmt.sign_shift, fmt.flushed
    magnitude_mask = ((fmt.biased_mask + 1) << mantissa) - 1
    fraction_mask = (np.int64(1) << mantissa) - 1
    rows, k = patterns.shape
    for row in range(rows):
        for i in range(k):
            pattern = patterns[row, i]
            magnitude = (pattern >> ignored) & magnitude_mask
            biased = magnitude >> mantissa
            normal = np.int64(biased != 0)
            whole = (magnitude & fraction_mask & -(normal | (1 - flushed))) | normal << mantissa
            sign = (pattern >> sign_shift) & 1
            significand = (whole ^ -sign) + sign
            if first:
                product[row, i] = significand
                exponent[row, i] = max(biased, 1) - bias
            else:
                product[row, i] *= significand
                exponent[row, i] += max(biased, 1) - bias


@_compiled
def _find_specials(a, b, c, formats):
    """Whether any operand of a dot product is no number, [n]."""
    special, fc = np.empty(len(c), np.int64), formats[len(formats) - 1]
    fa, fb = formats[A], formats[B]
    mask_a, mask_b = ((fa.biased_mask + 1) << fa.mantissa) - 1, ((fb.biased_mask + 1) << fb.mantissa) - 1
    ignored_a, ignored_b, largest_a, largest_b = fa.ignored, fb.ignored, fa.largest, fb.largest
    rows, k = a.shape
    for row in range(rows):
        found = _special(c[row], fc)
        for i in range(k):
            found |= np.int64((a[row, i] >> ignored_a) & mask_a > largest_a)
            found |= np.int64((b[row, i] >> ignored_b) & mask_b > largest_b)
        special[row] = found
    return special


@_compiled
def _aligned_sums(index, nodes, products, others, formats, a, b, results, product, exponent, significands, exponents):
    node, fmt = nodes[index], formats[OTHERS + index]
    first, end, fractions = node.first_product, node.end_products, formats[A].mantissa + formats[B].mantissa
    plain = node.product_exponent == 0 and not node.zero_terms
    lowest = node.min_exponent if node.has_min_exponent else np.int64(NEVER)
    rule, alignment_bits = node.alignment_rounding, node.alignment_bits
    start = products[first] if first < end else np.int64(0)
    in_order = plain
    for i in range(first, end):
        in_order &= products[i] == start + i - first
    for row in range(results.shape[1]):
        largest = lowest
        if in_order:
            for k in range(start, start + end - first):
                largest = max(largest, exponent[row, k] if product[row, k] != 0 else NEVER)
        else:
            for i in range(first, end):
                k = products[i]
                mine = exponent[row, k]
                if not plain:
                    mine = _product_exponent(product[row, k], mine, a[row, k], b[row, k], node, formats)
                elif product[row, k] == 0:
                    mine = NEVER
                largest = max(largest, mine)
        for i in range(node.first_other, node.end_others):
            if significands[others[i], 0, row] != 0:
                largest = max(largest, exponents[others[i], 0, row])
        quantum = (largest if largest != NEVER else 0) - alignment_bits
        total = np.int64(0)
        if in_order and rule == 0:
            for k in range(start, start + end - first):
                drop = quantum + fractions - exponent[row, k]
                right = min(max(drop, 0), 62)
                x = product[row, k] << min(max(-drop, 0), 62)
                total += (x + ((x >> 63) & ((np.int64(1) << right) - 1))) >> right
        else:
            for i in range(first, end):
                k = products[i]
                total += _cut(product[row, k], quantum + fractions - exponent[row, k], rule)
        for i in range(node.first_other, node.end_others):
            drop = quantum + formats[OTHERS + others[i]].mantissa - exponents[others[i], 0, row]
            total += _cut(significands[others[i], 0, row], drop, rule)
        encoded = _encode(total < 0, abs(total), quantum, node, fmt)
        if total == 0 and node.zero_sign and _all_negative(row, node, products, others, formats, a, b, results):
            encoded = fmt.sign_bit
        results[index, row] = encoded


@_compiled
def _product_exponent(product, exponent, x, y, node, formats):
    """The exponent with which a product takes part in the alignment, NEVER where it does not."""
    if product == 0 and not node.zero_terms:
        return np.int64(NEVER)
    if node.product_exponent == 0:
        return exponent
    if node.product_exponent == 1:
        return max(_leading(x, formats[A]) + _leading(y, formats[B]), NEVER)
    if product == 0:
        return np.int64(NEVER)
    return exponent - formats[A].mantissa - formats[B].mantissa + _bit_length(abs(product)) - 1


@_compiled
def _cut(term, drop, rule):
    """A signed integer without its last `drop` bits (with more where that is negative)."""
    if drop <= 0:
        return term << min(-drop, 62)
    drop = min(drop, 62)
    below = (np.int64(1) << drop) - 1
    if rule == 0:
        return (term + ((term >> 63) & below)) >> drop
    whole, rest = term >> drop, term & below
    if rule == 1:
        return whole
    if rule == 2:
        half = np.int64(1) << (drop - 1)
        return whole + np.int64(rest > half or (rest == half and whole & 1 == 1))
    jammed = abs(term) >> drop | np.int64(rest != 0)
    return -jammed if term < 0 else jammed


@_compiled
def _encode(negative, magnitude, exponent, node, fmt):
    """As `rounding.encode`."""
    if magnitude == 0:
        return np.int64(0)
    bits, lowest = node.result_bits, fmt.min_exponent
    base = max(exponent + _bit_length(magnitude) - 1, lowest)
    drop = base - bits - exponent
    if drop <= 0:
        kept = magnitude << -drop
    else:
        kept = magnitude >> min(drop, 63)
        rest = magnitude - (kept << min(drop, 62))
        if node.result_rounding == 1:
            half = np.int64(1) << min(drop - 1, 62)
            kept += np.int64(rest > half or (rest == half and kept & 1 == 1))
        elif node.result_rounding != 0:
            kept += np.int64(rest != 0 and negative == (node.result_rounding == 3))
    if node.subnormal_results and kept < np.int64(1) << bits:
        kept = np.int64(0)
    pattern = np.int64(0)
    if kept != 0:
        step = fmt.mantissa - bits
        pattern = ((base - lowest) << fmt.mantissa) + (kept << step)
        if base > fmt.max_exponent or pattern >= fmt.infinity:
            pattern = fmt.largest >> step << step if node.overflow else fmt.infinity
    if negative and not (node.underflow_sign and pattern == 0):
        pattern |= fmt.sign_bit
    return pattern


@_compiled
def _all_negative(row, node, products, others, formats, a, b, results):
    for i in range(node.first_product, node.end_products):
        k = products[i]
        if _is_negative(a[row, k], formats[A]) == _is_negative(b[row, k], formats[B]):
            return False
    for i in range(node.first_other, node.end_others):
        pattern, place = results[others[i], row], OTHERS + others[i]
        if not _is_negative(pattern, formats[place]):
            return False
    return True


@_compiled
def _exact_sums(index, nodes, products, others, formats, a, b, results, limbs, terms):
    """terms [n, 3]: of each term that is not zero, two factors and an exponent."""
    node, fmt, fa, fb = nodes[index], formats[OTHERS + index], formats[A], formats[B]
    for row in range(results.shape[1]):
        count = np.int64(0)
        for i in range(node.first_product, node.end_products):
            x, y = a[row, products[i]], b[row, products[i]]
            terms[count, 0], terms[count, 1] = _significand(x, fa), _significand(y, fb)
            terms[count, 2] = _exponent(x, fa) + _exponent(y, fb) - fa.mantissa - fb.mantissa
            count += np.int64(terms[count, 0] != 0 and terms[count, 1] != 0)
        for i in range(node.first_other, node.end_others):
            pattern, place = results[others[i], row], OTHERS + others[i]
            terms[count, 0], terms[count, 1] = _significand(pattern, formats[place]), 1
            terms[count, 2] = _exponent(pattern, formats[place]) - formats[place].mantissa
            count += np.int64(terms[count, 0] != 0)
        negative, magnitude, exponent = _exact_sum(terms, count, node.result_bits, limbs)
        encoded = _encode(negative, magnitude, exponent, node, fmt)
        if magnitude == 0 and node.zero_sign and _all_negative(row, node, products, others, formats, a, b, results):
            encoded = fmt.sign_bit
        results[index, row] = encoded


@_compiled
def _exact_sum(terms, count, result_bits, limbs):
    """(whether negative, magnitude below 2^62 whose last bit is sticky, exponent)."""
    if count == 0:
        return False, np.int64(0), np.int64(0)
    if count == 2:
        _close_gap(terms, result_bits)
    low, top = terms[0, 2], np.int64(NEVER)
    for i in range(count):
        low = min(low, terms[i, 2])
        top = max(top, _top(terms, i))
    if top - low + _bit_length(count) < 62:
        total = np.int64(0)
        for i in range(count):
            total += (terms[i, 0] * terms[i, 1]) << (terms[i, 2] - low)
        return total < 0, abs(total), low
    size = (top - low) // LIMB + 4
    limbs[:size] = 0
    for i in range(count):
        x, y, offset = abs(terms[i, 0]), abs(terms[i, 1]), terms[i, 2] - low
        sign = 1 if (terms[i, 0] < 0) == (terms[i, 1] < 0) else -1
        for part, shift in ((x & LOW_HALF, 0), (x >> HALF, HALF)):
            _add(limbs, sign, part * (y & LOW_HALF), offset + shift)
            _add(limbs, sign, part * (y >> HALF), offset + shift + HALF)
    _carry(limbs, size)
    negative = limbs[size - 1] < 0
    if negative:
        limbs[:size] = -limbs[:size]
        _carry(limbs, size)
    magnitude, rest, exponent = 0, 0, low + size * LIMB
    for i in range(size - 1, -1, -1):
        room = min(62 - _bit_length(magnitude), LIMB)
        magnitude = magnitude << room | limbs[i] >> (LIMB - room)
        rest |= limbs[i] & ((np.int64(1) << (LIMB - room)) - 1)
        exponent -= room
    return negative, magnitude | np.int64(rest != 0), exponent


@_compiled
def _add(limbs, sign, magnitude, offset):
    """Add sign * magnitude * 2^offset; magnitude < 2^62."""
    for part, start in ((magnitude & 0x7FFFFFFF, offset), (magnitude >> 31, offset + 31)):
        place, shifted = start // LIMB, part << (start % LIMB)
        limbs[place] += sign * (shifted & 0xFFFFFFFF)
        limbs[place + 1] += sign * (shifted >> LIMB)


@_compiled
def _top(terms, i):
    """No bit of the term is as high as this."""
    return terms[i, 2] + _bit_length(abs(terms[i, 0])) + _bit_length(abs(terms[i, 1]))


@_compiled
def _close_gap(terms, result_bits):
    """Of two terms, one that lies below all that the rounding of the other can see only has to stay non-zero."""
    for small in range(2):
        seen = min(terms[1 - small, 2], _top(terms, 1 - small) - result_bits - 6)
        if _top(terms, small) <= seen:
            terms[small, 0] = 1 if (terms[small, 0] < 0) == (terms[small, 1] < 0) else -1
            terms[small, 1], terms[small, 2] = 1, seen - 1
            return


@_compiled
def _carry(limbs, size):
    """Limbs brought to 0 .. 2^32 - 1, but for the last, which keeps the sign."""
    for i in range(size - 1):
        limbs[i + 1] += limbs[i] >> LIMB
        limbs[i] &= 0xFFFFFFFF


@_compiled
def _integer_sums(index, nodes, products, others, formats, a, b, results):
    node, fmt = nodes[index], formats[OTHERS + index]
    for row in range(results.shape[1]):
        total = np.int64(0)
        for i in range(node.first_product, node.end_products):
            total += _integer(a[row, products[i]], formats[A]) * _integer(b[row, products[i]], formats[B])
        for i in range(node.first_other, node.end_others):
            pattern, place = results[others[i], row], OTHERS + others[i]
            total += _integer(pattern, formats[place])
        if node.overflow:
            total = min(max(total, -fmt.largest - 1), fmt.largest)
        results[index, row] = total & ((np.int64(1) << fmt.bits) - 1)


@_compiled
def _put_specials(index, nodes, products, others, formats, a, b, results, special):
    """Infinities and NaNs put where the terms have them; results that are none now make their rows special ones."""
    node, fmt = nodes[index], formats[OTHERS + index]
    for row in range(results.shape[1]):
        if special[row]:
            nan, infinities = _special_terms(row, node, products, others, formats, a, b, results)
            if nan or infinities == 3:
                results[index, row] = _nan(row, node, products, others, formats, a, b, results)
            elif infinities:
                results[index, row] = fmt.infinity | (fmt.sign_bit if infinities == 2 else np.int64(0))
        special[row] |= _special(results[index, row], fmt)


@_compiled
def _special_terms(row, node, products, others, formats, a, b, results):
    """(whether a term is NaN, 1 where one is +Inf, 2 where one is -Inf, or both)."""
    nan, infinities = False, 0
    for i in range(node.first_product, node.end_products):
        x, y = a[row, products[i]], b[row, products[i]]
        kind_x, kind_y = _special(x, formats[A]), _special(y, formats[B])
        if kind_x | kind_y:
            zero = (kind_x == 0 and _significand(x, formats[A]) == 0) or (kind_y == 0 and _significand(y, formats[B]) == 0)
            nan |= zero or kind_x == 2 or kind_y == 2
            infinities |= 1 if _is_negative(x, formats[A]) == _is_negative(y, formats[B]) else 2
    for i in range(node.first_other, node.end_others):
        pattern, place = results[others[i], row], OTHERS + others[i]
        kind = _special(pattern, formats[place])
        nan |= kind == 2
        if kind:
            infinities |= 2 if _is_negative(pattern, formats[place]) else 1
    return nan, infinities


@_compiled
def _nan(row, node, products, others, formats, a, b, results):
    """The first NaN operand made quiet, where payloads pass through, else the usual one."""
    quiet = np.int64(1) << (formats[OTHERS].mantissa - 1)
    for position in (100, 10, 1):
        letter = node.nan_payload // position % 10
        if letter == 3:
            for i in range(node.first_other, node.end_others):
                pattern, place = results[others[i], row], OTHERS + others[i]
                if _special(pattern, formats[place]) == 2:
                    return pattern | quiet
        elif letter:
            operand = a if letter == 1 else b
            for i in range(node.first_product, node.end_products):
                if _special(operand[row, products[i]], formats[letter - 1]) == 2:
                    return operand[row, products[i]] | quiet
    return node.nan

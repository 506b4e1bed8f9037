"""Vectorised sums, compiled by numba: one row of A with LANES columns of B at once.

Fused sums are exact in float64, as in the reference (`accprobe.evaluate.reference`). LLVM turns each loop over lanes into
vector instructions. One compilation serves every model. Import this module only where it is needed: it imports numba, which
takes a few tenths of a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, vectorize
from numba.extending import intrinsic

from accprobe.evaluate.decoding import ABSENT
from accprobe.evaluate.steps import LANES, WHOLE_BY

# Decorates functions without type annotations, which numba infers; mypy does not know records.
_compiled = njit(nogil=True, cache=True, error_model="numpy")

_BIAS, _FRACTION = 1023, 52

_TRUNCATE, _NEAREST, _NEAREST_AWAY, _CEILING, _FLOOR, _STICKY, _AWAY = (
    WHOLE_BY[word] for word in ("truncate", "nearest", "nearest away", "ceiling", "floor", "sticky", "away")
)


@intrinsic
def _multiply_add(typing_context: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x * y + z, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return x(x, y, z), generate


@vectorize("float32(float32, float32, float32)", cache=True)
def multiply_add_singles(x, y, z):
    """Return x * y + z of float32 numbers, rounded once."""
    return _multiply_add(x, y, z)


@_compiled
def _away(x):
    return np.copysign(np.ceil(abs(x)), x)


@_compiled
def _make_whole(values, rule):
    """Round values [LANES] to integers, in place."""
    if rule == _NEAREST:
        for lane in range(LANES):
            values[lane] = np.rint(values[lane])
    elif rule == _NEAREST_AWAY:
        for lane in range(LANES):
            whole = np.trunc(values[lane])
            values[lane] = whole + np.copysign(np.float64(abs(values[lane] - whole) >= 0.5), values[lane])
    elif rule == _CEILING:
        for lane in range(LANES):
            values[lane] = np.ceil(values[lane])
    elif rule == _FLOOR:
        for lane in range(LANES):
            values[lane] = np.floor(values[lane])
    elif rule == _STICKY:
        for lane in range(LANES):
            x = values[lane]
            whole = np.trunc(x)
            even = whole * 0.5 == np.trunc(whole * 0.5)
            values[lane] = _away(x) if even & (whole != x) else whole
    elif rule == _AWAY:
        for lane in range(LANES):
            values[lane] = _away(values[lane])
    else:
        for lane in range(LANES):
            values[lane] = np.trunc(values[lane])


@_compiled
def multiply_adds(fused, a, b, running):
    """Compute as `sums_in_turn`, with multiply-adds rounded to float32 or float64."""
    for row in range(len(a)):
        x, total = a[row], running[row]
        for k in range(len(b)):
            if fused:
                for lane in range(LANES):
                    total[lane] = _multiply_add(x[k], b[k, lane], total[lane])
            else:
                for lane in range(LANES):
                    total[lane] += x[k] * b[k, lane]


@_compiled
def window_sums(first, second, root, k, values, starts, sums):
    """Add the k values from each start: slot first[i] += slot second[i], in turn; slot k holds zero. Write `sums` [starts]."""
    slots = np.zeros((k + 1, LANES), values.dtype)
    for left in range(0, len(starts), LANES):
        count = min(LANES, len(starts) - left)
        for low in range(0, k, LANES):
            for lane in range(count):
                window = values[starts[left + lane] + low : starts[left + lane] + min(k, low + LANES)]
                for i in range(len(window)):
                    slots[low + i, lane] = window[i]
        for i in range(len(first)):
            total, term = slots[first[i]], slots[second[i]]
            for lane in range(LANES):
                total[lane] += term[lane]
        for lane in range(count):
            sums[left + lane] = slots[root, lane]


@_compiled
def sums_in_turn(nodes, others, least_addend, a, a_exponents, b, b_exponents, running, doubtful):
    """Compute a chain of fused sums along K, of rows of A with LANES columns of B.

    nodes: `steps.NODE` records of a step. others: node numbers of the terms that are not products; len(nodes) stands for C.
    least_addend: smaller C are read as zero.
    a: [rows, K], b: [K, LANES], with their exponents.
    running: [rows, LANES], in and out.
    doubtful: [rows, LANES], set where a sum is too large or too small, or a zero with a sign that depends on its terms.
    """
    products = nodes[len(nodes) - 1].end_products
    results, total = np.empty((len(nodes) + 1, LANES)), np.empty(LANES)
    work, exponents = np.empty((2, LANES)), np.empty(LANES, np.int16)
    for start in range(0, len(b), products):
        for row in range(len(a)):
            for lane in range(LANES):
                c = running[row, lane]
                results[len(nodes), lane] = c if abs(c) >= least_addend else c * 0.0
            first, first_other = start, 0
            for index in range(len(nodes)):
                node = nodes[index]
                end, terms = start + node.end_products, others[first_other : node.end_others]
                x, y = a[row, first:end], b[first:end]
                if node.exact:
                    _exact_sum(x, y, terms, results, total, work)
                else:
                    x_exponents, y_exponents = a_exponents[row, first:end], b_exponents[first:end]
                    _largest_exponent(node, nodes, terms, x, y, x_exponents, y_exponents, results, exponents, work)
                    _aligned_sum(node, terms, x, y, results, exponents, total, work)
                _round(node, total, results[index], doubtful[row], work)
                first, first_other = end, node.end_others
            running[row] = results[len(nodes) - 1]


@_compiled
def _leading(bits):
    """Return the exponent of a float64's leading bit, given its bits."""
    return ((bits >> _FRACTION) & 0x7FF) - _BIAS


@_compiled
def _largest_exponent(node, nodes, terms, a, b, a_exponents, b_exponents, results, exponents, work):
    exponents[:] = node.lowest
    if node.by_product:
        magnitudes = work[0]
        magnitudes[:] = 0.0
        for k in range(len(b)):
            for lane in range(LANES):
                magnitudes[lane] = max(magnitudes[lane], abs(a[k] * b[k, lane]))
        bits = magnitudes.view(np.int64)
        for lane in range(LANES):
            exponent = np.int16(_leading(bits[lane]))
            exponents[lane] = exponent if magnitudes[lane] != 0.0 and exponent > exponents[lane] else exponents[lane]
    else:
        for k in range(len(b)):
            for lane in range(LANES):
                exponents[lane] = max(exponents[lane], np.int16(a_exponents[k] + b_exponents[k, lane]))
    for term in terms:
        least = nodes[min(term, len(nodes) - 1)].min_exponent
        values = results[term]
        bits = values.view(np.int64)
        for lane in range(LANES):
            exponent = np.int16(max(_leading(bits[lane]), least))
            exponents[lane] = exponent if values[lane] != 0.0 and exponent > exponents[lane] else exponents[lane]
    for lane in range(LANES):
        exponents[lane] = exponents[lane] if exponents[lane] > ABSENT else 0


@_compiled
def _aligned_sum(node, terms, a, b, results, exponents, total, work):
    scale, rounded, below = work[0], work[1], node.alignment_bits
    bits = scale.view(np.int64)
    for lane in range(LANES):
        bits[lane] = (below + _BIAS - exponents[lane]) << _FRACTION
        total[lane] = 0.0
    for term in terms:
        values = results[term]
        for lane in range(LANES):
            rounded[lane] = values[lane] * scale[lane]
        _make_whole(rounded, node.alignment_rounding)
        for lane in range(LANES):
            total[lane] += rounded[lane]
    rule = node.alignment_rounding
    for k in range(len(b)):
        x, y = a[k], b[k]
        if rule == _TRUNCATE:
            for lane in range(LANES):
                total[lane] += np.trunc(x * y[lane] * scale[lane])
        else:
            for lane in range(LANES):
                rounded[lane] = x * y[lane] * scale[lane]
            _make_whole(rounded, rule)
            for lane in range(LANES):
                total[lane] += rounded[lane]
    for lane in range(LANES):
        bits[lane] = (exponents[lane] - below + _BIAS) << _FRACTION
    for lane in range(LANES):
        total[lane] *= scale[lane]


@_compiled
def _exact_sum(a, b, terms, results, total, work):
    """Add at most two terms, rounded to odd in 53 bits (`error_free.rounded_to_odd`)."""
    x, y = work[0], work[1]
    bits = total.view(np.int64)
    x[:] = results[terms[0]] if len(terms) else a[0] * b[0]
    if len(terms) + len(b) < 2:
        total[:] = x
        return
    y[:] = a[len(b) - 1] * b[len(b) - 1] if len(b) else results[terms[1]]
    for lane in range(LANES):
        total[lane] = x[lane] + y[lane]
        part = total[lane] - x[lane]
        error = (x[lane] - (total[lane] - part)) + (y[lane] - part)
        inexact = np.int64(error != 0.0)
        bits[lane] = bits[lane] - (inexact & np.int64((error < 0.0) != (total[lane] < 0.0))) | inexact


@_compiled
def _round(node, total, result, doubtful, work):
    whole, scale = work[0], work[1]
    bits, scale_bits = total.view(np.int64), scale.view(np.int64)
    zero, min_exponent, result_bits, least, most = node.zero, node.min_exponent, node.result_bits, node.least, node.most
    underflow_is_positive, doubts_zeros = node.underflow_is_positive != 0, node.doubts_zeros != 0
    for lane in range(LANES):
        total[lane] += zero
    for lane in range(LANES):
        quantum = max(_leading(bits[lane]), min_exponent) - result_bits
        scale_bits[lane] = (_BIAS - quantum) << _FRACTION
        whole[lane] = total[lane] * scale[lane]
    _make_whole(whole, node.result_rounding)
    for lane in range(LANES):
        scale_bits[lane] = (2 * _BIAS << _FRACTION) - scale_bits[lane]
        value = whole[lane] * scale[lane]
        exact = total[lane]
        result[lane] = 0.0 if underflow_is_positive & (value == 0.0) & (exact != 0.0) else value
        size = abs(exact)
        doubtful[lane] |= np.uint8((size > most) | (exact != 0.0) & (size < least) | (exact == 0.0) & doubts_zeros)

"""Vectorised sums in float64, compiled by numba: one row of A with LANES columns of B at once, or one row for each column.

float64 is exact here, as in the reference (`accprobe.evaluate.reference`). The loops over products are LLVM vectors of LANES
numbers, so that sums stay in registers. One compilation serves every model. Import this module only where it is needed: it
imports numba, which takes a few tenths of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from accprobe.evaluate.decoding import ABSENT
from accprobe.evaluate.steps import LANES, WHOLE_BY

# One LLVM value, a number or a vector.
_Value: TypeAlias = Any

# Decorates functions without type annotations, which numba infers; mypy does not know records.
_compiled = njit(nogil=True, cache=True, error_model="numpy")

_BIAS, _FRACTION = 1023, 52


class _Numbers(NamedTuple):
    """Pointer to an array. by_lane: whether the k-th number differs between lanes."""

    first: _Value
    by_lane: bool


class _Code:
    """Code generator of one loop."""

    def __init__(self, context: Any, builder: Any) -> None:
        self._context, self.builder = context, builder

    def numbers(self, array: _Value, kind: Any) -> _Numbers:
        return _Numbers(self._context.make_array(kind)(self._context, self.builder, array).data, kind.ndim > 1)

    def lanes(self, array: _Numbers) -> _Value:
        """Load the first LANES numbers."""
        return self.builder.load(self._place(array.first), align=1)

    def at(self, array: _Numbers, k: _Value) -> _Value:
        """Load the k-th number of each lane, or broadcast the k-th number."""
        if array.by_lane:
            return self.builder.load(
                self._place(self.builder.gep(array.first, [self.builder.mul(k, _integer(LANES))])), align=1
            )
        number = self.builder.load(self.builder.gep(array.first, [k]))
        nothing = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.builder.shuffle_vector(self.builder.insert_element(nothing, number, ir.IntType(32)(0)), nothing, zeros)

    def store(self, value: _Value, array: _Numbers) -> None:
        self.builder.store(value, self._place(array.first), align=1)

    def _place(self, first: _Value) -> _Value:
        return self.builder.bitcast(first, ir.VectorType(first.type.pointee, LANES).as_pointer())

    def call(self, name: str, *values: _Value) -> _Value:
        """Call the LLVM intrinsic of that name."""
        vector = values[0].type
        function_type = ir.FunctionType(vector, [vector] * len(values))
        element = "f32" if vector.element == ir.FloatType() else "f64"
        function = cgutils.get_or_insert_function(self.builder.module, function_type, f"llvm.{name}.v{LANES}{element}")
        return self.builder.call(function, values)

    def over(self, n: _Value, array: _Numbers, step: Callable[[_Value, _Value], _Value]) -> None:
        """Replace the array's LANES numbers x by step(k, x) for each k below n."""
        builder, before, start = self.builder, self.builder.block, self.lanes(array)
        body, after = (builder.append_basic_block(name) for name in ("products", "after"))
        builder.cbranch(builder.icmp_signed(">", n, _integer(0)), body, after)
        builder.position_at_end(body)
        k, running = builder.phi(n.type), builder.phi(start.type)
        made, following = step(k, running), builder.add(k, _integer(1))
        for phi, first, next_one in ((k, _integer(0), following), (running, start, made)):
            phi.add_incoming(first, before)
            phi.add_incoming(next_one, body)
        builder.cbranch(builder.icmp_signed("<", following, n), body, after)
        builder.position_at_end(after)
        result = builder.phi(start.type)
        result.add_incoming(start, before)
        result.add_incoming(made, body)
        self.store(result, array)

    def by_rule(self, rule: _Value, write: Callable[[Callable[[_Value], _Value]], None]) -> None:
        """Generate `write` for each rounding to integers, and a switch on `rule`."""
        ways: dict[str, Callable[[_Value], _Value]] = {
            "truncate": partial(self.call, "trunc"),
            "nearest": partial(self.call, "rint"),
            "nearest away": partial(self.call, "round"),
            "ceiling": partial(self.call, "ceil"),
            "floor": partial(self.call, "floor"),
            "sticky": self._sticky,
            "away": self._away,
        }
        after = self.builder.append_basic_block("chosen")
        switch = self.builder.switch(rule, after)
        for word, way in ways.items():
            block = self.builder.append_basic_block("rule")
            switch.add_case(_integer(WHOLE_BY[word]), block)
            self.builder.position_at_end(block)
            write(way)
            self.builder.branch(after)
        self.builder.position_at_end(after)

    def _away(self, x: _Value) -> _Value:
        return self.call("copysign", self.call("ceil", self.call("fabs", x)), x)

    def _sticky(self, x: _Value) -> _Value:
        """Make truncated even numbers odd, away from zero."""
        builder, whole = self.builder, self.call("trunc", x)
        half = builder.fmul(whole, ir.Constant(x.type, [0.5] * LANES))
        even = builder.fcmp_ordered("==", half, self.call("trunc", half))
        jammed = builder.and_(even, builder.fcmp_ordered("!=", whole, x))
        return builder.select(jammed, self._away(x), whole)


def _integer(number: int) -> _Value:
    return ir.Constant(ir.IntType(64), number)


def _written(write: Callable[..., None], *kinds: Any) -> tuple[Any, Any]:
    """Return the signature and code generator of an intrinsic without result, whose code is generated by `write`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = _Code(context, builder)
        pairs = zip(arguments, signature.args, strict=True)
        write(code, *(code.numbers(value, kind) if isinstance(kind, types.Array) else value for value, kind in pairs))
        return context.get_dummy_value()

    return types.void(*kinds), generate


@intrinsic
def _make_whole(typing_context: Any, values: Any, rule: Any) -> Any:
    """Round values [LANES] to integers, in place."""

    def write(code: _Code, values: _Numbers, rule: _Value) -> None:
        code.by_rule(rule, lambda way: code.store(way(code.lanes(values)), values))

    return _written(write, values, rule)


@intrinsic
def _raise_to_exponents(typing_context: Any, a: Any, b: Any, n: Any, largest: Any) -> Any:
    """Raise largest [LANES] to the largest sum of exponents a [n] or [n, LANES] and b [n, LANES]."""

    def write(code: _Code, a: _Numbers, b: _Numbers, n: _Value, largest: _Numbers) -> None:
        def step(k: _Value, most: _Value) -> _Value:
            exponent = code.builder.add(code.at(a, k), code.at(b, k))
            return code.builder.select(code.builder.icmp_signed(">", exponent, most), exponent, most)

        code.over(n, largest, step)

    return _written(write, a, b, n, largest)


@intrinsic
def _raise_to_products(typing_context: Any, a: Any, b: Any, n: Any, largest: Any) -> Any:
    """Raise largest [LANES] to the largest magnitude of a product of a [n] or [n, LANES] and b [n, LANES]."""

    def write(code: _Code, a: _Numbers, b: _Numbers, n: _Value, largest: _Numbers) -> None:
        def step(k: _Value, most: _Value) -> _Value:
            magnitude = code.call("fabs", code.builder.fmul(code.at(a, k), code.at(b, k)))
            return code.builder.select(code.builder.fcmp_ordered(">", magnitude, most), magnitude, most)

        code.over(n, largest, step)

    return _written(write, a, b, n, largest)


@intrinsic
def _add_rounded_products(typing_context: Any, a: Any, b: Any, n: Any, scale: Any, rule: Any, total: Any) -> Any:
    """Add to total [LANES] the products of a [n] or [n, LANES] and b [n, LANES], times scale [LANES], rounded to integers."""

    def write(code: _Code, a: _Numbers, b: _Numbers, n: _Value, scale: _Numbers, rule: _Value, total: _Numbers) -> None:
        factor = code.lanes(scale)

        def each(way: Callable[[_Value], _Value]) -> None:
            def step(k: _Value, running: _Value) -> _Value:
                product = code.builder.fmul(code.at(a, k), code.at(b, k))
                return code.builder.fadd(running, way(code.builder.fmul(product, factor)))

            code.over(n, total, step)

        code.by_rule(rule, each)

    return _written(write, a, b, n, scale, rule, total)


@intrinsic
def _multiply_add(typing_context: Any, a: Any, b: Any, n: Any, total: Any) -> Any:
    """Add to total [LANES] the products of a [n] or [n, LANES] and b [n, LANES] in turn, by fused multiply-adds."""

    def write(code: _Code, a: _Numbers, b: _Numbers, n: _Value, total: _Numbers) -> None:
        code.over(n, total, lambda k, running: code.call("fma", code.at(a, k), code.at(b, k), running))

    return _written(write, a, b, n, total)


@intrinsic
def _multiply_then_add(typing_context: Any, a: Any, b: Any, n: Any, total: Any) -> Any:
    """As `_multiply_add`, but round each product before it is added."""

    def write(code: _Code, a: _Numbers, b: _Numbers, n: _Value, total: _Numbers) -> None:
        def step(k: _Value, running: _Value) -> _Value:
            return code.builder.fadd(running, code.builder.fmul(code.at(a, k), code.at(b, k)))

        code.over(n, total, step)

    return _written(write, a, b, n, total)


@_compiled
def look_up(patterns, order, tables, which, found):
    """Write to found [lines, K] the table entries of patterns [lines, K], in the order of each step."""
    lines, steps, width = len(patterns), patterns.shape[1] // len(order), len(order)
    for line in range(lines):
        for step in range(0, steps * width, width):
            for place in range(width):
                found[line, step + place] = tables[which[place], patterns[line, step + order[place]]]


@_compiled
def multiply_adds(fused, a, b, running):
    """As `sums_in_turn`, of multiply-adds rounded to float32 or float64."""
    for row in range(len(a)):
        if fused:
            _multiply_add(a[row], b, len(b), running[row])
        else:
            _multiply_then_add(a[row], b, len(b), running[row])


@_compiled
def sums_in_turn(nodes, others, least_addend, a, a_exponents, b, b_exponents, running, doubtful):
    """Compute a chain of fused sums along K, of rows of A with LANES columns of B.

    nodes: `steps.NODE` records of a step. others: node numbers of the terms that are not products; the last number stands for
    C. least_addend: smaller C are read as zero.
    a [rows, K], or [rows, K, LANES] if each column has its own rows, b [K, LANES] and their exponents; running [rows, LANES],
    in and out. doubtful [rows, LANES]: set where a sum is too large or too small, or a zero whose sign depends on its terms.
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
        _raise_to_products(a, b, len(b), magnitudes)
        bits = magnitudes.view(np.int64)
        for lane in range(LANES):
            exponent = np.int16(_leading(bits[lane]))
            exponents[lane] = exponent if magnitudes[lane] != 0.0 and exponent > exponents[lane] else exponents[lane]
    else:
        _raise_to_exponents(a_exponents, b_exponents, len(b), exponents)
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
    scale, cut, below = work[0], work[1], node.alignment_bits
    bits = scale.view(np.int64)
    for lane in range(LANES):
        bits[lane] = (below + _BIAS - exponents[lane]) << _FRACTION
        total[lane] = 0.0
    for term in terms:
        values = results[term]
        for lane in range(LANES):
            cut[lane] = values[lane] * scale[lane]
        _make_whole(cut, node.alignment_rounding)
        for lane in range(LANES):
            total[lane] += cut[lane]
    _add_rounded_products(a, b, len(b), scale, node.alignment_rounding, total)
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

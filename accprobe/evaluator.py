"""The exact evaluator of `DotModel`, on numpy arrays of bit patterns.

`evaluate` is the one way in. Behind it stand two implementations that give the same bits: this one, in numpy, which is the
reference, and `accprobe.fast_evaluator`, compiled by numba, for whom that is installed and has much to evaluate.

A fused sum with finite alignment bits is computed in float64, where every step is exact by construction: a product of two
operands of at most 24 bits, a multiplication by a power of two, the cut to an integer, and a sum of integers that fits in
53 bits (`model.SUM_BITS`, checked when the model is made). A sum that is exact (a separate add, an FMA) and everything in
f64 goes through integer limbs (`accprobe.limbs`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe import limbs, rounding
from accprobe.errors import AccprobeError
from accprobe.formats import Bits, Fields, Format
from accprobe.instructions import Instruction
from accprobe.model import DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, Subnormals

Floats = NDArray[np.float64]

CHUNK = 1 << 15
"""Products evaluated at once: few enough for the arrays to stay in a core's cache."""


STEP = 1 << 20
"""Products after which a long evaluation looks again at which implementation to go on with."""

LOADING, COMPILING = 0.5, 10.0
"""Seconds that the compiled evaluator takes to load, and the first time on a machine to compile."""

Implementation = Callable[[DotModel, Instruction, Bits, Bits, Bits], Bits]


def evaluate(model: DotModel, inst: Instruction, a: Bits, b: Bits, c: Bits) -> Bits:
    """N dot products: a, b [N, K], c [N] -> d [N]; see `DotModel.evaluate`."""
    _check(model, inst, a, b, c)
    d = np.empty(len(c), inst.d.dtype)
    start = 0
    while start < len(c):
        compiled = _choice.compiled()
        part = slice(start, len(c) if compiled else start + max(1, STEP // inst.k))
        d[part] = (compiled or _choice.with_numpy)(model, inst, a[part], b[part], c[part])
        start = part.stop
    return d


def with_numpy(model: DotModel, inst: Instruction, a: Bits, b: Bits, c: Bits) -> Bits:
    """As `evaluate`, of operands that fit, and in numpy whatever is installed."""
    d = np.empty(len(c), inst.d.dtype)
    step = max(1, CHUNK // inst.k)
    with np.errstate(all="ignore"):
        for start in range(0, len(c), step):
            part = slice(start, start + step)
            d[part] = _Chunk(model, inst, a[part], b[part], c[part]).sum(model.root)
    return d


class _Choice:
    """Numpy until it has taken as long as the compiled evaluator needs to be ready: who waits, waits twice as long at most."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._compiled: Implementation | None = None
        installed = importlib.util.find_spec("numba") is not None
        self._patience = (LOADING if _is_on_disk() else COMPILING) if installed else float("inf")

    def compiled(self) -> Implementation | None:
        if self._compiled is None and self._spent > self._patience:
            try:
                from accprobe.fast_evaluator import evaluate
            except (ImportError, RuntimeError):  # a numba that does not go with this numpy, or has nowhere to keep its code
                self._patience = float("inf")
            else:
                self._compiled = evaluate
        return self._compiled

    def with_numpy(self, model: DotModel, inst: Instruction, a: Bits, b: Bits, c: Bits) -> Bits:
        started = time.perf_counter()
        d = with_numpy(model, inst, a, b, c)
        self._spent += time.perf_counter() - started
        return d


def _is_on_disk() -> bool:
    """Whether numba has kept the compiled evaluator for this Python (it compiles once more where the source has changed)."""
    folder, python = Path(__file__).with_name("__pycache__"), f"py{sys.version_info[0]}{sys.version_info[1]}"
    return any(folder.glob(f"fast_evaluator._run-*.{python}.nbi"))


_choice = _Choice()
_processes = 1


def share_cores(processes: int) -> None:
    """Leave cores to so many processes, this one among them, that evaluate at the same time."""
    global _processes
    _processes = processes


def cores() -> int:
    """Cores that this process evaluates on."""
    return max(1, len(os.sched_getaffinity(0)) // _processes)


def _check(model: DotModel, inst: Instruction, a: Bits, b: Bits, c: Bits) -> None:
    for name, array, fmt, shape in (
        ("a", a, inst.a, (len(c), inst.k)),
        ("b", b, inst.b, (len(c), inst.k)),
        ("c", c, inst.c, (len(c),)),
    ):
        if array.dtype != fmt.dtype or array.shape != shape:
            raise AccprobeError(f"{inst.name}: {name} is {array.dtype}{list(array.shape)}, expected {fmt.dtype}{list(shape)}")
    floats = [x for x in model.arithmetics if isinstance(x, FloatArithmetic)]
    aligned = any(x.alignment_bits is not None for x in floats)
    if inst.a.name == "f64" and aligned:
        raise AccprobeError(f"{inst.name}: sums of f64 products are evaluated with exact alignment only")
    if any(x.nan_payload != "dropped" for x in floats) and (aligned or len({inst.a, inst.b, inst.c, inst.d}) > 1):
        raise AccprobeError(f"{inst.name}: NaN operands pass through exact sums of one format only")
    if model.products != inst.k:
        raise AccprobeError(f"{inst.name} has {inst.k} products, the model {model.products}")


class _Chunk:
    """A few dot products, a and b transposed to [K, n]."""

    def __init__(self, model: DotModel, inst: Instruction, a: Bits, b: Bits, c: Bits) -> None:
        self.model, self.inst, self.c = model, inst, c
        self.a, self.b = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)

    def sum(self, node: FusedSum) -> Bits:
        """The node's results, [n]."""
        arithmetic = node.arithmetic
        if isinstance(arithmetic, IntegerArithmetic):
            return self._integer_sum(node, arithmetic)
        if arithmetic.alignment_bits is None:
            return self._exact_sum(node, arithmetic)
        return self._aligned_sum(node, arithmetic, arithmetic.alignment_bits)

    def _others(self, node: FusedSum) -> Iterator[tuple[Bits, Format, Subnormals]]:
        """The terms that are not products."""
        for child in node.children:
            yield self.sum(child), child.arithmetic.result, "kept"
        if node.has_addend:
            yield self.c, self.inst.c, self.model.subnormal_addend

    def _operands(self, node: FusedSum) -> tuple[Bits, Bits]:
        ks = node.products
        whole = slice(ks[0], ks[-1] + 1) if ks == tuple(range(ks[0], ks[-1] + 1)) else list(ks)
        return self.a[whole], self.b[whole]

    def _integer_sum(self, node: FusedSum, arithmetic: IntegerArithmetic) -> Bits:
        total = np.zeros(len(self.c), np.int64)
        if node.products:
            a, b = self._operands(node)
            total += (self.inst.a.integers(a) * self.inst.b.integers(b)).sum(axis=0)
        for patterns, fmt, _ in self._others(node):
            total += fmt.integers(patterns)
        result = arithmetic.result
        if arithmetic.overflow == "saturate":
            total = np.clip(total, -result.largest - 1, result.largest)
        return total.astype(result.dtype)

    def _aligned_sum(self, node: FusedSum, arithmetic: FloatArithmetic, alignment_bits: int) -> Bits:
        terms, powers = self._terms(node, arithmetic)
        naive = terms.sum(axis=0)
        negative = np.signbit(terms).all(axis=0) if arithmetic.zero_sign == "ieee" else None
        largest = powers.max(axis=0)
        if arithmetic.min_exponent is not None:
            np.maximum(largest, 2.0**arithmetic.min_exponent, out=largest)
        largest[(largest == 0) | ~np.isfinite(naive)] = 1.0
        terms *= 2.0**alignment_bits / largest
        total = _cut(terms, arithmetic).sum(axis=0)
        total[~np.isfinite(naive)] = 0.0
        exponent = _exponent(largest) - alignment_bits
        patterns = rounding.encode(total < 0, np.abs(total).astype(np.int64), exponent, arithmetic)
        if negative is not None:
            patterns[(total == 0) & negative] = arithmetic.result.sign_bit
        return _with_specials(patterns, naive, arithmetic)

    def _terms(self, node: FusedSum, arithmetic: FloatArithmetic) -> tuple[Floats, Floats]:
        """All terms' values, and 2^exponent of each that takes part in the alignment (else 0); each [terms, n]."""
        others = list(self._others(node))
        count = len(node.products)
        values = np.empty((count + len(others), len(self.c)))
        powers = np.empty_like(values)
        if count:
            a, b = self._operands(node)
            kept = self.model.subnormal_operands
            np.multiply(_value(a, self.inst.a, kept), _value(b, self.inst.b, kept), out=values[:count])
            if arithmetic.product_exponent == "normalised product":
                powers[:count] = _leading(values[:count])
            else:
                normalised = arithmetic.product_exponent == "normalised operands"
                counted = arithmetic.zero_terms == "aligned"
                power_a, power_b = (_power(x, f, normalised, counted) for x, f in ((a, self.inst.a), (b, self.inst.b)))
                np.multiply(power_a, power_b, out=powers[:count])
                if kept == "flushed" and not counted:
                    powers[:count][values[:count] == 0] = 0.0
        for i, (patterns, fmt, subnormals) in enumerate(others, count):
            values[i] = _value(patterns, fmt, subnormals)
            powers[i] = _power(patterns, fmt, normalised=False, counted=False)
            powers[i][values[i] == 0] = 0.0
        return values, powers

    def _exact_sum(self, node: FusedSum, arithmetic: FloatArithmetic) -> Bits:
        inst, total = self.inst, limbs.Sum(len(self.c))
        naive: Floats = np.zeros(len(self.c))
        negative = np.ones(len(self.c), bool)
        for k in node.products:
            (fa, va), (fb, vb) = (
                _fields(x[k], f, self.model.subnormal_operands) for x, f in ((self.a, inst.a), (self.b, inst.b))
            )
            lowest = fa.exponent + fb.exponent - inst.a.mantissa_bits - inst.b.mantissa_bits
            total.add_product(fa.negative ^ fb.negative, fa.significand, fb.significand, lowest)
            naive += va * vb
            negative &= fa.negative ^ fb.negative
        others = list(self._others(node))
        for patterns, fmt, subnormals in others:
            f, v = _fields(patterns, fmt, subnormals)
            total.add(f.negative, f.significand, f.exponent - fmt.mantissa_bits)
            naive += v
            negative &= f.negative
        sign, magnitude, exponent = total.total()
        patterns = rounding.encode(sign, magnitude, exponent, arithmetic)
        if arithmetic.zero_sign == "ieee":
            patterns[(magnitude == 0) & negative] = arithmetic.result.sign_bit
        patterns = _with_specials(patterns, naive, arithmetic)
        if arithmetic.nan_payload == "dropped" or not np.isnan(naive).any():
            return patterns
        operands = {
            "a": [self.a[k] for k in node.products],
            "b": [self.b[k] for k in node.products],
            "c": [o[0] for o in others],
        }
        return _with_payloads(
            patterns, [x for letter in arithmetic.nan_payload.split() for x in operands[letter]], arithmetic.result
        )


def _cut(aligned: Floats, arithmetic: FloatArithmetic) -> Floats:
    """Terms in units of the last kept bit, cut to integers (in place)."""
    match arithmetic.alignment_rounding:
        case "truncate":
            return np.trunc(aligned, out=aligned)
        case "floor":
            return np.floor(aligned, out=aligned)
        case "nearest":
            return np.rint(aligned, out=aligned)
        case "sticky":
            whole = np.trunc(aligned)
            jammed = (whole != aligned) & (np.fmod(whole, 2.0) == 0)
            whole[jammed] += np.copysign(1.0, aligned[jammed])
            return whole


def _with_specials(patterns: Bits, naive: Floats, arithmetic: FloatArithmetic) -> Bits:
    """Infinities and NaNs put where the plain float64 sum of the terms has them."""
    if not np.isfinite(naive).all():
        fmt = arithmetic.result
        positive, sign = fmt.dtype.type(fmt.infinity or 0), fmt.dtype.type(fmt.sign_bit)
        infinity = np.where(naive > 0, positive, positive | sign)
        patterns = np.where(np.isinf(naive), infinity, patterns)
        patterns = np.where(np.isnan(naive), fmt.dtype.type(arithmetic.nan), patterns)
    return patterns


def _with_payloads(patterns: Bits, operands: list[Bits], fmt: Format) -> Bits:
    """The first NaN operand of each row put in, made quiet."""
    quiet = fmt.dtype.type(1 << (fmt.mantissa_bits - 1))
    for operand in reversed(operands):
        patterns = np.where(fmt.fields(operand).is_nan, operand | quiet, patterns)
    return patterns


class _Tables(NamedTuple):
    """Per code of a format of at most 16 bits: its value, and powers of two for the alignment."""

    kept: Floats
    flushed: Floats
    power: Floats
    power_counting_zero: Floats
    leading: Floats


@cache
def _tables(fmt: Format) -> _Tables:
    codes = np.arange(1 << fmt.storage_bits, dtype=fmt.dtype)
    return _Tables(
        _plain_value(codes, fmt, "kept"),
        _plain_value(codes, fmt, "flushed"),
        _plain_power(codes, fmt, normalised=False, counted=False),
        _plain_power(codes, fmt, normalised=False, counted=True),
        _plain_power(codes, fmt, normalised=True, counted=False),
    )


def _value(patterns: Bits, fmt: Format, subnormals: Subnormals) -> Floats:
    if fmt.storage_bits > 16:
        return _plain_value(patterns, fmt, subnormals)
    return (_tables(fmt).kept if subnormals == "kept" else _tables(fmt).flushed)[patterns]


def _power(patterns: Bits, fmt: Format, normalised: bool, counted: bool) -> Floats:
    if fmt.storage_bits > 16:
        return _plain_power(patterns, fmt, normalised, counted)
    tables = _tables(fmt)
    return (tables.leading if normalised else tables.power_counting_zero if counted else tables.power)[patterns]


def _plain_value(patterns: Bits, fmt: Format, subnormals: Subnormals) -> Floats:
    values = fmt.values(patterns & fmt.dtype.type((1 << fmt.storage_bits) - 1))
    if subnormals == "flushed":
        values[np.abs(values) < 2.0**fmt.min_exponent] *= 0.0
    return values


def _plain_power(patterns: Bits, fmt: Format, normalised: bool, counted: bool) -> Floats:
    """2^exponent of each operand; a zero's is 0 unless counted, and then that of the smallest normal number."""
    values = fmt.values(patterns)
    power = _leading(values)
    if not normalised:
        power = np.maximum(power, 2.0**fmt.min_exponent)
        if not counted:
            power[values == 0] = 0.0
    return power


def _leading(values: Floats) -> Floats:
    """2^floor(log2 |value|) of normal float64 numbers, 0 for 0."""
    return (values.view(np.int64) & np.int64(0x7FF << 52)).view(np.float64)


def _exponent(powers: Floats) -> NDArray[np.int64]:
    return (powers.view(np.int64) >> 52) - 1023


def _fields(patterns: Bits, fmt: Format, subnormals: Subnormals) -> tuple[Fields, Floats]:
    """The fields, finite ones where special, and a stand-in value (NaN, ±Inf, ±1 or 0) for the rules of specials."""
    f = fmt.fields(patterns)
    significand = np.where(f.is_nan | f.is_inf, 0, f.significand)
    if subnormals == "flushed":
        significand = np.where(significand < 1 << fmt.mantissa_bits, 0, significand)
    value = np.where(f.is_inf, np.inf, np.where(significand > 0, 1.0, 0.0))
    value = np.where(f.is_nan, np.nan, np.where(f.negative, -value, value))
    return f._replace(significand=significand), value

"""Chains of one fused sum after another, for many outputs at once, as compiled code computes them.

What it computes in vectors of float64 numbers (`accprobe.evaluate.lanes`) is exact. What it does not know is left to numpy:
whole models (`steps`), and of others the outputs that are doubtful: of NaNs and infinities, sums too large or too small for
their format, zeros whose sign depends on the signs of their terms.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.cores import cores
from accprobe.evaluate.decoding import exponents_of, values_of
from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.steps import LANES, CompiledStep
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import FloatArithmetic

WORTH = 1.5
"""Seconds of numpy: about as many as compiled code takes to load."""

Floats = NDArray[np.floating[Any]]
_Exponents = NDArray[np.int16]


class _Patience:
    """Numpy computes until it has done so much that the wait for compiled code is no longer than that took."""

    def __init__(self) -> None:
        self._done = 0.0

    def pays(self, seconds: float) -> bool:
        self._done += seconds
        return self._done >= WORTH and is_there()


pays = _Patience().pays
"""Whether compiled code is to compute what numpy would take so many seconds more for."""


@cache
def is_there() -> bool:
    """Whether numba is, goes with this numpy, and has somewhere to keep its code."""
    try:
        import accprobe.evaluate.lanes  # noqa: F401
    except (ImportError, RuntimeError):
        return False
    return True


class _Lines(NamedTuple):
    """Rows of A, or columns of B, [lines, K]; special: those with an operand that is no number, [lines]."""

    values: Floats
    exponents: _Exponents
    special: Truths


def sums(step: CompiledStep, inst: Instruction, a: Bits, b: Bits, start: Bits) -> tuple[Bits, Truths]:
    """A chain of that step: a [M, K], b [N, K], start [M, N], bit patterns -> sums [M, N], and which of them are doubtful.

    K is a multiple of the step's products, in the order in which they are taken.
    """
    from accprobe.evaluate import lanes

    if len(b) < min(len(a), LANES):
        other_way = replace(inst, a=inst.b, b=inst.a)
        turned, doubtful = sums(step, other_way, b, a, start.T)
        return turned.T, doubtful.T
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    running = _running(step, inst, start)
    doubtful = ~np.isfinite(running)
    rows = _lines(step, a, inst.a)
    doubtful |= rows.special[:, None]

    def panel(left: int, top: int, bottom: int) -> None:
        x, y = slice(left, left + LANES), slice(top, bottom)
        columns = _lines(step, b[x], inst.b)
        of_panel, odd = _padded(running[y, x]), np.zeros((bottom - top, LANES), np.uint8)
        across = _padded(columns.values.T), _padded(columns.exponents.T)
        if step.fused is None:
            of_rows = rows.values[y], rows.exponents[y]
            lanes.sums_in_turn(step.nodes, step.others, step.least_addend, *of_rows, *across, of_panel, odd)
        else:
            lanes.multiply_adds(step.fused, rows.values[y], across[0], of_panel)
        n = running[y, x].shape[1]
        running[y, x] = of_panel[:, :n]
        doubtful[y, x] |= (odd[:, :n] != 0) | columns.special

    m, lefts = len(a), range(0, len(b), LANES)
    parts = min(m, -(-cores() // max(1, len(lefts))))
    _share(panel, [(left, m * i // parts, m * (i + 1) // parts) for left in lefts for i in range(parts)])
    doubtful |= ~np.isfinite(running)
    return _patterns(running, inst), doubtful


def _running(step: CompiledStep, inst: Instruction, start: Bits) -> Floats:
    with np.errstate(all="ignore"):
        return inst.c.values(np.ascontiguousarray(start)).astype(step.dtype, copy=False)


def _patterns(values: Floats, inst: Instruction) -> Bits:
    with np.errstate(all="ignore"):
        return values.astype(inst.d.ml_dtype, copy=False).view(inst.d.dtype)


def _share(work: Callable[..., None], jobs: list[tuple[int, ...]]) -> None:
    """The work by every core."""
    if len(jobs) < 2 or cores() < 2:
        for job in jobs:
            work(*job)
    else:
        for done in [_pool().submit(work, *job) for job in jobs]:
            done.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores())


def _lines(step: CompiledStep, patterns: Bits, fmt: Format) -> _Lines:
    values = _read(step, patterns, fmt, _values)
    exponents = _read(step, patterns, fmt, _exponents) if step.fused is None else np.zeros((len(patterns), 0), np.int16)
    return _Lines(values, exponents, ~np.isfinite(values).all(axis=1))


Reader = Callable[[CompiledStep, Bits, Format, FloatArithmetic], NDArray[Any]]


def _values(step: CompiledStep, patterns: Bits, fmt: Format, _: FloatArithmetic) -> Floats:
    with np.errstate(all="ignore"):
        return values_of(patterns, fmt, step.model.subnormal_operands).astype(step.dtype, copy=False)


def _exponents(step: CompiledStep, patterns: Bits, fmt: Format, arithmetic: FloatArithmetic) -> _Exponents:
    """With which operands take part in the search for the largest one of a sum."""
    normalised, counted = arithmetic.product_exponent == "normalised operands", arithmetic.zero_terms == "aligned"
    return exponents_of(patterns, fmt, step.model.subnormal_operands, normalised, counted)


def _read(step: CompiledStep, patterns: Bits, fmt: Format, read: Reader) -> NDArray[Any]:
    """Operands [lines, K], each step's in the order of its sums, read as its sum has them."""
    if fmt.storage_bits <= 16:
        from accprobe.evaluate import lanes

        tables = _tables(step, fmt, read)
        found = np.empty(patterns.shape, tables.dtype)
        lanes.look_up(np.ascontiguousarray(patterns), step.order, tables, step.sum_of, found)
        return found
    steps = patterns.reshape(len(patterns), -1, len(step.order))[..., step.order]
    parts = [read(step, steps[..., step.sum_of == i], fmt, arithmetic) for i, arithmetic in enumerate(step.sums)]
    return np.ascontiguousarray(np.concatenate(parts, axis=-1).reshape(patterns.shape))


@lru_cache(maxsize=256)
def _tables(step: CompiledStep, fmt: Format, read: Reader) -> NDArray[Any]:
    """What each sum reads of every code."""
    every = np.arange(1 << fmt.storage_bits).astype(fmt.dtype)
    return np.stack([read(step, every, fmt, arithmetic) for arithmetic in step.sums])


def _padded(columns: NDArray[Any]) -> NDArray[Any]:
    """LANES columns: zeros after those that are there."""
    padded = np.zeros((len(columns), LANES), columns.dtype)
    padded[:, : columns.shape[1]] = columns
    return padded

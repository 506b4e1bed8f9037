"""Chains of fused sums for many outputs at once, by compiled code.

The vectors of float64 numbers (`accprobe.evaluate.lanes`) are exact. Numpy computes the rest: unsupported models (`steps`),
and doubtful outputs of the others: NaNs, infinities, overflow,
underflow, and zeros whose sign depends on the signs of their terms.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import exponents_of, values_of
from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.steps import LANES, CompiledStep
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import FloatArithmetic

# Seconds of numpy after which compiled code is loaded; loading takes about as long.
WORTH = 1.5

# Fewest rows of a separate panel: preparing its columns takes as long as a few rows.
LEAST_ROWS = 16

# Operands of rows that are prepared at once.
PREPARED = 1 << 22

Floats = NDArray[np.floating[Any]]
_Exponents = NDArray[np.int16]


_processes = 1


def share_cores(processes: int) -> None:
    """Share the cores among `processes` processes, including this one."""
    global _processes
    _processes = processes


def cores() -> int:
    """Return the number of cores that this process evaluates on."""
    return max(1, len(os.sched_getaffinity(0)) // _processes)


class _LoadThreshold:
    """Use numpy until its total time equals the time to load compiled code."""

    def __init__(self) -> None:
        self._done = 0.0

    def pays(self, seconds: float) -> bool:
        self._done += seconds
        return self._done >= WORTH and is_there()


# Return whether to use compiled code for work that takes numpy this many seconds.
pays = _LoadThreshold().pays


@cache
def is_there() -> bool:
    """Return whether numba is installed, works with this numpy and has a cache folder."""
    try:
        import accprobe.evaluate.lanes  # noqa: F401
    except (ImportError, RuntimeError):
        return False
    return True


class _Lines(NamedTuple):
    """Rows of A, or columns of B, [..., lines, K]; special: lines with an operand that is not finite, [..., lines]."""

    values: Floats
    exponents: _Exponents
    special: Truths


def sums(step: CompiledStep, inst: Instruction, a: Bits, b: Bits, start: Bits) -> tuple[Bits, Truths]:
    """Chains of that step: a [..., M, K], b [..., N, K], start [..., M, N], bit patterns -> sums [..., M, N], and which of
    them are doubtful.

    K is a multiple of the step's products, in the order in which they are taken.
    """
    if b.shape[-2] < min(a.shape[-2], LANES):
        other_way = replace(inst, a=inst.b, b=inst.a)
        turned, doubtful = sums(step, other_way, b, a, start.swapaxes(-1, -2))
        return turned.swapaxes(-1, -2), doubtful.swapaxes(-1, -2)
    products = prod(start.shape[:-2])
    a, b = (np.ascontiguousarray(x).reshape(products, *x.shape[-2:]) for x in (a, b))
    running = _running(step, inst, start).reshape(products, *start.shape[-2:])
    doubtful = ~np.isfinite(running)
    at_once = max(1, PREPARED // max(1, prod(a.shape[1:])))
    for first in range(0, products, at_once):
        some = slice(first, first + at_once)
        add = _add_side_by_side if running[0].size == 1 else _add
        add(step, inst, a[some], b[some], running[some], doubtful[some])
    doubtful |= ~np.isfinite(running)
    return _patterns(running, inst).reshape(start.shape), doubtful.reshape(start.shape)


def _add(step: CompiledStep, inst: Instruction, a: Bits, b: Bits, running: Floats, doubtful: Truths) -> None:
    """Add the chains of several products [products, ...] to `running`."""
    rows = _lines(step, a, inst.a)
    doubtful |= rows.special[..., None]

    def panel(i: int, left: int, top: int, bottom: int) -> None:
        x, y = slice(left, left + LANES), slice(top, bottom)
        columns = _lines(step, b[i, x], inst.b)
        of_panel, odd = _padded(running[i, y, x]), np.zeros((bottom - top, LANES), np.uint8)
        across = _padded(columns.values.T), _padded(columns.exponents.T)
        _in_lanes(step, rows.values[i, y], rows.exponents[i, y], *across, of_panel, odd)
        n = running[i, y, x].shape[1]
        running[i, y, x] = of_panel[:, :n]
        doubtful[i, y, x] |= (odd[:, :n] != 0) | columns.special

    (products, m), lefts = a.shape[:2], range(0, b.shape[1], LANES)
    parts = max(1, min(m // LEAST_ROWS, -(-cores() // max(1, products * len(lefts)))))
    tops = [(m * i // parts, m * (i + 1) // parts) for i in range(parts)]
    _share(panel, [(i, left, *of_part) for i in range(products) for left in lefts for of_part in tops])


def _add_side_by_side(step: CompiledStep, inst: Instruction, a: Bits, b: Bits, running: Floats, doubtful: Truths) -> None:
    """Add the chains of products with one output each, LANES of them at once."""

    def panel(first: int) -> None:
        x = slice(first, first + LANES)
        rows, columns = _lines(step, a[x, 0], inst.a), _lines(step, b[x, 0], inst.b)
        of_panel, odd = _padded(running[x, :, 0].T), np.zeros((1, LANES), np.uint8)
        (of_rows, row_exponents), across = ((_padded(x.values.T), _padded(x.exponents.T)) for x in (rows, columns))
        _in_lanes(step, of_rows[None], row_exponents[None], *across, of_panel, odd)
        n = len(rows.special)
        running[x, 0, 0] = of_panel[0, :n]
        doubtful[x, 0, 0] |= (odd[0, :n] != 0) | rows.special | columns.special

    _share(panel, [(first,) for first in range(0, len(a), LANES)])


def _in_lanes(
    step: CompiledStep, a: Floats, a_exponents: _Exponents, b: Floats, b_exponents: _Exponents, running: Floats, odd: Bits
) -> None:
    """Call `lanes.sums_in_turn`."""
    from accprobe.evaluate import lanes

    if step.fused is None:
        lanes.sums_in_turn(step.nodes, step.others, step.least_addend, a, a_exponents, b, b_exponents, running, odd)
    else:
        lanes.multiply_adds(step.fused, a, b, running)


def _running(step: CompiledStep, inst: Instruction, start: Bits) -> Floats:
    with np.errstate(all="ignore"):
        return inst.c.values(np.ascontiguousarray(start)).astype(step.dtype, copy=False)


def _patterns(values: Floats, inst: Instruction) -> Bits:
    with np.errstate(all="ignore"):
        return values.astype(inst.d.ml_dtype, copy=False).view(inst.d.dtype)


def _share(work: Callable[..., None], jobs: list[tuple[int, ...]]) -> None:
    """Run the jobs on every core."""
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
    none = np.zeros((*patterns.shape[:-1], 0), np.int16)
    exponents = _read(step, patterns, fmt, _exponents) if step.fused is None else none
    return _Lines(values, exponents, ~np.isfinite(values).all(axis=-1))


Reader = Callable[[CompiledStep, Bits, Format, FloatArithmetic], NDArray[Any]]


def _values(step: CompiledStep, patterns: Bits, fmt: Format, _: FloatArithmetic) -> Floats:
    with np.errstate(all="ignore"):
        return values_of(patterns, fmt, step.model.subnormal_operands).astype(step.dtype, copy=False)


def _exponents(step: CompiledStep, patterns: Bits, fmt: Format, arithmetic: FloatArithmetic) -> _Exponents:
    """Return the operands' exponents in the alignment of a sum."""
    normalised, counted = arithmetic.product_exponent == "normalised operands", arithmetic.zero_terms == "aligned"
    return exponents_of(patterns, fmt, step.model.subnormal_operands, normalised, counted)


def _read(step: CompiledStep, patterns: Bits, fmt: Format, read: Reader) -> NDArray[Any]:
    """Decode operands [..., lines, K], in the order of each step's sums."""
    if fmt.storage_bits <= 16:
        from accprobe.evaluate import lanes

        tables = _tables(step, fmt, read)
        lines = np.ascontiguousarray(patterns).reshape(-1, patterns.shape[-1])
        found = np.empty(lines.shape, tables.dtype)
        lanes.look_up(lines, step.order, tables, step.sum_of, found)
        return found.reshape(patterns.shape)
    steps = patterns.reshape(*patterns.shape[:-1], -1, len(step.order))[..., step.order]
    parts = [read(step, steps[..., step.sum_of == i], fmt, arithmetic) for i, arithmetic in enumerate(step.sums)]
    return np.ascontiguousarray(np.concatenate(parts, axis=-1).reshape(patterns.shape))


@lru_cache(maxsize=256)
def _tables(step: CompiledStep, fmt: Format, read: Reader) -> NDArray[Any]:
    """Return the table of each sum: the value or exponent of every code."""
    every = np.arange(1 << fmt.storage_bits).astype(fmt.dtype)
    return np.stack([read(step, every, fmt, arithmetic) for arithmetic in step.sums])


def _padded(columns: NDArray[Any]) -> NDArray[Any]:
    """Pad columns with zeros to LANES."""
    padded = np.zeros((len(columns), LANES), columns.dtype)
    padded[:, : columns.shape[1]] = columns
    return padded

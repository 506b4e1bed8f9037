"""Chains of fused sums for many outputs at once, by compiled code.

The vectors of float64 numbers (`accprobe.evaluate.lanes`) are exact. Numpy computes the rest: unsupported models (`steps`), and
doubtful outputs of the others. These are NaNs, infinities, overflow, underflow, and zeros with a sign that depends on their
terms.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import exponents_of, values_of
from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.steps import LANES, CompiledStep
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction

# Seconds of numpy after which compiled code is loaded; loading takes about as long.
WORTH = 1.5

# Fewest rows of a separate panel: preparing its columns takes as long as a few rows.
LEAST_ROWS = 16

# Operands of rows that are prepared at once.
PREPARED = 1 << 22

# Fewest terms that threads share: handing over a job takes as long as 10^4 to 10^5 of them.
SHARED = 1 << 18

Floats = NDArray[np.floating[Any]]
_Exponents = NDArray[np.int16]


_processes, _in_numpy = 1, 0.0


def share_cores(processes: int) -> None:
    """Share the cores among `processes` processes, including this one."""
    global _processes
    _processes = processes


def cores() -> int:
    """Return the number of cores that this process evaluates on."""
    return max(1, len(os.sched_getaffinity(0)) // _processes)


def pays(seconds: float) -> bool:
    """Return whether to use compiled code for work that takes numpy this long: once its total is the time to load the code."""
    global _in_numpy
    _in_numpy += seconds
    return _in_numpy >= WORTH and is_there()


@cache
def is_there() -> bool:
    """Return whether numba is installed, works with this numpy and has a cache folder."""
    try:
        import accprobe.evaluate.lanes  # noqa: F401 -- whether it can be imported is the question
    except (ImportError, RuntimeError):
        return False
    return True


class _Lines(NamedTuple):
    """Rows of A, or columns of B, [..., lines, K]; special: lines with an operand that is not finite, [..., lines]."""

    values: Floats
    exponents: _Exponents
    special: Truths


def sums(step: CompiledStep, inst: Instruction, a: Bits, b: Bits, start: Bits) -> tuple[Bits, Truths]:
    """Return the chains of that step for a [..., M, K], b [..., N, K], start [..., M, N], bit patterns: sums [..., M, N], and
    which of them are doubtful.

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
        _add(step, inst, a[some], b[some], running[some], doubtful[some])
    doubtful |= ~np.isfinite(running)
    return _patterns(running, inst).reshape(start.shape), doubtful.reshape(start.shape)


def _add(step: CompiledStep, inst: Instruction, a: Bits, b: Bits, running: Floats, doubtful: Truths) -> None:
    """Add the chains of several products [products, ...] to `running`."""
    from accprobe.evaluate import lanes

    rows = _lines(step, a, inst.a)
    doubtful |= rows.special[..., None]

    def panel(i: int, left: int, top: int, bottom: int) -> None:
        x, y = slice(left, left + LANES), slice(top, bottom)
        columns = _lines(step, b[i, x], inst.b)
        of_panel, odd, values = _padded(running[i, y, x]), np.zeros((bottom - top, LANES), np.uint8), _padded(columns.values.T)
        if step.fused is None:
            operands = rows.values[i, y], rows.exponents[i, y], values, _padded(columns.exponents.T)
            lanes.sums_in_turn(step.nodes, step.others, step.least_addend, *operands, of_panel, odd)
        else:
            lanes.multiply_adds(step.fused, rows.values[i, y], values, of_panel)
        n = running[i, y, x].shape[1]
        running[i, y, x] = of_panel[:, :n]
        doubtful[i, y, x] |= (odd[:, :n] != 0) | columns.special

    (products, m), lefts = a.shape[:2], range(0, b.shape[1], LANES)
    parts = max(1, min(m // LEAST_ROWS, -(-cores() // max(1, products * len(lefts)))))
    tops = [(m * i // parts, m * (i + 1) // parts) for i in range(parts)]
    jobs = [(i, left, *of_part) for i in range(products) for left in lefts for of_part in tops]
    share(panel, jobs, products * m * b.shape[1] * b.shape[2])


def _running(step: CompiledStep, inst: Instruction, start: Bits) -> Floats:
    with np.errstate(all="ignore"):
        return inst.c.values(np.ascontiguousarray(start)).astype(step.dtype, copy=False)


def _patterns(values: Floats, inst: Instruction) -> Bits:
    with np.errstate(all="ignore"):
        return values.astype(inst.d.ml_dtype, copy=False).view(inst.d.dtype)


def share(work: Callable[..., None], jobs: Sequence[tuple[int, ...]], terms: int = SHARED) -> None:
    """Run the jobs on every core, unless they have few terms altogether."""
    if len(jobs) < 2 or cores() < 2 or terms < SHARED:
        for job in jobs:
            work(*job)
    else:
        for done in [_pool().submit(work, *job) for job in jobs]:
            done.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores())


def _lines(step: CompiledStep, patterns: Bits, fmt: Format) -> _Lines:
    """Decode operands [..., lines, K], in the order of each step's sums."""
    subnormals = step.model.subnormal_operands
    width = len(step.order)
    steps = patterns.reshape(*patterns.shape[:-1], patterns.shape[-1] // width, width)
    if not step.in_order:
        steps = steps[..., step.order]
    with np.errstate(all="ignore"):
        values = values_of(steps, fmt, subnormals).astype(step.dtype, copy=False).reshape(patterns.shape)
    special = ~np.isfinite(values).all(axis=-1)
    if step.fused is not None:
        return _Lines(values, np.zeros((*patterns.shape[:-1], 0), np.int16), special)
    parts = zip(np.split(steps, step.ends[:-1], axis=-1), step.sums, strict=True)
    exponents = np.concatenate(
        [
            exponents_of(part, fmt, subnormals, x.product_exponent == "normalised operands", x.zero_terms == "aligned")
            for part, x in parts
        ],
        axis=-1,
    )
    return _Lines(values, exponents.reshape(patterns.shape), special)


def _padded(columns: NDArray[Any]) -> NDArray[Any]:
    """Pad columns with zeros to LANES."""
    padded = np.zeros((len(columns), LANES), columns.dtype)
    padded[:, : columns.shape[1]] = columns
    return padded

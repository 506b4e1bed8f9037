"""Compare a candidate with fresh rows of x, and find how the results of rows are reduced to one.

Rows are windows of random words. A GPU predicts them if the composite runs there on float32 and has one result for a row.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np

from accprobe.callables.operands import Ints, random_windows
from accprobe.composites.adapter import CompositeAdapter
from accprobe.composites.candidates import CompositeCandidate, ProbedRows
from accprobe.composites.functions import SINGLE
from accprobe.composites.orders import lane_orders
from accprobe.composites.partial import Schedule
from accprobe.composites.steps import ROWS_FINISHES, reduced_words
from accprobe.gemm.verification import PlanVerification
from accprobe.isa.formats import Bits
from accprobe.model.product import ProductModel, multiply_add
from accprobe.records.products import RowsRecord

ROW_KINDS = ("normal", "wide", "same sign", "sparse", "uniform", "integers")
# Elements of rows that one thread predicts at a time, and a GPU.
_IN_CACHE, _ON_GPU = 1 << 18, 1 << 26
# Results, and calls, that are compared at a time.
_RESULTS, _CALLS = 1 << 24, 1 << 12
# Calls with one result over all rows that decide the order of the rows, and calls that verify it.
DECIDING, VERIFYING = 32, 96


def verify_rows(
    adapter: CompositeAdapter,
    chosen: CompositeCandidate,
    elements: int,
    seed: int,
    verification: PlanVerification,
    only: bool,
) -> ProbedRows | None:
    """Compare the candidate with at least `elements` results of fresh rows; return the first rows that contradict it.

    only: whether this is the only candidate. If not, the comparison ends at the first rows that contradict it.
    """
    spec, rng, contradicting = adapter.spec, np.random.default_rng((seed, 0xC1)), None
    size = spec.n * adapter.columns
    calls = -(-elements // (len(ROW_KINDS) * size))
    at_once = max(1, min(_CALLS, _RESULTS // size))
    for kind in ROW_KINDS:
        words, starts = random_windows(spec, kind, calls * spec.n, rng)
        for first in range(0, calls, at_once):
            some = starts.reshape(calls, spec.n)[first : first + at_once]
            targets = rng.integers(0, spec.k, spec.n) if adapter.composite.takes_target else None
            got = adapter.reduce_windows(words, some, targets)
            rows, of_rows = some.reshape(-1), None if targets is None else np.tile(targets, len(some))
            expected = _predicted(adapter, chosen, words, rows, of_rows)
            verification.compare(kind, spec.out, got, expected, np.arange(len(got)), np.arange(got.shape[1]))
            wrong = (got != expected).any(axis=1)
            if contradicting is None and wrong.any():
                x = spec.b.values(np.lib.stride_tricks.sliding_window_view(words, spec.k)[rows[wrong]]).astype(np.float32)
                contradicting = ProbedRows(x, None if of_rows is None else of_rows[wrong], got[wrong], adapter.given.eps)
            if contradicting is not None and not only:
                return contradicting
    return contradicting


def _predicted(adapter: CompositeAdapter, chosen: CompositeCandidate, words: Bits, starts: Ints, targets: Any) -> Bits:
    """Return the predicted results [rows, columns] of rows words[start : start + K]. targets: [rows], or None."""
    spec, gpu = adapter.spec, adapter.cupy
    xp: Any = np if gpu is None else gpu
    rows = max(1, (_IN_CACHE if gpu is None else _ON_GPU) // spec.k)

    def predict(first: int) -> Bits:
        some = slice(first, first + rows)
        x = there[xp.asarray(starts[some])[:, None] + xp.arange(spec.k)]
        of_rows = None if targets is None else xp.asarray(targets[some])
        found = chosen.steps.words(chosen.rule, chosen.schedule, x, spec.b, spec.out, of_rows)
        return found if gpu is None else gpu.asnumpy(found)

    with adapter.on_device() if gpu else nullcontext(), ThreadPoolExecutor(os.cpu_count()) as pool:
        there = xp.asarray(words)
        parts = range(0, len(starts), rows)
        return np.concatenate(list(map(predict, parts) if gpu else pool.map(predict, parts)))


def reduction_of_rows(
    adapter: CompositeAdapter, chosen: CompositeCandidate, seed: int, verification: PlanVerification
) -> RowsRecord | str:
    """Find how the results of rows are reduced to one, and verify it on fresh calls; return why not if none explains them."""
    spec, reduction, rng = adapter.spec, str(adapter.given.reduction), np.random.default_rng((seed, 0xC2))
    calls = DECIDING + VERIFYING
    words, starts = random_windows(spec, ROW_KINDS[0], calls * spec.n, rng)
    targets = rng.integers(0, spec.k, (calls, spec.n))
    rows = _predicted(adapter, chosen, words, starts, targets.reshape(-1)).reshape(calls, spec.n, 1)
    x = np.lib.stride_tricks.sliding_window_view(words, spec.k)[starts.reshape(calls, spec.n)]
    probed = [(each, adapter.reduced(*operands)) for each, *operands in zip(rows, x, targets, strict=True)]
    every = list(lane_orders(spec.n))
    kept = [
        (order, schedule, finish)
        for order, schedule in ((order, Schedule(order.tree(spec.n))) for order in every)
        for finish in ROWS_FINISHES[reduction]
        if all((reduced_words(schedule, finish, rows, spec.out) == got).all() for rows, got in probed[:DECIDING])
    ]
    if not kept:
        return (
            f"the {reduction} over the rows is not explained: none of {len(every)} orders gives the results; the result of each"
            " row is explained"
        )
    order, schedule, finish = kept[0]
    for each, got in probed[DECIDING:]:
        expected = reduced_words(schedule, finish, each, spec.out)
        verification.compare(f"{reduction} of {spec.n} rows", spec.out, got, expected, *(np.arange(1),) * 2)
    model = ProductModel(SINGLE, SINGLE, spec.n, multiply_add(), order.tree(spec.n), SINGLE)
    others = f", or in {len(kept) - 1} other ways with the same results" if len(kept) > 1 else ""
    return RowsRecord(finish=finish, order=f"{order}{others}", model=model)

"""A plan against every answer that was kept, and where some contradict it, the nearest step that explains them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.evaluate.any_order import Evaluate, on_cpu
from accprobe.gemm import battery
from accprobe.gemm.battery import Answered
from accprobe.gemm.blackbox import Call
from accprobe.gemm.decomposition import with_first_sums_swapped
from accprobe.gemm.out_of_range import is_infinite
from accprobe.gemm.plans import ProductPlan
from accprobe.gemm.regions import Region
from accprobe.gemm.verification import TOGETHER
from accprobe.infer.alternatives.single import alternatives
from accprobe.isa.formats import Bits
from accprobe.model.product import ProductModel
from accprobe.model.tree import Arithmetic, FloatArithmetic

_Batch = tuple[Bits, Bits, Bits]
"""A [M, K], B [N, K] and D [M, N]."""


def region_batches(calls: Sequence[Call], region: Region) -> Iterator[_Batch]:
    """What of the calls is the region's; small calls of one shape together, [calls, ...]."""
    alike: dict[tuple[int, ...], list[_Batch]] = {}
    for call in calls:
        rows, columns = np.isin(call.rows, region.rows), np.isin(call.columns, region.columns)
        words = call.a[rows], call.b[columns], call.d[np.ix_(rows, columns)]
        if words[2].size and call.scales is None:
            alike.setdefault(words[2].shape, []).append(words)
    for several in alike.values():
        count = max(1, TOGETHER // several[0][2].size)
        for start in range(0, len(several), count):
            a, b, d = (np.stack(each) for each in zip(*several[start : start + count], strict=True))
            yield a, b, d


def wrong(model: ProductModel, words: _Batch, evaluate: Evaluate = on_cpu) -> int:
    """Answers that the model does not explain."""
    a, b, d = words
    return int(np.count_nonzero(evaluate(model, a, b, None) != d))


def beyond(model: ProductModel, words: _Batch) -> int:
    """Answers for which the model has an infinity, and that are none."""
    a, b, d = words
    expected = on_cpu(model, a, b, None)
    return int(np.count_nonzero((expected != d) & is_infinite(model.result, expected)))


def subnormal(model: ProductModel, words: _Batch) -> int:
    """Count the mismatches in which both words are subnormal or zero."""
    a, b, d = words
    fmt, expected = model.result, on_cpu(model, a, b, None)
    return int(np.count_nonzero((d != expected) & fmt.is_subnormal(d) & fmt.is_subnormal(expected)))


def refit_to_log(plan: ProductPlan, answers: Sequence[Answered], contradicting: Sequence[_Batch]) -> ProductPlan | None:
    """The plan that explains these and all others with its chains' first two products exchanged, or with a step beside its own,
    in one field of any kind; or None.
    """
    plain = plan.step.with_arithmetic(_without_floor)
    steps = (plain, *(alternative.model for alternative in alternatives(plan.step, {})))
    for other in (replace(plan, tree=with_first_sums_swapped(plan.tree)), *(replace(plan, step=step) for step in steps)):
        try:
            model = other.model()
            if not any(wrong(model, words) for words in contradicting) and not any(battery.wrong(model, x) for x in answers):
                return other
        except AccprobeError:
            continue
    return None


def _without_floor(arithmetic: Arithmetic) -> Arithmetic:
    """The arithmetic as it would be if small terms were aligned as all others, and underflow kept its sign."""
    if not isinstance(arithmetic, FloatArithmetic):
        return arithmetic
    return replace(arithmetic, min_exponent=None, underflow_sign="kept")

"""Runs with a batch of 1 and of 8: which operations compute each row alone, and can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accprobe.trace import ProgramRun, run_both
from accprobe.trace.compare import TraceComparison
from accprobe.trace.summary import trace_headline

torch = pytest.importorskip("torch")


def compared(function: Callable[[Any], Any]) -> TraceComparison:
    x = torch.rand(8, 16, generator=torch.Generator().manual_seed(0)) + 1
    one, other = (ProgramRun(function=lambda batch: function(x[:batch].clone()), keywords={"batch": n}) for n in (1, 8))
    return run_both(one, other, "batch=1:8")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.t() @ x,
        lambda x: x.t() @ x + 1,
        lambda x: x.sum(0),
        lambda x: x - x.mean(),
        lambda x: x.norm(),
        lambda x: x.softmax(0),
        lambda x: torch.native_batch_norm(x + 1, None, None, None, None, True, 0.1, 1e-5)[0],
        lambda x: torch.func.grad(lambda w: (x * w).sum())(torch.ones(16)),
    ],
)
def test_sums_over_the_batch_are_not_comparable(function: Callable[[Any], Any]) -> None:
    """Sums of 1 and of 8 products were "the products are added in another order", verified."""
    found = compared(function)
    assert trace_headline(found).startswith("not comparable: aten.")
    assert (found.origins, found.count("consequence"), found.equal) == ([], 0, False)


@pytest.mark.parametrize(
    ("function", "state"),
    [
        (lambda x: (x * len(x)).cumsum(1).sort(-1)[0].flip(1), "consequence"),
        (lambda x: torch.where(x > 1.5, x * len(x), -x) + 1, "consequence"),
        (lambda x: x.flatten().sort()[0], "unmapped"),
        (lambda x: x.flip(0) + 1, "unmapped"),
        (lambda x: (x > 1.5).nonzero(), "unmapped"),
    ],
)
def test_rows_that_an_operation_mixes_are_not_comparable(function: Callable[[Any], Any], state: str) -> None:
    """The first two keep rows apart: what follows from a product that differs is a consequence."""
    found = compared(function)
    assert [x for x in ("unmapped", "consequence") if found.count(x)] == [state]

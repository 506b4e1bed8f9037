"""Series of rows: the same sum with a smaller and smaller term, and the depth to which its results are exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.draft import Slot
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import Dyadic, Row, Workbench
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Exchange

REACH = 70  # Bits below M that are probed at most.
WINDOW = 100  # Exponents beyond +-WINDOW are not used: rows need not come near overflow or the smallest exponents.

# Rows by j, ascending: their small term is 2^-j M.
RowSeries = Sequence[tuple[int, Row]]


@dataclass(frozen=True)
class Limit:
    """The last j up to which the rows of a series have the expected results; `exact` if a later one did not."""

    bits: int
    exact: bool
    evidence: tuple[Exchange, ...]


def span(bench: Workbench, slot: Slot) -> range:
    """Return the exponents of the powers of two that can enter a sum by this slot."""
    leaf = bench.addend_exponents() if slot.leaf == bench.addend else bench.product_exponents()
    low, high = max(leaf[0], -WINDOW), min(leaf[-1], WINDOW)
    if slot.kind == "sum":
        results = bench.result_exponents()
        low, high = max(low, results[0]), min(high, results[-1])
    return range(low, high + 1)


def limit(bench: Workbench, series: RowSeries, model: DotModel | None = None) -> Limit:
    """Return the last j up to which the device gives the exact sum, or the result that `model` predicts."""
    operands = bench.request([row for _, row in series])
    d = bench.query(operands)
    if model is None:
        wrong = np.flatnonzero([_exact(bench, row) != int(result) for (_, row), result in zip(series, d, strict=True)])
    else:
        wrong = np.flatnonzero(d != evaluate(model, bench.inst, operands))
    if not len(wrong):
        return Limit(series[-1][0], False, bench.exchanges(operands, d, [len(series) - 1]))
    first = int(wrong[0])
    return Limit(series[first][0] - 1, True, bench.exchanges(operands, d, [i for i in (first - 1, first) if i >= 0]))


def _exact(bench: Workbench, row: Row) -> int | None:
    """Return the bit pattern of the exact sum of a row, None if the result's format cannot represent it."""
    lowest = min(value.exponent for value in row.values())
    total = sum(value.significand << (value.exponent - lowest) for value in row.values())
    return bench.result_pattern(Dyadic(total, lowest))


def agree(limits: dict[str, Limit]) -> Finding:
    """Merge the limits of several series: the exact ones must agree and reach as far as every lower bound."""
    if not limits:
        return Finding(0, "at_least", note="no operands reach below the largest term")
    exact = {limit.bits for limit in limits.values() if limit.exact}
    evidence = tuple(e for limit in limits.values() for e in limit.evidence)
    reached = max((limit.bits for limit in limits.values() if not limit.exact), default=0)
    if len(exact) > 1 or (exact and reached > min(exact)):
        seen = ", ".join(f"{label}: {limit.bits}{'' if limit.exact else ' or more'}" for label, limit in limits.items())
        return Finding(min(exact), "undetermined", tuple(sorted(exact)), f"differs by term ({seen})", evidence)
    if exact:
        return Finding(exact.pop(), evidence=evidence)
    return Finding(reached, "at_least", note="no operand reaches further below the largest term", evidence=evidence)


def named(alignment: Finding, result: Finding, rounding: Finding, alignment_rounding: Finding | None = None) -> Findings:
    """Return the findings about the bits of one role's sums, by feature."""
    found = {"alignment_bits": alignment, "result_bits": result, "result_rounding": rounding}
    return found | ({"alignment_rounding": alignment_rounding} if alignment_rounding else {})

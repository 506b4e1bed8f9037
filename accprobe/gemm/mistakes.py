"""Names of indexing mistakes: which k, rows or columns are read instead of which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import WholeNumbers, result, zeros
from accprobe.gemm.pairs import Ints
from accprobe.isa.formats import Format

MOST_NAMED = 4
"""Runs of lines that one sentence lists."""

NO_PARTNER = -1
"""Source of a k that is multiplied by no element of B."""


class LineRun(NamedTuple):
    """Neighbouring lines `first` to `last` that read those from `source` on; NO_PARTNER: none."""

    first: int
    last: int
    source: int

    @property
    def length(self) -> int:
        return self.last - self.first + 1

    @property
    def lines(self) -> str:
        return _range(self.first, self.last)

    @property
    def sources(self) -> str:
        return _range(self.source, self.source + self.length - 1)


def name_ks(partner: Ints) -> str:
    """Name what each a[k] is multiplied by: partner [K] has the k of B, or NO_PARTNER. "" where it is b[k] everywhere."""
    moved = list(_moved_runs(partner))
    pairs = _exchanged(moved)
    told = [f"k {_first_few([f'{run.lines} and {other.lines}' for run, other in pairs])} of B are exchanged"] if pairs else []
    rest = [run for run in moved if not any(run in pair for pair in pairs)]
    if rest and not pairs and len(partner) == sum(run.length for run in moved):
        longest = max(rest, key=lambda run: (run.source != NO_PARTNER, run.length))
        if longest.source != NO_PARTNER and 2 * longest.length > len(partner):
            offset = longest.source - longest.first
            told = [f"a[k] is multiplied by b[k {'+' if offset > 0 else '-'} {abs(offset)}]"]
            rest.remove(longest)
    by = [f"a[{run.lines}] {'' if told or n else 'is multiplied '}by {_factor(run)}" for n, run in enumerate(rest)]
    return ", ".join([*told, *([_first_few(by)] if by else [])])


def name_lines(source: Ints, line: str, operand: str) -> str:
    """Name the lines, "row" or "column", of D that read other lines `source` of an operand. "" where each reads its own."""
    told = []
    for run in _moved_runs(source):
        many = "s" * (run.length > 1)
        told.append(f"{line}{many} {run.lines} read{'' if many else 's'} {operand} of {line}{many} {run.sources}")
    return _first_few(told)


def _first_few(told: Sequence[str]) -> str:
    return ", ".join([*told[:MOST_NAMED], *(["…"] if len(told) > MOST_NAMED else [])])


def _moved_runs(source: Ints) -> Iterator[LineRun]:
    """Runs of lines that read others at one distance, or nothing."""
    nothing = source == NO_PARTNER
    offset = np.where(nothing, 0, source - np.arange(len(source)))
    edges = np.flatnonzero((np.diff(offset) != 0) | (np.diff(nothing) != 0)) + 1
    for run in np.split(np.arange(len(source)), edges):
        if offset[run[0]] or nothing[run[0]]:
            yield LineRun(int(run[0]), int(run[-1]), int(source[run[0]]))


def _exchanged(moved: Sequence[LineRun]) -> list[tuple[LineRun, LineRun]]:
    """Runs that read one another's lines, each pair once."""
    by_first = {run.first: run for run in moved}
    others = [(run, by_first.get(run.source)) for run in moved]
    return [
        (run, other)
        for run, other in others
        if other and run.first < other.first and (run.first, run.length) == (other.source, other.length)
    ]


def _factor(run: LineRun) -> str:
    return "nothing" if run.source == NO_PARTNER else f"b[{run.sources}]"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


KEPT_OF = ((2, 4), (1, 2), (4, 8))
"""Operands that are kept of each group of neighbouring k."""

CALLS = 4

FILLED_GROUPS = 8
"""Groups of a row that are not zero, half of them at most: sums of as many are exact in any format, larger groups show."""


def pruned(asked: RecordedCallable, there: NDArray[np.bool_]) -> str:
    """Name the pruning of an operand that explains these elements, "" where none does."""
    spec = asked.spec
    for operand, fmt in (("A", spec.a), ("B", spec.b)):
        for kept, of in KEPT_OF:
            if spec.k % of or not _holds(fmt, of):
                continue
            rng = np.random.default_rng(of)
            if all(_explains(asked, there, operand == "A", kept, of, rng) for _ in range(CALLS)):
                smallest = "smallest" if of - kept == 1 else f"{of - kept} smallest"
                which = f"of each {of} neighbouring k the {smallest} |{operand.lower()}| are left out"
                return f"{kept}:{of} pruning: {which}, so which k count depends on the values of {operand}"
    return ""


def _holds(fmt: Format, largest: int) -> bool:
    """Whether the format has the whole numbers up to this one."""
    return fmt.largest >= largest if fmt.is_integer else 1 << fmt.mantissa_bits + 1 >= largest


def _explains(
    asked: RecordedCallable, there: NDArray[np.bool_], of_a: bool, kept: int, of: int, rng: np.random.Generator
) -> bool:
    """Whether unlike numbers in some groups of an operand, times ones, give the sums of the largest of each group."""
    spec = asked.spec
    operands = zeros(spec)
    lines, others = operands if of_a else operands[::-1]
    count = spec.k // of
    groups = lines.reshape(len(lines), count, of)
    drawn = rng.permuted(np.broadcast_to(np.arange(1, of + 1), groups.shape), axis=2)
    filled = np.arange(count) < max(1, min(FILLED_GROUPS, count // 2))
    groups[:] = np.where(rng.permuted(np.broadcast_to(filled, groups.shape[:2]), axis=1)[:, :, None], drawn, 0)
    others[:] = 1
    sums: WholeNumbers = np.where(groups > of - kept, groups, 0).sum(axis=(1, 2))
    found = result(asked, *operands)
    return bool((found == (sums[:, None] if of_a else sums))[there].all())

"""Name indexing mistakes (the k, rows or columns that are read instead of others) and detect pruned operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import Ints, whole_product, whole_zeros
from accprobe.isa.formats import Format

# Runs of lines in one sentence.
MAX_NAMED = 4

# Source of a k that no element of B multiplies.
NO_PARTNER = -1


class LineRun(NamedTuple):
    """Consecutive lines `first` to `last` that read the lines from `source` on; NO_PARTNER: none."""

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
    """Name the factors of each a[k]. partner [K]: the k of B, or NO_PARTNER. "" if each is b[k]."""
    by = [f"by {'nothing' if run.source == NO_PARTNER else f'b[{run.sources}]'}" for run in _moved_runs(partner)]
    of = [f"a[{run.lines}] {'' if n else 'is multiplied '}" for n, run in enumerate(_moved_runs(partner))]
    return _first_few([first + second for first, second in zip(of, by, strict=True)])


def name_lines(source: Ints, line: str, operand: str) -> str:
    """Name the rows or columns of D that read another line of an operand. "" if each reads its own."""
    names = []
    for run in _moved_runs(source):
        many = "s" * (run.length > 1)
        names.append(f"{line}{many} {run.lines} read{'' if many else 's'} {operand} of {line}{many} {run.sources}")
    return _first_few(names)


def _first_few(names: Sequence[str]) -> str:
    return ", ".join([*names[:MAX_NAMED], *(["…"] if len(names) > MAX_NAMED else [])])


def _moved_runs(source: Ints) -> Iterator[LineRun]:
    """Yield runs of lines that read other lines at one distance, or nothing."""
    nothing = source == NO_PARTNER
    offset = np.where(nothing, 0, source - np.arange(len(source)))
    edges = np.flatnonzero((np.diff(offset) != 0) | (np.diff(nothing) != 0)) + 1
    for run in np.split(np.arange(len(source)), edges):
        if offset[run[0]] or nothing[run[0]]:
            yield LineRun(int(run[0]), int(run[-1]), int(source[run[0]]))


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


# Operands kept of each group of consecutive k.
KEPT_OF = ((2, 4), (1, 2), (4, 8))

CALLS = 4

# Nonzero groups of a row, at most half of all: every format holds their sums exactly, and larger groups are visible.
FILLED_GROUPS = 8


def name_pruning(subject: RecordedCallable, there: NDArray[np.bool_]) -> str:
    """Name the pruning of an operand that explains these elements, "" if none does."""
    spec = subject.spec
    for operand, fmt in (("A", spec.a), ("B", spec.b)):
        for kept, of in KEPT_OF:
            if spec.k % of or not _holds(fmt, of):
                continue
            rng = np.random.default_rng(of)
            if all(_explains(subject, there, operand == "A", kept, of, rng) for _ in range(CALLS)):
                smallest = "smallest" if of - kept == 1 else f"{of - kept} smallest"
                which = f"of each {of} neighbouring k the {smallest} |{operand.lower()}| are left out"
                return f"{kept}:{of} pruning: {which}, so which k count depends on the values of {operand}"
    return ""


def _holds(fmt: Format, largest: int) -> bool:
    """Return whether the format holds all whole numbers up to this one."""
    return fmt.largest >= largest if fmt.is_integer else 1 << fmt.mantissa_bits + 1 >= largest


def _explains(
    subject: RecordedCallable, there: NDArray[np.bool_], of_a: bool, kept: int, of: int, rng: np.random.Generator
) -> bool:
    """Return whether distinct numbers in some groups of an operand, times ones, give the sums of the largest in each group."""
    spec = subject.spec
    operands = whole_zeros(spec)
    lines, others = operands if of_a else operands[::-1]
    count = spec.k // of
    groups = lines.reshape(len(lines), count, of)
    shuffled = rng.permuted(np.broadcast_to(np.arange(1, of + 1), groups.shape), axis=2)
    filled = np.arange(count) < max(1, min(FILLED_GROUPS, count // 2))
    groups[:] = np.where(rng.permuted(np.broadcast_to(filled, groups.shape[:2]), axis=1)[:, :, None], shuffled, 0)
    others[:] = 1
    sums = np.where(groups > of - kept, groups, 0).sum(axis=(1, 2))
    found = whole_product(subject, *operands)
    return bool((found == (sums[:, None] if of_a else sums))[there].all())

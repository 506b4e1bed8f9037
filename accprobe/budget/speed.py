"""How fast kernels ran whose sums are promoted at an interval, where a report's sweep measured them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from accprobe.budget.accumulation import Accumulation
from accprobe.isa.instructions import parse
from accprobe.report.nearest_measured import nearest_measured
from accprobe.report.report import Report
from accprobe.report.sweeps import SweepRecord

_M_AND_N = re.compile(r"\.\d+x\d+x")


@dataclass(frozen=True)
class Speed:
    """The fastest swept kernel of one interval, and where it ran."""

    tflops: float
    block_k: int
    num_warps: int
    device: str
    shape: str


def measured_speeds(accumulation: Accumulation) -> dict[int, Speed]:
    """By interval, of the report that the accumulation's instruction is of: Triton kernels of the same operands and opcode.

    A block of K begins at zero, so that its length is the interval, unless sums are promoted within it too.
    """
    source, _, name = accumulation.name.partition(":")
    if source == "sim" or accumulation.measured is not None:
        return {}
    report = Report.load(source)
    units = _units(report, name)
    found: dict[int, Speed] = {}
    for record in report.sweeps if accumulation.a is accumulation.b else ():
        ran = set(map(_of_any_size, record.opcodes))
        if record.tflops is None or record.dtype != accumulation.a.name or not ran or not ran <= units:
            continue
        interval = interval_of(record)
        if interval not in found or found[interval].tflops < record.tflops:
            shape = f"{record.m}x{record.n}x{record.k}"
            found[interval] = Speed(record.tflops, record.block_k, record.num_warps, report.device.name, shape)
    return found


def _units(report: Report, name: str) -> set[str]:
    """What the instruction became, or the one that stands in for it; of any M and N."""
    rows = {row.instruction: row for row in report.instructions if row.model is not None}
    inst = parse(name)
    other = None if inst in rows else nearest_measured(inst, rows)
    found = rows.get(other.nearest if other else inst)
    return set(map(_of_any_size, found.opcodes)) if found else set()


def _of_any_size(opcode: str) -> str:
    """Its stem, K and types."""
    return _M_AND_N.sub(".", opcode)


def interval_of(record: SweepRecord) -> int:
    """Products after which its sums are promoted."""
    return min(record.block_k, record.promote_every or record.block_k)

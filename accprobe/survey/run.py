"""A survey: the report of a device. Each instruction is inferred, tested against alternatives and verified."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from accprobe.build.lowerings import Lowering
from accprobe.devices import open_device
from accprobe.devices.recording import Exchanges, Recording
from accprobe.errors import RecordingError
from accprobe.isa.instructions import Instruction
from accprobe.operands.protocol import Device
from accprobe.records.rows import Row
from accprobe.report.names import selected
from accprobe.report.report import Report, Run
from accprobe.survey.row import Surveyor, copied, counted, with_device_status
from accprobe.survey.workers import default_jobs, in_processes

DOTS = 1 << 14  # Default number of random dot products in the verification of a model.

OnRow = Callable[[Report, list[str]], None]
"""Called with the report so far, and the names of the instructions that are still to be measured."""
# Returns the opcodes that instructions executed, by name: `ncu.lowerings` of a device.
Profiler = Callable[[Sequence[Instruction]], Mapping[str, Lowering]]


def survey(
    device: str | Device,
    select: Sequence[str] = (),
    dots: int = DOTS,
    seed: int = 0,
    jobs: int | None = None,
    on_row: OnRow = lambda report, missing: None,
    profiler: Profiler | None = None,
    record: Path | None = None,
) -> Report:
    """Return the report of a device, given by name ("cuda:0") or open; an open one is measured in this process.

    select: globs or names of instructions; none selects all. on_row: called first with only the skipped rows, then after each
    group of instructions that the device computes with one function. profiler: returns what was executed, which must agree with
    the disassembly. record: file for every exchange with the device, written at the end or when the run is interrupted.
    Raises UnknownName if a glob selects nothing, DeviceError if the device stops working, RecordingError if `record` cannot be
    written.
    """
    started = time.perf_counter()
    name = device if isinstance(device, str) else None
    opened = open_device(device) if isinstance(device, str) else device
    wanted = selected(opened, select)
    empty = Report.empty(opened, name, seed)
    report = _ReportSoFar(empty, opened, wanted, started)
    groups = _same_function(opened, [inst for inst in wanted if inst.name not in report.rows])
    leaders = [group[0] for group in groups]
    report.workers = workers = max(min(jobs or default_jobs(), len(groups)) if name else 1, 1)

    on_row(report.now(), report.missing())
    if profiler or workers == 1:
        opened.prepare(leaders)
    executed = profiler(leaders) if profiler else {}
    members = {group[0].name: group[1:] for group in groups}
    here = Surveyor(opened, record is not None)
    with (
        closing(
            in_processes(name, leaders, dots, seed, workers, record is not None, partial(opened.prepare, leaders))
            if name and workers > 1
            else (here.measured(inst, dots, seed) for inst in leaders)
        ) as measured,
        _recording(record, opened, f"--dots {dots} --seed {seed}", wanted, groups) as keep,
    ):
        for row, exchanges in measured:
            first = counted(row, executed[row.name]) if row.name in executed else row
            alike = [first, *(copied(first, inst, opened.lowering(inst)) for inst in members[row.name])]
            report.rows |= {each.name: with_device_status(each, opened) for each in alike}
            keep(alike, exchanges)
            on_row(report.now(), report.missing())
    return report.now()


class _ReportSoFar:
    """The report of a survey while it runs; at first with the rows of skipped instructions."""

    def __init__(self, empty: Report, device: Device, wanted: Sequence[Instruction], started: float) -> None:
        self._started, self._empty, self._wanted = started, empty, wanted
        self.workers = 1
        reasons = {inst.name: device.explain_unavailable(inst) for inst in wanted}
        self.rows = {name: Row(name=name, status="skipped", reason=reason) for name, reason in reasons.items() if reason}

    def now(self) -> Report:
        seconds = round(time.perf_counter() - self._started, 3)
        rows = [self.rows[inst.name] for inst in self._wanted if inst.name in self.rows]
        run = Run(jobs=self.workers, seconds=seconds, selected=len(self._wanted))
        return self._empty.with_claims(rows, run=run)

    def missing(self) -> list[str]:
        return [inst.name for inst in self._wanted if inst.name not in self.rows]


@contextmanager
def _recording(
    path: Path | None, device: Device, options: str, wanted: Iterable[Instruction], groups: Iterable[Sequence[Instruction]]
) -> Iterator[Callable[[Sequence[Row], Exchanges], None]]:
    """Keep exchanges in the file. Exchanges of finished rows are saved, whatever happens inside."""
    if path is None:
        yield lambda rows, exchanges: None
        return
    recording = Recording.of(device, options)
    recording.announce(device, wanted, {inst.name: group[0].name for group in groups for inst in group})

    def keep(rows: Sequence[Row], exchanges: Exchanges) -> None:
        recording.add({row.name: _lowering(row) for row in rows}, exchanges)

    try:
        yield keep
    finally:
        try:
            recording.save(path)
        except OSError as e:
            raise RecordingError(f"{path} cannot be written: {e.strerror}") from None


def _lowering(row: Row) -> Lowering | None:
    if row.opcode_source is None:
        return None
    return Lowering(row.opcodes, row.lowering, row.opcode_source, row.cubin_sha256)


def _same_function(device: Device, insts: Sequence[Instruction]) -> list[list[Instruction]]:
    """Group the instructions that the device computes with the same function."""
    groups: dict[Hashable, list[Instruction]] = {}
    for inst in insts:
        groups.setdefault(device.identity(inst), []).append(inst)
    return list(groups.values())

"""Verifications: against a device, on each of its SMs, and against recorded vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from rich.console import Group, RenderableType
from rich.text import Text

from accprobe.devices.protocol import Device
from accprobe.health.sms import SMS_SHRUNK, Checkup
from accprobe.isa.instructions import Instruction
from accprobe.render.content.verification import CheckedUp, Verified, events_text, excluded_faults, mismatch
from accprobe.render.terminal.console import Hanging, WholeCells
from accprobe.report.words import so_many
from accprobe.verify.outcome import Verification
from accprobe.verify.vectors import Comparison


def heading(models: str, device: Device, lacking: Sequence[Instruction]) -> Iterator[Text]:
    """What is held against what, and what of the models the device lacks."""
    if device.kind == "simulated":
        yield Text("SIMULATED: the device is published models, nothing was measured", "bold red")
    yield Text(f"models of {models} against {device.name}, {device.architecture}", "bold")
    if lacking:
        others = f" and {so_many(len(lacking) - 1, 'other')}" if len(lacking) > 1 else ""
        yield Text(f"! {len(lacking):,} not verified, as the device cannot run them: {lacking[0]}{others}", "yellow")


def verification_table(rows: Sequence[Verified]) -> RenderableType:
    """A line an instruction, and below it what differs and what none that differs excludes."""
    covered = {header: tell for header, tell in _COVERAGE.items() if any(tell(row.done) for row in rows)}
    headers = ("instruction", "dots", "differ", *covered, "dots/s", "MAC/s")
    table = WholeCells(headers, headers[1:], ("MAC/s", "dots/s", *covered))
    for row in rows:
        done, speed = row.done, (f"{row.dots_a_second:.2g}", f"{row.dots_a_second * row.inst.k:.2g}")
        counts = (f"{done.dots:,}", f"{done.mismatches:,}", *(tell(done) for tell in covered.values()))
        table.rows.append(((row.inst.name, *counts, *speed), "red" if done.mismatches else ""))
    dots, wrong = sum(row.done.dots for row in rows), sum(row.done.mismatches for row in rows)
    total = f"{so_many(len(rows), 'instruction')}, {so_many(dots, 'dot product')}: {wrong:,} differ"
    least = min((row.done for row in rows), key=lambda done: done.dots, default=None)
    below = [*_uncovered(rows), *_counterexamples(rows)]
    if least and not wrong and (excluded := excluded_faults(least)):
        below.append(Text(f"of each instruction: {excluded}", "dim"))
    return Group(table, Hanging(below, 0), Text(total, "bold red" if wrong else "bold"))


def _cells(done: Verification) -> str:
    return f"{done.tile.covered:,} of {done.tile.total:,}" if done.tile else ""


def _events(done: Verification) -> str:
    return f"{done.events.hit:,} of {done.events.possible:,}" if done.events and not done.refuted else ""


_COVERAGE: dict[str, Callable[[Verification], str]] = {"cells read": _cells, "events met": _events}
"""Columns that are there where anything was counted, and what they have."""


def _uncovered(rows: Sequence[Verified]) -> Iterator[Text]:
    """Cells that differ and events that were not met, by name."""
    for row in rows:
        if row.done.tile and row.done.tile.differing:
            yield Text(f"! {row.inst.name}: wrong cells: {row.done.tile.differing}", "red")
        if row.done.events and row.done.events.missing and not row.done.refuted:
            yield Text(f"! {row.inst.name}: {events_text(row.done.events)}", "yellow")


def _counterexamples(rows: Sequence[Verified]) -> Iterator[Text]:
    for row in rows:
        if found := row.smallest or row.done.counterexample:
            again = "" if row.smallest else "; asked again, the device did not differ"
            yield Text(f"! {row.inst.name}: {mismatch(row.inst, found)} ({found.kind}){again}", "red")


def checkup_table(rows: Sequence[CheckedUp]) -> RenderableType:
    """A line an instruction, and below it every SM that differs."""
    headers = ("instruction", "dots an SM", "SMs", "that differ", "dots/s")
    table = WholeCells(headers, headers[1:], ("dots/s", "dots an SM"))
    for row in rows:
        speed = row.done.dots * row.done.sms / row.seconds if row.seconds else 0.0
        faults = len(row.done.faults)
        counts = (f"{row.done.dots:,}", str(row.done.sms), str(faults), f"{speed:.2g}")
        table.rows.append(((row.inst.name, *counts), "red" if faults else ""))
    faulty = sorted({sm for row in rows for sm in row.done.faults})
    named = ", ".join(map(str, faulty[:SMS_SHRUNK])) + (", …" if len(faulty) > SMS_SHRUNK else "")
    verdict = f"SM {named} differ{'s' * (len(faulty) == 1)} from the model" if faulty else "no SM differs"
    lines = [line for row in rows for line in _faults(row.inst, row.done)]
    return Group(table, Hanging(lines, 0), Text(verdict, "bold red" if faulty else "bold"))


def _faults(inst: Instruction, done: Checkup) -> Iterator[Text]:
    for sm, fault in islice(done.faults.items(), SMS_SHRUNK):
        again = "" if fault.smallest else "; asked again, the SM did not differ"
        shown = mismatch(inst, fault.smallest or fault.first)
        yield Text(f"! SM {sm}: {fault.mismatches:,} differ, {inst.name}: {shown}{again}", "red")


def vectors_table(rows: Sequence[Comparison]) -> RenderableType:
    """A line a set of results, and below it how else they were read, and what differs."""
    table = WholeCells(("GPU", "operands", "result", "dots", "differ", "read as"), ("dots", "differ"), ("operands", "result"))
    for row in rows:
        where = row.recorded
        counts = (f"{row.dots:,}", f"{row.mismatches:,}")
        cells = (where.gpu, where.operand, where.result, *counts, str(row.reading))
        table.rows.append((cells, "red" if row.mismatches else ""))
    notes = [
        Text(f"{row.recorded.name}: {'; '.join(f'as {reading} {n:,} would differ' for reading, n in row.others)}", "dim")
        for row in rows
        if row.others
    ]
    first = [Text(f"! {row.recorded.name}: {mismatch(row.reading.inst, row.first)}", "red") for row in rows if row.first]
    dots, wrong = sum(row.dots for row in rows), sum(row.mismatches for row in rows)
    sets = f"{len(rows)} set{'s' * (len(rows) != 1)} of results"
    total = Text(f"{sets}, {so_many(dots, 'dot product')}: {wrong:,} differ", "bold red" if wrong else "bold")
    return Group(table, Hanging([*notes, *first], 0), total)

"""Verifications for the terminal and as JSON: against a device, on each of its SMs, and against recorded vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accprobe.health.sms import Checkup
from accprobe.infer.findings import Counterexample, Exchange
from accprobe.isa.instructions import Instruction
from accprobe.render.sections import mismatch
from accprobe.report import report
from accprobe.verify.outcome import Verification
from accprobe.verify.vectors import Comparison

SMS_NAMED = 20
"""SMs that differ, named on one line."""


@dataclass(frozen=True)
class Verified:
    """One instruction: the outcome, the wall seconds, and the smallest counterexample (None: none, or it did not come back)."""

    inst: Instruction
    done: Verification
    seconds: float
    smallest: Counterexample | None = None

    @property
    def dots_a_second(self) -> float:
        return self.done.dots / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class CheckedUp:
    """One instruction on every SM."""

    inst: Instruction
    done: Checkup
    seconds: float


def verified(rows: Sequence[Verified]) -> RenderableType:
    """A line an instruction, and below it what differs."""
    table = _table("instruction", "dots", "differ", "dots/s", "MAC/s")
    for row in rows:
        speed = (_rate(row.dots_a_second), _rate(row.dots_a_second * row.inst.k))
        table.add_row(
            row.inst.name, f"{row.done.dots:,}", f"{row.done.mismatches:,}", *speed, style=_style(row.done.mismatches)
        )
    dots, wrong = sum(row.done.dots for row in rows), sum(row.done.mismatches for row in rows)
    total = f"{len(rows)} instructions, {dots:,} dot products: {wrong:,} differ"
    return Group(table, *_counterexamples(rows), Text(total, "bold red" if wrong else "bold"))


def _counterexamples(rows: Sequence[Verified]) -> Iterator[Text]:
    for row in rows:
        if row.smallest:
            found = row.smallest
            yield Text(f"! {row.inst.name}: {mismatch(row.inst, found.exchange, found.expected)} ({found.kind})", "red")
        elif first := row.done.counterexample:
            shown = mismatch(row.inst, first.exchange, first.expected)
            yield Text(f"! {row.inst.name}: {shown} ({first.kind}); asked again, the device did not differ", "red")


def checked_up(rows: Sequence[CheckedUp]) -> RenderableType:
    """A line an instruction, and below it every SM that differs."""
    table = _table("instruction", "dots an SM", "SMs", "that differ", "dots/s")
    for row in rows:
        speed = row.done.dots * row.done.sms / row.seconds if row.seconds else 0.0
        faults = len(row.done.faults)
        table.add_row(row.inst.name, f"{row.done.dots:,}", str(row.done.sms), str(faults), _rate(speed), style=_style(faults))
    sick = sorted({sm for row in rows for sm in row.done.faults})
    named = ", ".join(map(str, sick[:SMS_NAMED])) + (", …" if len(sick) > SMS_NAMED else "")
    verdict = f"SM {named} differ{'s' * (len(sick) == 1)} from the model" if sick else "no SM differs"
    lines = [
        Text(f"! SM {sm}: {fault.mismatches:,} differ, {row.inst.name}: {_first(row.inst, fault.first)}", "red")
        for row in rows
        for sm, fault in list(row.done.faults.items())[:SMS_NAMED]
    ]
    return Group(table, *lines, Text(verdict, "bold red" if sick else "bold"))


def _first(inst: Instruction, found: Counterexample) -> str:
    return mismatch(inst, found.exchange, found.expected)


def compared(rows: Sequence[Comparison]) -> RenderableType:
    """A line a set of results, and below it how else they were read, and what differs."""
    table = _table("GPU", "operands", "result", "dots", "differ")
    table.add_column("read as", overflow="fold")
    for row in rows:
        where = row.recorded
        table.add_row(
            where.gpu,
            where.operand,
            where.result,
            f"{row.dots:,}",
            f"{row.mismatches:,}",
            str(row.reading),
            style=_style(row.mismatches),
        )
    notes = [
        Text(f"{row.recorded.name}: {'; '.join(f'as {reading} {n:,} would differ' for reading, n in row.others)}", "dim")
        for row in rows
        if row.others
    ]
    first = [
        Text(f"! {row.recorded.name}: {mismatch(row.reading.inst, row.first.exchange, row.first.expected)}", "red")
        for row in rows
        if row.first
    ]
    dots, wrong = sum(row.dots for row in rows), sum(row.mismatches for row in rows)
    total = Text(f"{len(rows)} sets of results, {dots:,} dot products: {wrong:,} differ", "bold red" if wrong else "bold")
    return Group(table, *notes, *first, total)


def verified_data(row: Verified) -> dict[str, object]:
    found = row.smallest or row.done.counterexample
    return {
        "name": row.inst.name,
        "dots": row.done.dots,
        "mismatches": row.done.mismatches,
        "seed": row.done.seed,
        "kinds": row.done.kinds,
        "seconds": round(row.seconds, 3),
        "dots_per_second": round(row.dots_a_second),
        "macs_per_second": round(row.dots_a_second * row.inst.k),
        **({"counterexample": _data(row.inst, found.exchange, found.expected)} if found else {}),
    }


def checked_up_data(row: CheckedUp) -> dict[str, object]:
    return {
        "name": row.inst.name,
        "dots": row.done.dots,
        "sms": row.done.sms,
        "seconds": round(row.seconds, 3),
        "faults": {
            str(sm): {
                "mismatches": fault.mismatches,
                "counterexample": _data(row.inst, fault.first.exchange, fault.first.expected),
            }
            for sm, fault in row.done.faults.items()
        },
    }


def compared_data(row: Comparison) -> dict[str, object]:
    inst = row.reading.inst
    return {
        "gpu": row.recorded.gpu,
        "operand": row.recorded.operand,
        "result": row.recorded.result,
        "name": inst.name,
        "without_c": row.reading.without_c,
        "dots": row.dots,
        "mismatches": row.mismatches,
        "others": {str(reading): count for reading, count in row.others},
        **({"counterexample": _data(inst, row.first.exchange, row.first.expected)} if row.first else {}),
    }


def _data(inst: Instruction, exchange: Exchange, expected: int) -> dict[str, object]:
    return {"exchange": report.exchange(inst, exchange), "expected": f"{expected:0{inst.d.storage_bits // 4}x}"}


def _table(name: str, *numbers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(name, overflow="fold")
    for header in numbers:
        table.add_column(header, justify="left" if header in ("operands", "result") else "right", no_wrap=True)
    return table


def _rate(rate: float) -> str:
    return f"{rate:.2g}"


def _style(wrong: int) -> str:
    return "red" if wrong else ""

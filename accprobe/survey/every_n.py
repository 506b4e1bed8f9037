"""Every n of a wgmma: measured, and kept as one row where they are alike."""

from __future__ import annotations

from collections.abc import Iterable

from accprobe.isa.instructions import Instruction, alike_but_n, at_n, catalog, every_n
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.report.words import ran_as


def with_every_n(insts: Iterable[Instruction]) -> list[Instruction]:
    """The instructions, and behind them those that differ from one of them in n alone."""
    listed = list(insts)
    return list(dict.fromkeys([*listed, *(at_n(inst, n) for inst in listed for n in every_n(inst))]))


def as_one_row(report: Report) -> Report:
    """The report without the rows of unlisted n that are like a listed one's: that of the smallest n then has theirs too."""
    listed = catalog(report.device.architecture)
    rows = {row.instruction: row for row in report.instructions}
    for inst, row in list(rows.items()):
        if inst in listed or not row.holds:
            continue
        alike = (rows[other] for other in sorted(alike_but_n(inst, rows), key=lambda other: other.n) if other in listed)
        if leader := next((other for other in alike if _alike(row, other)), None):
            rows[leader.instruction] = leader.model_copy(update={"also_at": tuple(sorted((*leader.also_at, inst.n)))})
            del rows[inst]
    run = report.run.model_copy(update={"selected": report.run.selected - len(report.instructions) + len(rows)})
    return report.model_copy(update={"instructions": tuple(rows.values()), "run": run})


def _alike(row: Row, other: Row) -> bool:
    return all(told(row) == told(other) for told in (lambda r: r.status, lambda r: r.model, lambda r: r.findings, ran_as))

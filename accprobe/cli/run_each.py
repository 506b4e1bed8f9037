"""`accprobe run --device all`: the report of the first GPU of each kind, and the others verified against it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accprobe.cli.measuring import Wanted, measured_report, report_holds
from accprobe.cli.output import INTERRUPTED, tell
from accprobe.errors import AccprobeError
from accprobe.render.terminal.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.isa.instructions import Instruction
    from accprobe.model.tree import DotModel
    from accprobe.render.content.verification import Verified


def run_each(devices: str, wanted: Wanted, output: Path | None) -> bool:
    """Whether every row holds and no GPU differs from the first of its kind. Ends the process where it is interrupted."""
    from accprobe.devices import device_names
    from accprobe.survey.run import by_kind

    kinds = by_kind(device_names(devices))
    if wanted.form == "json" and len(kinds) > 1:
        raise several_reports(len(kinds))
    good = True
    for kind, (first, *others) in kinds.items():
        file = output and (file_of_kind(output, kind) if len(kinds) > 1 else output)
        tell(f"{first}, {kind}: measured{f', into {file}' if file else ''}")
        report = measured_report(first, wanted, file)
        good &= report_holds(report)
        if others:
            from accprobe.report.names import models_of

            models = models_of(report, first)
            for other in others:
                good &= _verified(other, first, models, wanted)
    return good


def _verified(name: str, first: str, models: dict[Instruction, DotModel], wanted: Wanted) -> bool:
    """Whether nothing differs; what does is told."""
    from accprobe.devices import open_device
    from accprobe.render.content.verification import Verified
    from accprobe.survey.run import verified_as

    rows: list[Verified] = []
    started = time.perf_counter()
    try:
        with progress_bar(f"verifying {name}") as show:
            for inst, done in verified_as(open_device(name), models, wanted.dots, wanted.seed):
                rows.append(Verified(inst, done, time.perf_counter() - started))
                started = time.perf_counter()
                show(len(rows), len(models), f"verifying {name}")
    except KeyboardInterrupt:
        from accprobe.report.words import so_many

        tell(f"interrupted: {name} was verified on {len(rows)} of {so_many(len(models), 'instruction')}")
        sys.exit(INTERRUPTED)
    return tell_verified(name, first, rows, wanted)


def tell_verified(name: str, first: str, rows: Sequence[Verified], wanted: Wanted) -> bool:
    """As `_verified`, of what was found."""
    from accprobe.render.content.verification import mismatch
    from accprobe.render.terminal.console import console
    from accprobe.render.terminal.verification import verification_table
    from accprobe.report.words import so_many

    wrong = [row for row in rows if row.done.mismatches]
    dots = sum(row.done.dots for row in rows)
    if wrong and wanted.form == "terminal":
        console().print(verification_table(wrong))
    for row in wrong[:1]:
        assert row.done.counterexample is not None
        found = f"{row.inst.name}: {mismatch(row.inst, row.done.counterexample)}"
        tell(f"{name} differs from {first} in {len(wrong)} of {so_many(len(rows), 'instruction')}; {found}")
    if not wrong:
        asked = f"{so_many(len(rows), 'instruction')}, {so_many(dots, 'dot product')}"
        tell(f"{name} computes as {first} does: {asked}, none differs")
    return not wrong


def several_reports(kinds: int) -> AccprobeError:
    return AccprobeError(f"these are {kinds} kinds of GPUs, and so many reports: give -o FILE, without --format json")


def file_of_kind(output: Path, kind: str) -> Path:
    """ "report.json" of an "NVIDIA H200" is "report-nvidia-h200.json"."""
    slug = re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")
    return output.with_name(f"{output.stem}-{slug}{output.suffix}")

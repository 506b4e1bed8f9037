"""`accprobe run --device all`: the report of the first GPU of each kind, and the others verified against it."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from accprobe.cli.output import INTERRUPTED, tell
from accprobe.cli.run import RunRequest, measured_report, report_holds
from accprobe.errors import AccprobeError
from accprobe.render.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.isa.instructions import Instruction
    from accprobe.model.tree import DotModel
    from accprobe.render.subjects.verification import Verified


def run_each(request: RunRequest) -> bool:
    """Return whether every row holds and no GPU differs from the first of its kind. Exits where it is interrupted."""
    from accprobe.devices import device_names
    from accprobe.report.names import models_of
    from accprobe.survey.run import by_kind

    kinds = by_kind(device_names(request.device))
    if request.form == "json" and len(kinds) > 1:
        raise AccprobeError(f"these are {len(kinds)} kinds of GPUs with a report each: give -o FILE, without --format json")
    good = True
    for kind, (first, *others) in kinds.items():
        file = request.output and (_file_of_kind(request.output, kind) if len(kinds) > 1 else request.output)
        tell(f"{first}, {kind}: measured{f', into {file}' if file else ''}")
        report = measured_report(request, first, file)
        good &= report_holds(report)
        for other in others:
            good &= _verified(other, first, models_of(report, first), request)
    return good


def _file_of_kind(output: Path, kind: str) -> Path:
    """Return "report-nvidia-h200.json" for "report.json" and an "NVIDIA H200"."""
    slug = re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")
    return output.with_name(f"{output.stem}-{slug}{output.suffix}")


def _verified(name: str, first: str, models: dict[Instruction, DotModel], request: RunRequest) -> bool:
    """Return whether nothing differs, and print what does."""
    from accprobe.devices import open_device
    from accprobe.render.subjects.verification import Verified
    from accprobe.report.words import so_many
    from accprobe.survey.run import verified_as

    rows: list[Verified] = []
    started = time.perf_counter()
    try:
        with progress_bar(f"verifying {name}") as show:
            for inst, done in verified_as(open_device(name), models, request.dots, request.seed):
                rows.append(Verified(inst, done, time.perf_counter() - started))
                started = time.perf_counter()
                show(len(rows), len(models), f"verifying {name}")
    except KeyboardInterrupt:
        tell(f"interrupted: {name} was verified on {len(rows)} of {so_many(len(models), 'instruction')}")
        sys.exit(INTERRUPTED)
    return _print_verified(name, first, rows, request.form)


def _print_verified(name: str, first: str, rows: list[Verified], form: str) -> bool:
    from accprobe.render.subjects.verification import mismatch, verification_blocks
    from accprobe.render.terminal import print_blocks
    from accprobe.report.words import so_many

    wrong = [row for row in rows if row.done.mismatches]
    if not wrong:
        dots = so_many(sum(row.done.dots for row in rows), "dot product")
        tell(f"{name} computes as {first} does: {so_many(len(rows), 'instruction')}, {dots}, none differs")
        return True
    if form == "terminal":
        print_blocks(verification_blocks(wrong))
    example = wrong[0]
    assert example.done.counterexample is not None
    found = f"{example.inst.name}: {mismatch(example.inst, example.done.counterexample)}"
    tell(f"{name} differs from {first} in {len(wrong)} of {so_many(len(rows), 'instruction')}; {found}")
    return False

"""`accprobe verify`: recorded or published models against a device, each of its SMs, or recorded results of hardware."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from accprobe.cli import interrupts
from accprobe.cli.count import PositiveCount
from accprobe.cli.interrupts import TimeLimitReached, time_limit_option
from accprobe.cli.output import (
    INTERRUPTED,
    STDOUT,
    TIMED_OUT,
    OutputFile,
    check_writable,
    deliver,
    named_form,
    say_what_is_unseen,
    tell,
)
from accprobe.cli.reports import read_report
from accprobe.cli.run import NOT_CONFIRMED
from accprobe.errors import AccprobeError, UnknownName
from accprobe.render.plain import plain
from accprobe.render.terminal.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.devices.protocol import Device
    from accprobe.isa.instructions import Instruction
    from accprobe.model.tree import DotModel
    from accprobe.render.content.verification import CheckedUp, Verified
    from accprobe.verify.outcome import Advance
    from accprobe.verify.vectors import Comparison

MISMATCH = NOT_CONFIRMED


@click.command("verify")
@click.argument("models", metavar="REPORT|sim:NAME|sim:all")
@click.option("--device", metavar="auto|gpu|cuda:N|sim:NAME|faulty:NAME", help="What to hold them against.  [default: gpu]")
@click.option(
    "--vectors",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Hold them against recorded results instead, in the layout of MATLAB-tensor-core's model_validation.",
)
@click.option("--dots", type=PositiveCount(), default="1e6", show_default=True, help="Random dot products of each instruction.")
@click.option("--select", multiple=True, metavar="GLOB", help="Only instructions whose name matches; may be given again.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random operands.")
@click.option("--every-sm", is_flag=True, help="Ask every SM of the GPU all of the dots, and name those that differ.")
@click.option("--coverage", is_flag=True, help="Make operands for all that a model's sums can do, and say what was met.")
@time_limit_option
@click.option("--format", "form", type=click.Choice(["terminal", "json"]), default="terminal", show_default=True)
@click.option("-o", "--output", type=OutputFile(), metavar="FILE", help="Keep it here, as JSON; - is standard output.")
def verify_command(
    models: str,
    device: str | None,
    vectors: Path | None,
    dots: int,
    select: tuple[str, ...],
    seed: int,
    every_sm: bool,
    coverage: bool,
    time_limit: float | None,
    form: str,
    output: Path | None,
) -> None:
    """Verify models on a GPU, or against recorded results of hardware.

    Every bit of every result is compared. MODELS is a report, some rows of one (h200:QGMMA), or sim:NAME for published
    models. On a GPU this checks the GPU and its driver. --vectors DIR checks the models instead: the name of each GPU in DIR
    selects its models (sim:all: published models of every GPU).

    sim: devices have no SMs, so --every-sm refuses them. faulty:NAME has four SMs, one of which computes wrong results.

    Needs: extra cuda13 or cuda12 on a GPU; nothing for --vectors and sim: devices.

    Exit status: 0 nothing differs, 1 something does, --coverage missed an event that can occur, or --time-limit ended it, 2 it
    could not be done, 130 interrupted.

    \b
    Examples:
      accprobe verify h200 --device cuda:0 --dots 1e9 --select 'wgmma.*e4m3*'
      accprobe verify h200 --device cuda:0 --coverage
      accprobe verify h200 --device cuda:0 --every-sm
      accprobe verify sim:all --vectors model_validation
    """
    if output:
        named_form(output, {})
        check_writable(output)
    told = _Told(form, output)
    if vectors:
        if device or every_sm or coverage or time_limit:
            raise click.UsageError("--vectors needs no device: leave out --device, --every-sm, --coverage and --time-limit")
        _against_vectors(models, vectors, select, told)
        return
    if every_sm and coverage:
        raise click.UsageError("--coverage is of the device as a whole: leave out --every-sm")
    if every_sm:
        _on_every_sm(models, device, select, dots, seed, time_limit, told)
    else:
        _against_device(models, device, select, dots, seed, coverage, time_limit, told)


class _Told(NamedTuple):
    """How the outcome is told: printed in a form, and kept in a file."""

    form: str
    output: Path | None

    def print(self, data: object, shown: Callable[[], Iterable[object]], differs: bool) -> None:
        """differs: what differs counts for more than a file that cannot be written."""
        text = plain(json.dumps(data, indent=1, ensure_ascii=False)) + "\n"
        if self.output != STDOUT and self.form == "terminal":
            from accprobe.render.terminal.console import console

            console().print(*shown(), sep="\n")
        if not self.output and self.form != "json":
            return
        try:
            deliver(text, self.output)
        except AccprobeError as e:
            if not differs:
                raise
            tell(str(e))


def _against_device(
    models: str,
    name: str | None,
    select: tuple[str, ...],
    dots: int,
    seed: int,
    coverage: bool,
    time_limit: float | None,
    told: _Told,
) -> None:
    from accprobe.render.content.verification import Verified
    from accprobe.render.data import verified_data
    from accprobe.render.terminal.verification import heading, verification_table
    from accprobe.verify.bulk import prepare_to_verify, verify_in_bulk
    from accprobe.verify.coverage import cover, together
    from accprobe.verify.shrink import shrink

    rows: list[Verified] = []

    def measure(device: Device, chosen: Mapping[Instruction, DotModel], advance: Advance) -> None:
        for inst, model in chosen.items():
            started = time.perf_counter()
            done = verify_in_bulk(device, inst, model, dots, seed, advance)
            seconds = time.perf_counter() - started
            if coverage:
                done = together(done, cover(device, inst, model, 0, seed, advance))
            smallest = shrink(partial(device.dot, inst), inst, model, found) if (found := done.counterexample) else None
            rows.append(Verified(inst, done, seconds, smallest))

    with interrupts.time_limit(time_limit):
        with progress_bar("compiling for the device"):
            device, chosen, lacking = _opened(models, name, select)
            prepare_to_verify(device, chosen)
        say_what_is_unseen(name or "")
        seen = _measured(partial(measure, device, chosen), len(chosen) * dots, device)
    data = {**_head(models, device, lacking), "verified": [verified_data(row) for row in rows]}
    differs = any(row.done.mismatches or (row.done.events and row.done.events.missing) for row in rows)
    if rows or seen.stop is None:
        told.print(data, lambda: [*heading(models, device, lacking), verification_table(rows)], differs)
    _exit(differs, seen, len(rows), len(chosen))


def _on_every_sm(
    models: str,
    name: str | None,
    select: tuple[str, ...],
    dots: int,
    seed: int,
    time_limit: float | None,
    told: _Told,
) -> None:
    from accprobe.devices.protocol import OnEverySm
    from accprobe.health.sms import check_every_sm
    from accprobe.render.content.verification import CheckedUp
    from accprobe.render.data import checked_up_data
    from accprobe.render.terminal.verification import checkup_table, heading

    rows: list[CheckedUp] = []

    def measure(device: OnEverySm, chosen: Mapping[Instruction, DotModel], advance: Advance) -> None:
        for inst, model in chosen.items():
            started = time.perf_counter()
            done = check_every_sm(device, inst, model, dots, seed, advance)
            rows.append(CheckedUp(inst, done, time.perf_counter() - started))

    with interrupts.time_limit(time_limit):
        device, chosen, lacking = _opened(models, name, select)
        if not isinstance(device, OnEverySm):
            known = "" if device.kind != "simulated" else "; faulty:NAME has SMs, one of them faulty"
            raise AccprobeError(f"--every-sm: {device.name} does not say which SM computed what{known}")
        seen = _measured(partial(measure, device, chosen), None, device)
    data = {**_head(models, device, lacking), "checked": [checked_up_data(row) for row in rows]}
    differs = any(row.done.faults for row in rows)
    if rows or seen.stop is None:
        told.print(data, lambda: [*heading(models, device, lacking), checkup_table(rows)], differs)
    _exit(differs, seen, len(rows), len(chosen))


def _against_vectors(models: str, folder: Path, select: tuple[str, ...], told: _Told) -> None:
    from accprobe.render.data import compared_data
    from accprobe.render.terminal.verification import vectors_table
    from accprobe.report.names import matching
    from accprobe.verify.vectors import compare, find_vectors

    every = find_vectors(folder)
    source, belongs = _models_for(models)
    chosen = [recorded for recorded in every if belongs(recorded.gpu)]
    if not chosen:
        gpus = ", ".join(dict.fromkeys(recorded.gpu for recorded in every))
        raise UnknownName(f"{folder} has results of {gpus}, none of which {models} is about; sim:all takes them all")
    rows: list[Comparison] = [compare(recorded, source) for recorded in chosen]
    if select:
        named = [row.reading.inst for row in rows]
        kept = {inst for word in select for inst in matching(named, word, dict)}
        rows = [row for row in rows if row.reading.inst in kept]
        if not rows:
            raise UnknownName(f"--select leaves none of {', '.join(dict.fromkeys(inst.name for inst in named))}")
    others = sorted({recorded.gpu for recorded in every} - {recorded.gpu for recorded in chosen})
    if others:
        tell(f"left out, as {models} is not about them: {', '.join(others)}")
    data = {"models": models, "compared": [compared_data(row) for row in rows]}
    differs = any(row.mismatches for row in rows)
    told.print(data, lambda: [vectors_table(rows)], differs)
    if differs:
        sys.exit(MISMATCH)


def _models_for(models: str) -> tuple[Callable[[str], Mapping[Instruction, DotModel]], Callable[[str], bool]]:
    """(the models of a GPU by its name, whether a GPU is meant at all)."""
    from accprobe.report.names import models_of
    from accprobe.verify.vectors import published_models, same_chip

    if models == "sim:all":
        return published_models, lambda gpu: True
    report = read_report(models)
    chosen, words = models_of(report, models), report.device.name.split()
    return lambda gpu: chosen, lambda gpu: any(same_chip(gpu, word) for word in words)


class _Opened(NamedTuple):
    """The device, and the models of what it has and is selected. lacking: what of the models it cannot run, where all were
    meant.
    """

    device: Device
    chosen: dict[Instruction, DotModel]
    lacking: list[Instruction]


def _opened(models: str, name: str | None, select: tuple[str, ...]) -> _Opened:
    """Raises AccprobeError where nothing is left to verify."""
    from accprobe.devices import open_device
    from accprobe.devices.protocol import Prepares
    from accprobe.report.names import models_of, selected

    if models == "sim:all":
        raise AccprobeError("sim:all goes with --vectors; for a device, name one chip, such as sim:h100")
    known = models_of(read_report(models), models)
    device = open_device(name or "gpu")
    runnable = [inst for inst in selected(device, select) if device.why_not(inst) is None]
    fitting = {inst: known[inst] for inst in runnable if inst in known}
    fitting |= _stand_ins(models, known, [inst for inst in runnable if inst not in (*known, *device.instructions())])
    if not fitting:
        raise AccprobeError(f"{models} has no model of an instruction that {device.name} can run and that is selected")
    if isinstance(device, Prepares):
        device.prepare(fitting)
    return _Opened(device, fitting, [inst for inst in known if inst not in fitting] if not select else [])


def _stand_ins(models: str, known: Mapping[Instruction, DotModel], named: Sequence[Instruction]) -> dict[Instruction, DotModel]:
    """For instructions that were named and are in no catalog, the models of those that differ in n alone; each is told."""
    from accprobe.report.names import nearest_measured

    found = {inst: other for inst in named if (other := nearest_measured(inst, known))}
    for other in found.values():
        tell(other.sentence(models))
    return {inst: known[other.nearest] for inst, other in found.items()}


class _Seen(NamedTuple):
    """Dot products compared, those that differed, and what ended it early."""

    compared: int
    differed: int
    stop: KeyboardInterrupt | None = None


def _measured(measure: Callable[[Advance], None], total: int | None, device: Device) -> _Seen:
    seen = [0, 0]
    with progress_bar(f"verifying {device.name}", speed=True, in_lines="dot products") as show:

        def advance(compared: int, differed: int) -> None:
            seen[0] += compared
            seen[1] += differed
            show(seen[0], total, f"verifying {device.name}" + (f", {seen[1]:,} differ" if seen[1] else ""))

        try:
            measure(advance)
        except KeyboardInterrupt as e:
            return _Seen(seen[0], seen[1], e)
    return _Seen(seen[0], seen[1])


def _head(models: str, device: Device, lacking: Sequence[Instruction]) -> dict[str, object]:
    about = {"kind": device.kind, "name": device.name, "architecture": device.architecture}
    return {"models": models, "device": about, "lacking": [inst.name for inst in lacking]}


def _exit(differs: bool, seen: _Seen, done: int, wanted: int) -> None:
    if seen.stop is not None:
        from accprobe.report.words import so_many

        compared = f"{seen.compared:,} dot products were compared, {seen.differed:,} differ"
        instructions = f"{done} of {so_many(wanted, 'instruction')}"
        if isinstance(seen.stop, TimeLimitReached):
            tell(f"{seen.stop}: {instructions} verified, {compared}")
            sys.exit(TIMED_OUT)
        tell(f"interrupted after {instructions}: {compared}")
        sys.exit(INTERRUPTED)
    if differs:
        sys.exit(MISMATCH)

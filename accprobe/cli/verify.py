"""`accprobe verify`: models against a device."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import click

from accprobe.cli.interrupts import exit_interrupted, time_limit, time_limit_option
from accprobe.cli.output import DIFFERS, Output, count, output_options, print_message, seed_option
from accprobe.cli.reports import read_report
from accprobe.errors import AccprobeError
from accprobe.render.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.isa.instructions import Instruction
    from accprobe.model.tree import DotModel
    from accprobe.operands.protocol import Device
    from accprobe.records.verification import Advance
    from accprobe.render.subjects.instruction import Verified


@click.command("verify")
@click.argument("models", metavar="MODELS")
@click.option("--device", default="gpu", show_default=True, metavar="NAME", help="Device: auto, gpu, cuda:N, cpu or sim:NAME.")
@click.option(
    "--dots", type=count, default="1e6", show_default=True, metavar="COUNT", help="Random dot products per instruction."
)
@click.option("--select", multiple=True, metavar="GLOB", help="Instructions: a name, a glob or an opcode. Repeatable.")
@seed_option
@click.option(
    "--coverage",
    is_flag=True,
    help="Compare operands for each event of a model too, as far as operands are found, and count the events covered. An event"
    " is a case of the arithmetic, such as a tie or a term shifted out.",
)
@time_limit_option
@output_options("json")
def verify_command(models: str, device: str, dots: int, select: tuple[str, ...], seed: int, coverage: bool, to: Output) -> None:
    """Verify the models of a report with fresh operands on a device.

    Every bit of every result is compared. MODELS is a report, some rows of one (h200:QGMMA), or sim:NAME for published models.

    Needs: extra cuda13 or cuda12 on a GPU; nothing for cpu and sim: devices.

    Exit status 0: no mismatch. 1: a mismatch, under --coverage an event with known operands that was not covered, or
    --time-limit ended it. 2: error. 130: interrupted.

    \b
    Examples:
      accprobe verify h200 --device cuda:0 --dots 1e9 --select 'wgmma.*e4m3*'
      accprobe verify h200 --device cuda:0 --coverage
    """
    from accprobe.render.data import verification_json
    from accprobe.render.subjects.instruction import verification_blocks
    from accprobe.report.words import so_many
    from accprobe.verify.bulk import prepare_to_verify

    rows: list[Verified] = []
    compared = differing = 0
    stop = None
    with time_limit(to.seconds):
        with progress_bar("compiling for the device"):
            opened, chosen, lacking = _open_device_and_models(models, device, select)
            prepare_to_verify(opened, chosen)
        with progress_bar(f"verifying {opened.name}", speed=True) as show:

            def advance(more: int, wrong: int) -> None:
                nonlocal compared, differing
                compared, differing = compared + more, differing + wrong
                differ = f", {differing:,} differ" if differing else ""
                show(compared, len(chosen) * dots, f"verifying {opened.name}{differ}")

            try:
                for inst, model in chosen.items():
                    rows.append(_verified(opened, inst, model, dots, seed, coverage, advance))
            except KeyboardInterrupt as e:
                stop = e
    differs = any(row.done.mismatches or (row.done.events and row.done.events.missing) for row in rows)
    if rows or stop is None:
        shown = models, opened, lacking, rows
        to.deliver(lambda: verification_blocks(*shown), differs, json=lambda: verification_json(*shown))
    if stop is not None:
        verified = f"{len(rows)} of {so_many(len(chosen), 'instruction')} verified"
        exit_interrupted(f"{verified}, {compared:,} dot products were compared, {differing:,} differ", stop)
    if differs:
        sys.exit(DIFFERS)


def _verified(
    device: Device, inst: Instruction, model: DotModel, dots: int, seed: int, coverage: bool, advance: Advance
) -> Verified:
    """Compare the model of an instruction with its results, and shrink the operands of a mismatch."""
    from accprobe.evaluate.evaluator import evaluate
    from accprobe.operands.protocol import InstructionSubject
    from accprobe.render.subjects.instruction import Verified
    from accprobe.verify.bulk import verify
    from accprobe.verify.coverage import cover
    from accprobe.verify.shrink import shrink

    started = time.perf_counter()
    done = verify(device, inst, model, dots, seed, advance)
    seconds = time.perf_counter() - started
    if coverage:
        done = cover(InstructionSubject(device, inst), model, 0, seed, advance, done)
    found = done.counterexample
    smallest = shrink(partial(device.dot, inst), partial(evaluate, model, inst), inst, found) if found else None
    return Verified(inst, done, seconds, smallest)


def _open_device_and_models(
    models: str, name: str, select: tuple[str, ...]
) -> tuple[Device, dict[Instruction, DotModel], list[Instruction]]:
    """Return the device, the models of its selected instructions and, without --select, those that it cannot run. Raises
    AccprobeError if no instruction can be verified.
    """
    from accprobe.devices import open_device
    from accprobe.report.names import models_of, nearest_n, selected

    known = models_of(read_report(models), models)
    device = open_device(name)
    runnable = [inst for inst in selected(device, select) if device.explain_unavailable(inst) is None]
    fitting = {inst: known[inst] for inst in runnable if inst in known}
    for inst in runnable:  # a wgmma of an n that no catalog lists: the model of the nearest n
        listed = inst in known or inst in device.instructions()
        if not listed and (other := nearest_n(inst, known, models)):
            print_message(other[1])
            fitting[inst] = known[other[0]]
    if not fitting:
        raise AccprobeError(f"{models} has no model of a selected instruction that {device.name} can run")
    device.prepare(fitting)
    return device, fitting, [] if select else [inst for inst in known if inst not in fitting]

"""`accprobe verify`: models against a device."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

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
    from accprobe.render.subjects.instruction import Verified


@dataclass(frozen=True)
class VerifyRequest:
    """The options of `accprobe verify`."""

    models: str
    device: str
    dots: int
    select: tuple[str, ...]
    seed: int
    coverage: bool
    to: Output


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
    help="Generate operands for every event of a model, and count the events covered. An event is a case of the arithmetic,"
    " such as a tie or a term shifted out.",
)
@time_limit_option
@output_options("json")
def verify_command(**options: Any) -> None:
    """Verify the models of a report with fresh operands on a device.

    Every bit of every result is compared. MODELS is a report, some rows of one (h200:QGMMA), or sim:NAME for published models.

    Needs: extra cuda13 or cuda12 on a GPU; nothing for cpu and sim: devices.

    Exit status 0: no mismatch. 1: a mismatch, an event not covered under --coverage, or --time-limit ended it. 2: error. 130:
    interrupted.

    \b
    Examples:
      accprobe verify h200 --device cuda:0 --dots 1e9 --select 'wgmma.*e4m3*'
      accprobe verify h200 --device cuda:0 --coverage
    """
    request = VerifyRequest(**options)
    from accprobe.render.data import verified_data
    from accprobe.render.subjects.instruction import banner_blocks, compared_blocks, verification_blocks
    from accprobe.verify.bulk import prepare_to_verify

    rows: list[Verified] = []
    done, stop = _Comparison(), None
    with time_limit(request.to.seconds):
        with progress_bar("compiling for the device"):
            device, chosen, lacking = _open_device_and_models(request)
            prepare_to_verify(device, chosen)
        try:
            _verify_each(request, device, chosen, rows, done)
        except KeyboardInterrupt as e:
            stop = e
    data = {
        "models": request.models,
        "device": {"kind": device.kind, "name": device.name, "architecture": device.architecture},
        "lacking": [inst.name for inst in lacking],
        "verified": [verified_data(row) for row in rows],
    }
    differs = any(row.done.mismatches or (row.done.events and row.done.events.missing) for row in rows)
    if rows or stop is None:
        compared = compared_blocks(request.models, device, lacking)
        text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
        request.to.deliver(lambda: [*banner_blocks(device), *verification_blocks(rows), *compared], lambda _: text, differs)
    if stop is not None:
        from accprobe.report.words import so_many

        verified = f"{len(rows)} of {so_many(len(chosen), 'instruction')} verified"
        exit_interrupted(f"{verified}, {done.dots:,} dot products were compared, {done.mismatches:,} differ", stop)
    if differs:
        sys.exit(DIFFERS)


@dataclass
class _Comparison:
    """Numbers of compared dot products and of mismatches so far."""

    dots: int = 0
    mismatches: int = 0


def _verify_each(
    request: VerifyRequest, device: Device, chosen: Mapping[Instruction, DotModel], rows: list[Verified], so_far: _Comparison
) -> None:
    """Verify the model of each instruction, add a row for it, and count in `so_far`."""
    from accprobe.evaluate.evaluator import evaluate
    from accprobe.operands.protocol import InstructionSubject
    from accprobe.render.subjects.instruction import Verified
    from accprobe.verify.bulk import verify_in_bulk
    from accprobe.verify.coverage import cover
    from accprobe.verify.shrink import shrink

    total = len(chosen) * request.dots
    with progress_bar(f"verifying {device.name}", speed=True) as show:

        def advance(compared: int, differed: int) -> None:
            so_far.dots += compared
            so_far.mismatches += differed
            differ = f", {so_far.mismatches:,} differ" if so_far.mismatches else ""
            show(so_far.dots, total, f"verifying {device.name}{differ}")

        for inst, model in chosen.items():
            started = time.perf_counter()
            done = verify_in_bulk(device, inst, model, request.dots, request.seed, advance)
            seconds = time.perf_counter() - started
            if request.coverage:
                done = cover(InstructionSubject(device, inst), model, 0, request.seed, advance, done)
            found, expect = done.counterexample, partial(evaluate, model, inst)
            smallest = shrink(partial(device.dot, inst), expect, inst, found) if found else None
            rows.append(Verified(inst, done, seconds, smallest))


def _open_device_and_models(request: VerifyRequest) -> tuple[Device, dict[Instruction, DotModel], list[Instruction]]:
    """Return the device, the models of its selected instructions and, without --select, those that it cannot run. Raises
    AccprobeError if no instruction can be verified.
    """
    from accprobe.devices import open_device
    from accprobe.report.names import models_of, nearest_n, selected

    models = request.models
    known = models_of(read_report(models), models)
    device = open_device(request.device)
    runnable = [inst for inst in selected(device, request.select) if device.explain_unavailable(inst) is None]
    fitting = {inst: known[inst] for inst in runnable if inst in known}
    for inst in runnable:  # a wgmma of an n that no catalog lists: the model of the nearest n
        listed = inst in known or inst in device.instructions()
        if not listed and (other := nearest_n(inst, known, models)):
            print_message(other[1])
            fitting[inst] = known[other[0]]
    if not fitting:
        raise AccprobeError(f"{models} has no model of a selected instruction that {device.name} can run")
    device.prepare(fitting)
    return device, fitting, [] if request.select else [inst for inst in known if inst not in fitting]

"""Check one GPU, unit after unit until the time is over, against its models, and all GPUs of a host at once.

Each GPU of a host has a process, so that a crash or hang affects one GPU only.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from accprobe.build import driver
from accprobe.build.golden import is_golden
from accprobe.devices import open_device
from accprobe.devices.simulated import simulated_device
from accprobe.errors import AccprobeError, DeviceError, ToolMissing, UnknownName
from accprobe.evaluate.cuda.source import not_compiled
from accprobe.health.bench import CpuBench, SeenWord, Turn, UnitBench
from accprobe.health.functions import function_benches
from accprobe.health.outcome import Board, GpuOutcome, HealthMismatch, OnOutcome, Sensors, Smallest, UnitOutcome
from accprobe.health.plan import HANG_SECONDS, CheckPlan, chosen
from accprobe.health.sensors import Nvml, Watch
from accprobe.isa.instructions import Instruction
from accprobe.model.published import chip, known_models, names
from accprobe.model.tree import DotModel
from accprobe.operands.protocol import Device, OnGpu
from accprobe.report.names import named_models
from accprobe.report.published import recorded_of
from accprobe.survey.workers import end_with_parent, interrupts_held_back

KEPT_OF_AN_SM = 2
"""Mismatches per instruction and SM that are repeated and shrunk; all are counted."""

MOST_KEPT = 16
"""The same per GPU."""


def check_gpu(name: str, plan: CheckPlan) -> Iterator[GpuOutcome]:
    """Check the GPU "cuda:0" or "sim:h100"; yield the outcome so far every few seconds, the final one last.

    A GPU that cannot be opened or that stops raises nothing: its outcome has the reason.
    """
    until = time.monotonic() + plan.seconds
    so_far = GpuOutcome.unopened(name)
    try:
        for so_far in _checked(name, plan, until):
            yield so_far
    except AccprobeError as e:
        yield so_far.stopped(str(e))


def check_named(name: str) -> None:
    """Check the name of a GPU. Raises UnknownName for a name of another kind, DeviceError if this host has no such "cuda:N"."""
    word, _, rest = name.partition(":")
    if word not in ("cuda", "sim", "faulty") or not rest:
        raise UnknownName(f"'{name}' is not a GPU; give all, or some of cuda:N, sim:NAME and faulty:NAME with commas between")
    if word != "cuda":
        chip(f"sim:{rest}")
        return
    count, reason = driver.gpus()
    if not rest.isdecimal() or int(rest) >= count:
        if count == 0:
            raise driver.no_gpu(reason)
        raise DeviceError(f"there is no {name}: this machine has cuda:0 to cuda:{count - 1}")


def _simulated_chip(name: str) -> str | None:
    """Return "sim:h100" for "sim:h100" and "faulty:h100", None for a GPU."""
    word, _, rest = name.partition(":")
    return None if word == "cuda" else f"sim:{rest}"


def _open_device(name: str) -> Device:
    chip = _simulated_chip(name)
    return simulated_device(chip, faulty=True) if chip and name.startswith("faulty:") else open_device(name)


def check_host(names: Sequence[str], plan: CheckPlan, on_outcome: OnOutcome) -> None:
    """Check the GPUs of those names at once. on_outcome: called with each change."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, tuple[int, BaseProcess]] = {}
    latest = [GpuOutcome.unopened(name) for name in names]
    try:
        with interrupts_held_back():
            for index, name in enumerate(names):
                receiving, sending = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(target=_check_in_worker, args=(name, plan, sending), daemon=True)
                process.start()
                sending.close()
                workers[receiving] = index, process
        until = time.monotonic() + plan.seconds + HANG_SECONDS
        listening = list(workers)
        while listening:
            ready = wait(listening, max(until - time.monotonic(), 0.0))
            for connection in [each for each in listening if each in ready]:
                index, process = workers[connection]
                try:
                    latest[index] = connection.recv()
                except EOFError:
                    listening.remove(connection)
                    process.join()
                    if latest[index].ended:
                        continue
                    code = process.exitcode or 0
                    how = f"signal {-code}" if code < 0 else f"exit status {code}"
                    latest[index] = latest[index].stopped(f"its process died ({how})")
                on_outcome(index, latest[index])
            if not ready:
                for connection in listening:
                    index, _ = workers[connection]
                    reason = f"it hangs: not finished {HANG_SECONDS:.0f} s after the planned end"
                    on_outcome(index, latest[index].stopped(reason))
                return
    finally:
        for _, process in workers.values():
            process.kill()


def _checked(name: str, plan: CheckPlan, until: float) -> Iterator[GpuOutcome]:
    started = time.monotonic()
    nvml, missing = _nvml(name)
    shared = nvml.others() if nvml else ""
    device = _open_device(name)
    so_far = GpuOutcome(
        device=name,
        name=device.name,
        kind="simulated" if device.kind == "simulated" else "cuda",
        architecture=device.architecture,
        status="healthy",
        board=nvml.board(plan.serial) if nvml else Board(uuid=device.uuid()),
        sensors_missing=missing,
        shared=shared,
    )
    yield so_far
    source, models, remark = trusted(device, plan.like or _simulated_chip(name))
    units = chosen(device, models)
    if not units:
        raise AccprobeError(f"{source} has no model of a unit of {device.architecture}; --like REPORT names one that has")
    so_far = so_far.model_copy(update={"models": source, "remark": remark})
    benches = _benches(device, {unit: (inst, models[inst]) for unit, inst in units.items()}, plan.seed)
    benches |= function_benches(device, plan.like, plan.seed)
    watch = Watch(nvml) if nvml else None
    try:
        for unit, seconds in chain(((unit, None) for unit in benches), _turns(plan, list(benches), until)):
            bench = benches[unit]
            turn = bench.prepare() if seconds is None else bench.turn(seconds)
            so_far = _after(so_far, unit, bench, turn, plan.again, watch)
            so_far = so_far.model_copy(update={"seconds": round(time.monotonic() - started, 3)})
            yield so_far
    finally:
        if watch:
            watch.stop()
    if idle := [unit.unit for unit in so_far.units if not unit.dots]:
        raise AccprobeError(f"nothing was compared in {plan.seconds:g} s of {', '.join(idle)}; give it more time")
    below = tuple(unit.unit for unit in so_far.units if so_far.kind == "cuda" and not unit.at_full_load)
    yield so_far.model_copy(update={"finished": True, "below_full_load": below})


def _turns(plan: CheckPlan, units: Sequence[str], until: float) -> Iterator[tuple[str, float]]:
    """Yield units in turn with their seconds, until the time is over and each unit had its minimum."""
    spent = dict.fromkeys(units, 0.0)
    for unit in cycle(units):
        now, least = time.monotonic(), plan.least(len(units))
        if now >= until and all(seconds >= least for seconds in spent.values()):
            return
        if (left := max(until - now, least - spent[unit])) > 0:
            yield unit, min(plan.turn(len(units)), left)
            spent[unit] += time.monotonic() - now


def _nvml(name: str) -> tuple[Nvml | None, str]:
    """Return NVML's view of a GPU, or why there is none."""
    word, _, index = name.partition(":")
    if word != "cuda" or not index.isdecimal() or int(index) >= driver.gpus()[0]:
        return None, ""
    try:
        return Nvml(driver.uuid(int(index))), ""
    except ToolMissing as e:
        return None, str(e)


def _benches(device: Device, units: Mapping[str, tuple[Instruction, DotModel]], seed: int) -> dict[str, UnitBench]:
    """Return benchmarks that compare on the GPU where compiled code supports the instruction and model, else on the CPU."""
    if not isinstance(device, OnGpu):
        return {unit: CpuBench(device, inst, model, seed) for unit, (inst, model) in units.items()}
    from accprobe.health.golden import GoldenBench, prepare_golden

    at_full_power = {inst: model for inst, model in units.values() if is_golden(inst) and not not_compiled(model)}
    prepare_golden(device, at_full_power)
    return {
        unit: GoldenBench(device, inst, model, seed) if inst in at_full_power else CpuBench(device, inst, model, seed)
        for unit, (inst, model) in units.items()
    }


def _after(so_far: GpuOutcome, unit: str, bench: UnitBench, turn: Turn, again: int, watch: Watch | None) -> GpuOutcome:
    """Return the outcome after a turn; some mismatches are repeated and shrunk."""
    kept = list(so_far.mismatches)
    for seen in turn.seen:
        name = seen.instruction or bench.instruction
        of_that_sm = sum(word.place.sm == seen.place.sm and word.instruction == name for word in kept)
        if of_that_sm < KEPT_OF_AN_SM and len(kept) < MOST_KEPT:
            kept.append(_investigated(bench, seen, again, watch.latest if watch else Sensors()))
    wrong = so_far.wrong + turn.wrong
    return so_far.model_copy(
        update={
            "status": "differs" if wrong else so_far.status,
            "dots": so_far.dots + turn.dots,
            "wrong": wrong,
            "sms": turn.sms if so_far.sms is None else max(so_far.sms, turn.sms or 0),
            "vanished": so_far.vanished + turn.vanished,
            "wrong_by_sm": dict(Counter(so_far.wrong_by_sm) + turn.wrong_by_sm),
            "units": _with_turn(so_far.units, unit, bench, turn),
            "mismatches": tuple(kept),
            "before": watch.before if watch else None,
            "after": watch.latest if watch else None,
            "load": watch.load if watch else None,
        }
    )


SUMMED = ("dots", "computed", "wrong", "seconds", "loaded_seconds", "loaded_computed")


def _with_turn(units: tuple[UnitOutcome, ...], unit: str, bench: UnitBench, turn: Turn) -> tuple[UnitOutcome, ...]:
    """Return the outcomes of units with a turn added to one of them."""
    by_name = {one.unit: one for one in units}
    sums = {name: getattr(turn, name) for name in SUMMED}
    if before := by_name.get(unit):
        sums = {name: None if value is None else getattr(before, name) + value for name, value in sums.items()}
    by_name[unit] = UnitOutcome(unit=unit, instruction=bench.instruction, chain=bench.chain, **sums)
    return tuple(by_name.values())


def _investigated(bench: UnitBench, seen: SeenWord, again: int, then: Sensors) -> HealthMismatch:
    found, smallest = seen.found, bench.smallest(seen)
    got, expected = int(found.exchange.d, 16), int(found.expected, 16)
    return HealthMismatch(
        instruction=seen.instruction or bench.instruction,
        chain=seen.chain,
        kind=found.kind,
        place=seen.place,
        exchange=found.exchange,
        expected=found.expected,
        bits=tuple(bit for bit in range((got ^ expected).bit_length()) if (got ^ expected) >> bit & 1),
        repetitions=again,
        repeated_mismatches=bench.again(seen, again),
        smallest=Smallest(exchange=smallest.exchange, expected=smallest.expected) if smallest else None,
        temperature=then.temperature,
        clock=then.sm_clock,
    )


def _check_in_worker(name: str, plan: CheckPlan, sending: Connection) -> None:
    end_with_parent()
    for so_far in check_gpu(name, plan):
        sending.send(so_far)


class Trusted(NamedTuple):
    """source: a value of --like. remark: a caution; "" for hardware of a kind that was measured, or with --like."""

    source: str
    models: dict[Instruction, DotModel]
    remark: str


def trusted(device: Device, like: str | None) -> Trusted:
    """Return the models of `like`; without it those recorded on that GPU kind, else on its architecture, else published ones.

    Raises UnknownName, ReportError; DeviceError where there are none.
    """
    simulated = "SIMULATED: no hardware is checked" if device.kind == "simulated" else ""
    if like is not None:
        return Trusted(like, named_models(like), simulated)
    if found := _recorded_of(device):
        return found
    for name in names():
        if chip(name).architecture == device.architecture:
            models = {inst: entry.model for inst, entry in known_models(name).items()}
            return Trusted(f"sim:{name}", models, f"published models of {chip(name).title}: nothing of this kind was measured")
    raise DeviceError(
        f"there is no model of {device.architecture}: measure a good GPU of this kind with `accprobe run -o FILE`, then give"
        " --like FILE"
    )


def _recorded_of(device: Device) -> Trusted | None:
    """Return the recorded models of that GPU kind, else of its architecture, else None."""
    recorded_on = {name: x.device.name for name, x in recorded_of(device.architecture).items() if x.instructions}
    if not recorded_on:
        return None
    # One name begins with the other, word by word: "NVIDIA H200" and "NVIDIA H200 NVL" differ in the board.
    same = [name for name, gpu in recorded_on.items() if all(map(str.__eq__, gpu.split(), device.name.split()))]
    name = (same or list(recorded_on))[0]
    return Trusted(name, named_models(name), "" if same else f"models recorded on another GPU, an {recorded_on[name]}")

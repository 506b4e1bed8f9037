"""A check of GPUs: the verdict of each, its units, and the mismatches."""

from __future__ import annotations

from collections.abc import Iterator

from accprobe.health.outcome import GpuOutcome, HealthMismatch, HealthOutcome, SmPlace, UnitOutcome
from accprobe.health.plan import FUNCTION_UNITS
from accprobe.isa.instructions import in_a_row, parse
from accprobe.operands.exchange import Counterexample
from accprobe.render.document import Column, Element, Heading, List, Paragraph, Phrase, Tone, grouped, paragraphs, tabulate
from accprobe.render.subjects.instruction import mismatch


def health_blocks(outcome: HealthOutcome) -> Iterator[Element]:
    """Yield the verdict of each GPU, remarks and mismatches, and its units, except of healthy GPUs of a cluster."""
    if any(gpu.kind == "simulated" for gpu in outcome.gpus):
        yield Paragraph(Phrase("SIMULATED: the devices are models, no hardware was checked", "bad"), boxed=True)
    if len(outcome.gpus) > 1:
        yield Heading(Phrase(summary(outcome), "bad" if any(gpu.status != "healthy" for gpu in outcome.gpus) else "good"), 1)
    for gpu in sorted(outcome.gpus, key=lambda gpu: gpu.status == "healthy"):
        tone: Tone = "bad" if gpu.status != "healthy" else "narrow" if gpu.below_full_load else "good"
        yield Heading((Phrase(f"{gpu.where}: ", "strong"), Phrase(gpu_verdict(gpu), tone)), 2)
        if lines := tuple(_remarks(gpu)):
            yield List(lines, "!")
        if gpu.units and not (gpu.node and gpu.status == "healthy"):
            yield tabulate(UNIT_COLUMNS, gpu.units, lambda unit: "bad" if unit.wrong else "")
        about = (gpu_title(gpu), f"compared with the models of {gpu.models}" if gpu.models else "", load_text(gpu))
        yield from paragraphs(filter(None, about), "quiet")


def _remarks(gpu: GpuOutcome) -> Iterator[Phrase | List]:
    yield from (Phrase(remark, "warning") for remark in remarks(gpu) if not remark.startswith("SIMULATED"))  # said above
    for word, *more in grouped(((word.place.sm, word.bits), word) for word in gpu.mismatches).values():
        first, *others = word_lines(word)
        if more:
            others.append(f"and {len(more):,} more of the same SM and bits; --format json has each")
        yield Phrase(first, "bad")
        yield List(tuple(Phrase(text, "bad") for text in others))


def summary(outcome: HealthOutcome) -> str:
    """Return "1 of 2 GPUs faulty: cuda:0, SM 2" of several GPUs."""
    count = len(outcome.gpus)
    faulty = [", ".join([gpu.where, *_sms(gpu)]) for gpu in outcome.gpus if gpu.status == "differs"]
    failed = [gpu.where for gpu in outcome.gpus if gpu.status == "failed"]
    parts = [f"{len(faulty)} of {count} GPUs faulty: {'; '.join(faulty)}"] * bool(faulty)
    parts += [f"{len(failed)} of {count} GPUs not checked: {', '.join(failed)}"] * bool(failed)
    return "; ".join(parts) or f"0 mismatches on {count} GPUs"


def _sms(gpu: GpuOutcome) -> list[str]:
    sms = [sm for sm in gpu.wrong_by_sm if sm]
    return [f"SM {', '.join(sms)}"] if sms else []


def gpu_title(gpu: GpuOutcome) -> str:
    """Return "cuda:0 NVIDIA H200, GPU-…, PCI 00000000:1B:00.0"."""
    board = [gpu.board.uuid, f"PCI {gpu.board.pci_bus}" if gpu.board.pci_bus else None]
    serial = f"serial {gpu.board.serial}" if gpu.board.serial else None
    return ", ".join(filter(None, [f"{gpu.where} {gpu.name}" if gpu.name != gpu.device else gpu.where, *board, serial]))


def gpu_verdict(gpu: GpuOutcome) -> str:
    """Return the verdict and its reason, without a full stop."""
    if gpu.status == "failed":
        return f"{gpu_counts(gpu)}: {gpu.reason or 'no reason is known'}"
    return "; ".join([gpu_counts(gpu), *filter(None, [gpu.reason]), *load_lacking(gpu)])


def load_lacking(gpu: GpuOutcome) -> Iterator[str]:
    """Yield "fp8 did not reach full load: 0.3 of 1,141 Tops/s" for each such unit."""
    for unit in gpu.units:
        if unit.unit not in gpu.below_full_load:
            continue
        full = f"of {_rate_text(unit, unit.loaded_computed, unit.loaded_seconds)} " if unit.loaded_seconds else ""
        why = ", as the host compares its results" if unit.loaded_seconds is None else ""
        yield f"{unit.unit} did not reach full load: {speed_text(unit) or 0} {full}Tops/s{why}"


def gpu_counts(gpu: GpuOutcome) -> str:
    """Return "DIFFERS: 3 of 8,192 results on SM 2", "FAILED", "healthy: 0 mismatches in 8,192 results"."""
    if gpu.wrong:
        return " on ".join([f"DIFFERS: {gpu.wrong:,} of {gpu.dots:,} results", *_sms(gpu)])
    if gpu.status == "failed":
        return "FAILED"
    return f"healthy: 0 mismatches in {gpu.dots:,} results" if gpu.finished else f"0 mismatches so far in {gpu.dots:,} results"


def remarks(gpu: GpuOutcome) -> Iterator[str]:
    """Yield remarks on the check and the board."""
    yield from filter(None, [gpu.remark, gpu.shared, gpu.sensors_missing])
    if gpu.deaths:
        yield f"its process died {'once' if gpu.deaths == 1 else f'{gpu.deaths} times'}" + (
            ", and it was begun again" if gpu.finished else ""
        )
    if gpu.before and gpu.after:
        for name, what in COUNTERS.items():
            first, last = getattr(gpu.before, name), getattr(gpu.after, name)
            if first is not None and last is not None and last > first:
                yield f"{last - first:,} more {what} than before"
    if gpu.load and gpu.load.throttled:
        yield f"clocks were throttled at times: {', '.join(gpu.load.throttled)}"
    if gpu.vanished:
        yield f"{gpu.vanished:,} comparisons failed though each result was right: the comparison erred, not the unit"


COUNTERS = {
    "ecc_corrected": "memory errors corrected",
    "ecc_uncorrected": "memory errors that ECC could not correct",
    "remapped_corrected": "rows remapped for corrected errors",
    "remapped_uncorrected": "rows remapped for uncorrected errors",
}
"""Counters of the sensors, in words."""


def load_text(gpu: GpuOutcome) -> str:
    """Return "612 W of 700 W, at most 68 °C, SM clock 1,410 MHz at least"; "" without sensors."""
    if gpu.load is None or gpu.after is None:
        return ""
    load, limit = gpu.load, gpu.after.power_limit
    measured = [
        (load.power, f"{load.power or 0:.0f} W" + (f" of {limit:.0f} W" if limit else "")),
        (load.highest_temperature, f"at most {load.highest_temperature} °C"),
        (load.lowest_sm_clock, f"SM clock {load.lowest_sm_clock or 0:,} MHz at least"),
    ]
    return ", ".join(text for value, text in measured if value is not None)


def place_text(place: SmPlace) -> str:
    """Return "SM 17, warp 2, lane 5, register 40"."""
    named = {"SM": place.sm, "warp": place.warp, "lane": place.lane, "register": place.register_of_lane}
    return ", ".join(f"{name} {number}" for name, number in named.items() if number is not None) or "an unknown SM"


def word_lines(word: HealthMismatch) -> Iterator[str]:
    """Yield a mismatch: place, instruction and bits; how often it recurred; and the fewest operands that show it."""
    of_chain = f" in a chain of {word.chain}" if word.chain > 1 else ""
    bits = f"bit{'s' * (len(word.bits) > 1)} {', '.join(map(str, word.bits))}"
    yield f"{place_text(word.place)}: {word.instruction}{of_chain}, {word.kind} operands, {bits}"
    again = f"{word.repeated_mismatches:,} of {word.repetitions:,} times when repeated"
    at = ", ".join(f"{value} {unit}" for value, unit in ((word.temperature, "°C"), (word.clock, "MHz")) if value is not None)
    yield f"differs {again}" + (f"; at {at} when it was seen" if at else "")
    shown = word.smallest or word
    if is_function(word.instruction):
        found = f"f(0x{shown.exchange.a}) = 0x{shown.exchange.d}, expected 0x{shown.expected}"
    else:
        inst = in_a_row(parse(word.instruction), word.chain)
        found = mismatch(inst, Counterexample(shown.exchange, shown.expected, word.kind))
    yield ("minimal operands: " if word.smallest else "operands, which no longer differ: ") + found


def is_function(instruction: str) -> bool:
    """Return whether a name, or the first of several, is one of a scalar function."""
    return instruction.partition(",")[0] in {name for names in FUNCTION_UNITS.values() for name in names}


def speed_text(unit: UnitOutcome) -> str:
    """Return Tops/s of the unit as vendors count: two operations per product, and one per result of a function."""
    return _rate_text(unit, unit.computed, unit.seconds) if unit.seconds else ""


def _rate_text(unit: UnitOutcome, computed: int, seconds: float) -> str:
    rate = (1 if is_function(unit.instruction) else 2 * parse(unit.instruction).k) * computed / seconds
    return f"{rate / 1e12:,.1f}" if rate >= 1e11 else f"{rate / 1e12:.2g}"


UNIT_COLUMNS = (
    Column("unit", lambda unit: unit.unit, whole=True),
    Column("instruction", lambda unit: unit.instruction, least=26),
    Column("results compared", lambda unit: f"{unit.dots:,}", number=True),
    Column("mismatches", lambda unit: f"{unit.wrong:,}", number=True),
    Column("seconds", lambda unit: f"{unit.seconds:.1f}", "context", number=True),
    Column("Tops/s", speed_text, "context", number=True),
)

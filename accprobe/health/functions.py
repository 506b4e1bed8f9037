"""Fault check of the special function unit and of conversions: words computed over and over on every SM, and compared there.

The models of a report give the expected words. An operand stays in a register for many repetitions, so that the
unit, not memory, limits the rate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from accprobe.build import compiler
from accprobe.build.golden import MOST_SMS
from accprobe.errors import DeviceError
from accprobe.function.candidates import sample_words
from accprobe.function.records import function_words
from accprobe.function.units import SCALAR_UNITS
from accprobe.health.bench import SeenWord, Turn
from accprobe.health.outcome import SmPlace
from accprobe.health.plan import FUNCTION_UNITS
from accprobe.isa.formats import Bits
from accprobe.operands.exchange import Counterexample, Exchange, hex_of
from accprobe.operands.protocol import Device, OnGpu
from accprobe.records.functions import FunctionRow
from accprobe.report.published import recorded_of
from accprobe.report.report import Report

OPERANDS_OF_A_TURN = 1 << 16
"""Random operands of a launch."""

# The first launch has FIRST_ROUNDS. The next ones last KERNEL_SECONDS: at most MOST_GROWTH times more rounds, and MOST_ROUNDS.
KERNEL_SECONDS, FIRST_ROUNDS, MOST_GROWTH, MOST_ROUNDS = 0.05, 64, 16, 1 << 18
# Times that a thread computes each of its EACH operands in a round.
REPEATS, EACH = 64, 8
THREADS, BLOCKS_OF_AN_SM = 256, 4
# Mismatches that a launch records, and numbers in a record. NOWHERE selects all SMs, or all threads.
MOST_RECORDS, FIELDS, NOWHERE = 64, 5, 0xFFFFFFFF
# Launches after which an SM that was given no work counts as failed.
TRIES = 8


_UNITS = {unit.name: unit for unit in SCALAR_UNITS}


def function_rows(device: Device, like: str | None) -> dict[str, list[FunctionRow]]:
    """Return confirmed functions with a model by unit: of report `like`, else of a recorded one of the GPU or architecture."""
    if (like or "").startswith("sim:"):
        return {}
    reports = [Report.load(like)] if like else recorded_of(device.architecture).values()
    for report in sorted(reports, key=lambda report: report.device.name != device.name):
        if report.functions and report.device.architecture == device.architecture:
            known = {row.name: row for row in report.functions if row.status == "confirmed" and row.model}
            found = {unit: [known[name] for name in names if name in known] for unit, names in FUNCTION_UNITS.items()}
            return {unit: rows for unit, rows in found.items() if rows}
    return {}


class Launched(NamedTuple):
    """Results and mismatches by SM, some mismatches (SM, warp, lane, operand's index, result), and the kernel's seconds."""

    done: Any
    wrong: Any
    records: list[list[int]]
    seconds: float


class ComparingKernel:
    """The kernel of one instruction with a model on a GPU. rounds: of the next launch."""

    def __init__(self, device: OnGpu, row: FunctionRow) -> None:
        self._device, self.row, self.rounds = device, row, FIRST_ROUNDS
        self.unit = unit = _UNITS[row.name]
        cubin = compiler.compile_source(unit.kernel("golden_function.cu"), device.architecture, unit.name)
        with device.lend(f"failed to load {unit.name}") as cupy:
            self._kernel = cupy.RawModule(path=str(cubin.path)).get_function("compare")
            self._sms: int = cupy.cuda.Device().attributes["MultiProcessorCount"]

    def launch(
        self, words: Bits, expected: Bits, rounds: int, repeats: int, only: int = NOWHERE, thread: int = NOWHERE
    ) -> Launched:
        """Compute and compare words, a power of two of them; on one SM and thread only, if given."""
        with self._device.lend(f"failed to check {self.unit.name}") as cupy:
            operands, results = cupy.asarray(words), cupy.asarray(expected)
            tally, records = cupy.zeros(2 * MOST_SMS, np.uint64), cupy.zeros(1 + FIELDS * MOST_RECORDS, np.uint32)
            job = [np.uint32(x) for x in (len(words) - 1, rounds, repeats, only, thread)]
            began, ended = cupy.cuda.Event(), cupy.cuda.Event()
            began.record()
            arguments = (operands, results, *job, tally, records, np.uint32(MOST_RECORDS))
            self._kernel((self._sms * BLOCKS_OF_AN_SM,), (THREADS,), arguments)
            ended.record()
            ended.synchronize()
            counts, seen = tally.get(), records.get()
            kept = seen[1:].reshape(-1, FIELDS)[: int(seen[0])].tolist()
            seconds = cupy.cuda.get_elapsed_time(began, ended) / 1e3
        return Launched(counts[:MOST_SMS], counts[MOST_SMS:], kept, seconds)


class FunctionBench:
    """A `UnitBench` of the instructions of one unit, which are checked in turn."""

    chain = 1

    def __init__(self, kernels: Sequence[ComparingKernel], seed: int) -> None:
        self._kernels = kernels
        self.instruction = ", ".join(kernel.row.name for kernel in kernels)
        self._random = np.random.default_rng(seed)

    def prepare(self) -> Turn:
        """Compare the words of `sample_words`."""
        turn = Turn(loaded_seconds=0.0)
        for kernel in self._kernels:
            words = sample_words(kernel.unit.operand)
            self._compare(turn, kernel, np.resize(words, 1 << (len(words) - 1).bit_length()))
        return replace(turn, loaded_seconds=0.0, loaded_computed=0)

    def turn(self, seconds: float) -> Turn:
        started, turn = time.monotonic(), Turn(loaded_seconds=0.0)
        while not turn.dots or turn.seconds < seconds:
            for kernel in self._kernels:
                fmt = kernel.unit.operand
                words = self._random.integers(0, 1 << fmt.storage_bits, OPERANDS_OF_A_TURN).astype(fmt.dtype)
                self._compare(turn, kernel, words)
                turn.seconds = time.monotonic() - started
        return turn

    def _compare(self, turn: Turn, kernel: ComparingKernel, words: Bits) -> None:
        expected = function_words(kernel.row, words)
        got = kernel.launch(words, expected, kernel.rounds, REPEATS)
        wanted = kernel.rounds * KERNEL_SECONDS / max(got.seconds, 1e-6)
        kernel.rounds = int(min(max(wanted, 1), kernel.rounds * MOST_GROWTH, MOST_ROUNDS))
        turn.add(int(got.done.sum()), 1, got.seconds, got.done, got.wrong)
        turn.seen += list(_seen(kernel, got, words, expected))

    def again(self, seen: SeenWord, times: int) -> int:
        """Repeat the operand on its SM and thread. Return the mismatches, scaled to `times` repetitions.

        Raises DeviceError if the SM does not compute.
        """
        kernel, place = seen.key, seen.place
        assert isinstance(kernel, ComparingKernel)
        words = np.array([int(seen.found.exchange.a, 16)], kernel.unit.operand.dtype)
        expected = np.array([int(seen.found.expected, 16)], kernel.unit.result.dtype)
        thread, sm = 32 * (place.warp or 0) + (place.lane or 0), place.sm or 0
        for _ in range(TRIES):
            got = kernel.launch(words, expected, 1, -(-times // EACH), sm, thread)
            if got.done[sm]:
                return round(times * int(got.wrong[sm]) / int(got.done[sm]))
        raise DeviceError(f"SM {sm} does not compute any more: the GPU gave it no work in {TRIES} tries")

    def smallest(self, seen: SeenWord) -> Counterexample | None:
        return seen.found if self.again(seen, EACH * TRIES) else None


def _seen(kernel: ComparingKernel, got: Launched, words: Bits, expected: Bits) -> Iterator[SeenWord]:
    for sm, warp, lane, index, result in got.records:
        word = np.array([result], expected.dtype)
        exchange = Exchange(hex_of(words[index]), "", "", hex_of(word))
        found = Counterexample(exchange, hex_of(expected[index]), "random")
        yield SeenWord(SmPlace(sm=sm, warp=warp, lane=lane), found, kernel, instruction=kernel.row.name)


def function_benches(device: Device, like: str | None, seed: int) -> dict[str, FunctionBench]:
    """Return a bench for each unit that the GPU and the report have."""
    if not isinstance(device, OnGpu) or device.kind != "cuda" or not (found := function_rows(device, like)):
        return {}
    names = [row.name for rows in found.values() for row in rows]
    compiler.fill_cache([(_UNITS[name].kernel("golden_function.cu"), name) for name in names], device.architecture)
    return {unit: FunctionBench([ComparingKernel(device, row) for row in rows], seed) for unit, rows in found.items()}

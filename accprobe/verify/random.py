"""A model against a device on random operands, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from accprobe.devices.protocol import Device, dot_expecting
from accprobe.errors import AccprobeError
from accprobe.infer.findings import Exchange
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.kinds import PAIRS, Operands, draw, has_pairs, kinds, pairs

BATCH = 1 << 16
"""Dot products drawn at once."""

Advance = Callable[[int, int], None]
"""Called as a comparison goes on, with how many more dot products were compared, and how many of them differed."""


def silent(compared: int, differed: int) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class Counterexample:
    """A dot product that the model gets wrong: what the device was asked and answered, and what the model expects."""

    exchange: Exchange
    expected: int
    kind: str


@dataclass(frozen=True)
class Verification:
    """The outcome: dots compared (in all and of each operand kind), how many differed, and the first that did."""

    dots: int
    mismatches: int
    seed: int
    kinds: dict[str, int] = field(default_factory=dict)
    counterexample: Counterexample | None = None


@runtime_checkable
class VerifiesInBulk(Protocol):
    """A device that draws the operands, runs them and evaluates the model by itself, as a GPU can."""

    def prepare_to_verify(self, models: Mapping[Instruction, DotModel]) -> None:
        """What can be done for many at once, such as compiling; `verify` does what is missing."""

    def verify(self, inst: Instruction, model: DotModel, dots: int, seed: int, advance: Advance) -> Verification:
        """As `verify_in_bulk`; `dots` may be rounded up."""


def verify_in_bulk(
    device: Device, inst: Instruction, model: DotModel, dots: int, seed: int = 0, advance: Advance = silent
) -> Verification:
    """As `verify`, with all pairs of codes where the formats have 8 bits; by the device itself where it can."""
    if isinstance(device, VerifiesInBulk):
        return device.verify(inst, model, dots, seed, advance)
    return verify(device, inst, model, dots, seed, has_pairs(inst) and dots >= 2 * PAIRS, advance)


def verify(
    device: Device,
    inst: Instruction,
    model: DotModel,
    dots: int = 1 << 14,
    seed: int = 0,
    with_pairs: bool = False,
    advance: Advance = silent,
) -> Verification:
    """Compare the model with the device on `dots` fresh random dot products, spread evenly over all operand kinds.

    The same seed draws the same operands. Batches go to different places in the tile in turn. with_pairs: all pairs of two
    8-bit codes are among them. Raises AccprobeError where dots is negative.
    """
    if dots < 0:
        raise AccprobeError(f"dots is {dots}; there are no fewer than 0 dot products")
    counts: dict[str, int] = {}
    mismatches, first = 0, None
    for batch, (kind, operands) in enumerate(batches(inst, dots, seed, with_pairs)):
        expected = model.evaluate(inst, *operands)
        got = _answers(device, inst, operands, expected, batch % device.placements(inst))
        wrong = np.flatnonzero(got != expected)
        counts[kind] = counts.get(kind, 0) + len(expected)
        mismatches += len(wrong)
        if len(wrong) and first is None:
            first = counterexample(operands, got, expected, int(wrong[0]), kind)
        advance(len(expected), len(wrong))
    every = {kind: counts.get(kind, 0) for kind in kinds(inst)}
    return Verification(dots, mismatches, seed, every | counts, first)


def batches(inst: Instruction, dots: int, seed: int, with_pairs: bool = False) -> Iterator[tuple[str, Operands]]:
    """`dots` dot products, a few at a time, with the name of their kind."""
    names = list(kinds(inst))
    if with_pairs:
        yield "pairs", pairs(inst, np.random.default_rng([seed, len(names), 0]))
        dots -= PAIRS
    counts = dict.fromkeys(names, dots // len(names))
    counts[names[0]] += dots - sum(counts.values())
    for index, (kind, count) in enumerate(counts.items()):
        for start in range(0, count, BATCH):
            rng = np.random.default_rng([seed, index, start])
            yield kind, draw(kind, inst, rng, min(BATCH, count - start))


def _answers(device: Device, inst: Instruction, operands: Operands, expected: Bits, placement: int) -> Bits:
    return dot_expecting(device, inst, *operands, lambda: expected, placement)


def counterexample(operands: Operands, got: Bits, expected: Bits, row: int, kind: str) -> Counterexample:
    """One row of what was asked, answered and expected."""
    a, b, c = operands
    exchange = Exchange(tuple(a[row].tolist()), tuple(b[row].tolist()), int(c[row]), int(got[row]))
    return Counterexample(exchange, int(expected[row]), kind)

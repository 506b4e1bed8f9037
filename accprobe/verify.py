"""A model against a device on random operands, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from accprobe.devices import Device, dot_expecting
from accprobe.experiments.findings import Exchange
from accprobe.formats import Bits
from accprobe.instructions import Instruction
from accprobe.model import DotModel
from accprobe.operands import Operands, draw, kinds

BATCH = 1 << 16
"""Dot products drawn at once."""


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


def verify(device: Device, inst: Instruction, model: DotModel, dots: int = 1 << 14, seed: int = 0) -> Verification:
    """Compare the model with the device on `dots` fresh random dot products, spread evenly over all operand kinds.

    The same seed draws the same operands. Batches go to different places in the tile in turn.
    """
    names = list(kinds(inst))
    counts = dict.fromkeys(names, dots // len(names))
    counts[names[0]] += dots - sum(counts.values())
    mismatches, first, batch = 0, None, 0
    for index, (kind, count) in enumerate(counts.items()):
        for start in range(0, count, BATCH):
            rng = np.random.default_rng([seed, index, start])
            operands = draw(kind, inst, rng, min(BATCH, count - start))
            expected = model.evaluate(inst, *operands)
            got = _answers(device, inst, operands, expected, batch % device.placements(inst))
            wrong = np.flatnonzero(got != expected)
            mismatches += len(wrong)
            if len(wrong) and first is None:
                row = wrong[0]
                first = Counterexample(exchange(operands, got, row), int(expected[row]), kind)
            batch += 1
    return Verification(dots, mismatches, seed, counts, first)


def _answers(device: Device, inst: Instruction, operands: Operands, expected: Bits, placement: int) -> Bits:
    return dot_expecting(device, inst, *operands, lambda: expected, placement)


def exchange(operands: Operands, d: np.ndarray, row: int) -> Exchange:
    """One row of what was asked and answered."""
    a, b, c = operands
    return Exchange(tuple(a[row].tolist()), tuple(b[row].tolist()), int(c[row]), int(d[row]))

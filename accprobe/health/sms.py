"""The health of a GPU: the same dot products on every SM, each held against the model, so that an SM that differs is named."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np

from accprobe.devices.protocol import OnEverySm
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample
from accprobe.operands.request import Request
from accprobe.verify.outcome import Advance, silent
from accprobe.verify.random import batches
from accprobe.verify.shrink import shrink

SMS_SHRUNK = 20
"""SMs that differ of which the first mismatch is shrunk: all SMs are asked for each."""


@dataclass
class Fault:
    """What one SM got wrong: how many dot products, and the first.

    smallest: that one shrunk; None where it did not come back, or the SM is none of the first SMS_SHRUNK.
    """

    mismatches: int
    first: Counterexample
    smallest: Counterexample | None = None


@dataclass
class Checkup:
    """dots: asked of each SM; sms: how many answered; faults: by SM."""

    dots: int
    sms: int = 0
    faults: dict[int, Fault] = field(default_factory=dict)


def check_every_sm(
    device: OnEverySm, inst: Instruction, model: DotModel, dots: int, seed: int = 0, advance: Advance = silent
) -> Checkup:
    """Ask `dots` random dot products of each SM, and shrink what differs. Raises DeviceError where the device fails."""
    done = Checkup(dots)
    for kind, operands in batches(inst, dots, seed):
        expected = evaluate(model, inst, operands)
        answers = device.dot_on_every_sm(inst, operands)
        done.sms = max(done.sms, len(answers))
        wrong_ones = 0
        for sm, got in answers.items():
            wrong = np.flatnonzero(got != expected)
            if not len(wrong):
                continue
            wrong_ones += len(wrong)
            first = Counterexample.of(operands, int(wrong[0]), got, expected, kind)
            fault = done.faults.setdefault(sm, Fault(0, first))
            fault.mismatches += len(wrong)
        advance(len(expected) * len(answers), wrong_ones)
    for sm, fault in islice(done.faults.items(), SMS_SHRUNK):
        fault.smallest = shrink(partial(_answer, device, inst, sm), inst, model, fault.first)
    return done


def _answer(device: OnEverySm, inst: Instruction, sm: int, request: Request) -> Bits:
    return device.dot_on_every_sm(inst, request)[sm]

"""The same dot products on every SM, compared with the model, to name an SM that differs."""

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
"""SMs whose first mismatch is shrunk; every step runs on all SMs."""


@dataclass
class Fault:
    """The mismatches of one SM: their number and the first one.

    smallest: the first one shrunk; None where no repetition differed, or beyond SMS_SHRUNK.
    """

    mismatches: int
    first: Counterexample
    smallest: Counterexample | None = None


@dataclass
class Checkup:
    """dots: dot products per SM; sms: number of SMs that computed; faults: by SM."""

    dots: int
    sms: int = 0
    faults: dict[int, Fault] = field(default_factory=dict)


def check_every_sm(
    device: OnEverySm, inst: Instruction, model: DotModel, dots: int, seed: int = 0, advance: Advance = silent
) -> Checkup:
    """Run `dots` random dot products on each SM, and shrink mismatches. Raises DeviceError where the device fails."""
    done = Checkup(dots)
    for kind, operands in batches(inst, dots, seed):
        expected = evaluate(model, inst, operands)
        results = device.dot_on_every_sm(inst, operands)
        done.sms = max(done.sms, len(results))
        wrong_ones = 0
        for sm, got in results.items():
            wrong = np.flatnonzero(got != expected)
            if not len(wrong):
                continue
            wrong_ones += len(wrong)
            first = Counterexample.of(operands, int(wrong[0]), got, expected, kind)
            fault = done.faults.setdefault(sm, Fault(0, first))
            fault.mismatches += len(wrong)
        advance(len(expected) * len(results), wrong_ones)
    for sm, fault in islice(done.faults.items(), SMS_SHRUNK):
        fault.smallest = shrink(partial(_result, device, inst, sm), inst, model, fault.first)
    return done


def _result(device: OnEverySm, inst: Instruction, sm: int, request: Request) -> Bits:
    return device.dot_on_every_sm(inst, request)[sm]

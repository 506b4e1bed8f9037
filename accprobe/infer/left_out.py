"""What the positions of B do that a sparse A leaves out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accprobe.devices.protocol import Device
from accprobe.infer.findings import Finding
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.operands.exchange import Exchange
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.operands.sparse import laid_out, members

ROWS = 64
"""Dot products of each kind that are asked beside each class of what is left out."""

LEFT_OUT = "left_out"
ABSENT = "absent"
"""The feature, and its value where nothing takes part."""

NOTHING = ""
"""The class of 0 alone."""


def left_out(device: Device, inst: Instruction) -> Finding:
    """Dot products whose left-out positions are 0, and the same with numbers of each class there: "absent" where no answer
    changes; else the classes with which one does.

    Raises DeviceError where the device fails.
    """
    rng = np.random.default_rng(inst.k)
    drawn = [draw(kind, inst.stored, rng, ROWS) for kind in kinds(inst.stored)]
    dense = joined([*drawn, Request.zeros(inst.stored, ROWS)])
    laid = laid_out(inst, dense)
    patterns = {NOTHING: [0], **members(inst.b)}
    every = {name: _with(inst, laid, dense, np.array(some, inst.b.dtype)) for name, some in patterns.items()}
    d = device.dot(inst, joined(list(every.values()))).reshape(len(every), -1)
    answers = dict(zip(every, d, strict=True))
    others = {name: np.flatnonzero(answer != answers[NOTHING]) for name, answer in answers.items()}
    part = [name for name, rows in others.items() if len(rows)]
    shown = part[-1] if part else list(others)[-1]
    row = int(others[shown][0]) if part else int(np.isfinite(inst.d.values(answers[NOTHING])).argmax())
    evidence = tuple(Exchange.of(every[name], row, answers[name]) for name in (NOTHING, shown))
    return Finding(", ".join(part) or ABSENT, evidence=evidence)


def _with(inst: Instruction, laid: Request, dense: Request, patterns: Bits) -> Request:
    """The question with those patterns in turn where nothing is stored."""
    assert inst.sparsity is not None
    assert laid.metadata is not None
    b = patterns[np.arange(laid.b.size) % len(patterns)].reshape(laid.b.shape)
    np.put_along_axis(b, inst.sparsity.stored(laid.metadata), dense.b, 1)
    return replace(laid, b=b)

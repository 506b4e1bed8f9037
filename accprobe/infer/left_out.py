"""What the positions of B do that a sparse A leaves out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accprobe.devices.protocol import Device
from accprobe.infer.findings import Finding
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.isa.sparsity import CODE_BITS
from accprobe.operands.exchange import Exchange
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.operands.sparse import laid_out, left_out_patterns

# Dot products of each kind that are asked beside each class of what is left out.
ROWS = 32

LEFT_OUT = "left_out"
# The feature, and its value where nothing takes part.
PLAYS_NO_PART = "absent"

# The class of 0 alone.
NAUGHT = ""


def left_out(device: Device, inst: Instruction) -> Finding:
    """Dot products whose left-out positions are 0, and the same with numbers of each class there: "absent" where no answer
    changes; else the classes with which one does, each time that it is asked, in the same cell of the tile.

    Raises DeviceError where the device fails.
    """
    rng = np.random.default_rng(inst.k)
    drawn = [draw(kind, inst.stored, rng, ROWS) for kind in kinds(inst.stored)]
    dense = joined([*drawn, Request.zeros(inst.stored, ROWS)])
    laid = laid_out(inst, dense)
    patterns = {NAUGHT: [0], **left_out_patterns(inst.b)}
    every = {name: _with(inst, laid, dense, np.array(some, inst.b.dtype)) for name, some in patterns.items()}
    answers, again = ({name: device.dot(inst, request) for name, request in every.items()} for _ in range(2))
    others = {
        name: np.flatnonzero((d != answers[NAUGHT]) & (again[name] == d) & (again[NAUGHT] == answers[NAUGHT]))
        for name, d in answers.items()
    }
    part = [name for name, rows in others.items() if len(rows)]
    shown = part[-1] if part else list(others)[-1]
    row = int(others[shown][0]) if part else int(np.isfinite(inst.d.values(answers[NAUGHT])).argmax())
    evidence = tuple(Exchange.of(every[name], row, answers[name]) for name in (NAUGHT, shown))
    return Finding(", ".join(part) or PLAYS_NO_PART, note="" if device.pure else _other_codes(device, inst), evidence=evidence)


def _other_codes(device: Device, inst: Instruction) -> str:
    """Which elements of B those of a group meet under codes of metadata that PTX gives no meaning to, in words.

    The device answers as it pleases: no model has it.
    """
    assert inst.sparsity is not None
    group, half = inst.sparsity.group, inst.sparsity.group // 2
    codes = [code for code in range(1 << CODE_BITS) if code not in inst.sparsity.codes]
    code, element, place = (x.ravel() for x in np.meshgrid(codes, range(half), range(group), indexing="ij"))
    request, rows = Request.zeros(inst, len(code)), np.arange(len(code))
    metadata = np.full((len(code), inst.k // group), inst.sparsity.codes[0], np.uint8)
    metadata[:, 0] = code
    request.a[rows, element], request.b[rows, place] = inst.a.whole(1), inst.b.whole(1)
    meets = (device.dot(inst, replace(request, metadata=metadata)) != 0).reshape(len(codes), half, group)
    told = [f"0b{code:04b}: {' '.join(map(_places, of_code))}" for code, of_code in zip(codes, meets, strict=True)]
    return f"metadata without a meaning, the elements of a group that it takes: {', '.join(told)}"


def _places(met: NDArray[np.bool_]) -> str:
    return "+".join(map(str, np.flatnonzero(met).tolist())) or "none"


def _with(inst: Instruction, laid: Request, dense: Request, patterns: Bits) -> Request:
    """The question with those patterns in turn where nothing is stored."""
    assert inst.sparsity is not None
    assert laid.metadata is not None
    b = patterns[np.arange(laid.b.size) % len(patterns)].reshape(laid.b.shape)
    np.put_along_axis(b, inst.sparsity.stored(laid.metadata), dense.b, 1)
    return replace(laid, b=b)

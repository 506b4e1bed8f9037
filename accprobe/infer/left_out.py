"""The effect of the positions of B that a sparse A leaves out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.isa.sparsity import CODE_BITS
from accprobe.operands.exchange import Exchange
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.protocol import InstructionSubject
from accprobe.operands.request import Request, joined
from accprobe.operands.sparse import laid_out, left_out_patterns
from accprobe.records.findings import Finding

ROWS = 32  # Dot products of each kind of operands for each class of numbers that are left out.
LEFT_OUT, NO_EFFECT = "left_out", "absent"  # The feature, and its value if these positions have no effect.
ZERO_CLASS = ""  # The class of 0 only.


def left_out(subject: InstructionSubject) -> Finding:
    """Compare dot products with 0 at left-out positions with the same beside numbers of each class.

    The value is "absent" if no result changes; otherwise the classes with which one does, in both of two queries, at the same
    tile element. Raises DeviceError if the device fails.
    """
    inst = subject.runs
    rng = np.random.default_rng(inst.k)
    drawn = [draw(kind, inst.stored, rng, ROWS) for kind in kinds(inst.stored)]
    dense = joined([*drawn, Request.zeros(inst.stored, ROWS)])
    laid = laid_out(inst, dense)
    patterns = {ZERO_CLASS: [0], **left_out_patterns(inst.b)}
    every = {name: _with(inst, laid, dense, np.array(some, inst.b.dtype)) for name, some in patterns.items()}
    first, second = ({name: subject.query_at(0, request) for name, request in every.items()} for _ in range(2))
    changed = {
        name: np.flatnonzero((d != first[ZERO_CLASS]) & (second[name] == d) & (second[ZERO_CLASS] == first[ZERO_CLASS]))
        for name, d in first.items()
    }
    effective = [name for name, rows in changed.items() if len(rows)]
    shown = effective[-1] if effective else list(changed)[-1]
    row = int(changed[shown][0]) if effective else int(np.isfinite(inst.d.values(first[ZERO_CLASS])).argmax())
    evidence = tuple(Exchange.of(every[name], row, first[name]) for name in (ZERO_CLASS, shown))
    note = "" if subject.pure else _undefined_codes(subject)
    return Finding(", ".join(effective) or NO_EFFECT, note=note, evidence=evidence)


def _undefined_codes(subject: InstructionSubject) -> str:
    """Return, in words, the elements of B that a group's elements meet under metadata codes that PTX does not define.

    Any result is allowed, and no model predicts it.
    """
    inst = subject.runs
    assert inst.sparsity is not None
    group, half = inst.sparsity.group, inst.sparsity.group // 2
    codes = [code for code in range(1 << CODE_BITS) if code not in inst.sparsity.codes]
    code, element, place = (x.ravel() for x in np.meshgrid(codes, range(half), range(group), indexing="ij"))
    request, rows = Request.zeros(inst, len(code)), np.arange(len(code))
    metadata = np.full((len(code), inst.k // group), inst.sparsity.codes[0], np.uint8)
    metadata[:, 0] = code
    request.a[rows, element], request.b[rows, place] = inst.a.whole(1), inst.b.whole(1)
    meets = (subject.query_at(0, replace(request, metadata=metadata)) != 0).reshape(len(codes), half, group)
    words = [f"0b{code:04b}: {' '.join(map(_places, of_code))}" for code, of_code in zip(codes, meets, strict=True)]
    return f"metadata without a meaning, the elements of a group that it takes: {', '.join(words)}"


def _places(met: NDArray[np.bool_]) -> str:
    return "+".join(map(str, np.flatnonzero(met).tolist())) or "none"


def _with(inst: Instruction, laid: Request, dense: Request, patterns: Bits) -> Request:
    """Return the request with those patterns in turn at the positions that are not stored."""
    assert inst.sparsity is not None
    assert laid.metadata is not None
    b = patterns[np.arange(laid.b.size) % len(patterns)].reshape(laid.b.shape)
    np.put_along_axis(b, inst.sparsity.stored(laid.metadata), dense.b, 1)
    return replace(laid, b=b)

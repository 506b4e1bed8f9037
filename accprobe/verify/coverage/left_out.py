"""Events of a sparse A: each code of metadata at each group, and each class of numbers at each position that is left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accprobe.devices.stored import StoredProducts
from accprobe.isa.instructions import Instruction
from accprobe.operands.sparse import layouts
from accprobe.verify.outcome import Events, Verification


def as_asked(asked: StoredProducts, done: Verification) -> Verification:
    """A verification of the stored products as the device was asked: its counterexample, and events of what was laid out."""
    if wrong := done.counterexample:
        done = replace(done, counterexample=replace(wrong, exchange=asked.asked(wrong.exchange)))
    if done.events is None:
        return done
    events, more = done.events, layout_events(asked.inst, asked.used)
    missing = tuple(sorted((*events.missing, *more.missing)))
    return replace(done, events=Events(events.hit + more.hit, events.possible + more.possible, events.impossible, missing))


def layout_events(inst: Instruction, used: NDArray[np.bool_]) -> Events:
    """What the used ones of `sparse.layouts` [LAYOUTS] did: all can."""
    assert inst.sparsity is not None
    every = layouts(inst)
    met = {
        f"metadata 0b{code:04b} at group {group}": (every.metadata[used, group] == code).any()
        for group in range(every.metadata.shape[1])
        for code in inst.sparsity.codes
    } | {
        f"{name} left out at k {k}": (every.left_out[used, k] == number).any()
        for k in range(inst.k)
        for number, name in enumerate(every.classes)
    }
    return Events(sum(map(bool, met.values())), len(met), missing=tuple(name for name, hit in met.items() if not hit))

"""Events of a sparse A: each code of metadata at each group, and each class of numbers at each position that is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.devices.protocol import StoredProducts
from accprobe.isa.instructions import Instruction
from accprobe.operands.kinds import draw
from accprobe.operands.request import Request
from accprobe.operands.sparse import LAYOUTS, layouts, own_layouts
from accprobe.verify.outcome import Events, Verification

AT_ONCE = 1 << 10  # Dot products that are drawn at once, of which a few are asked.


class LayoutDoes(NamedTuple):
    """names: of the events, [events]. does: which of them each layout has, [LAYOUTS, events]."""

    names: tuple[str, ...]
    does: NDArray[np.bool_]


def as_asked(asked: StoredProducts, done: Verification) -> Verification:
    """A verification of the stored products as the device was asked: its counterexample, and events of what was laid out."""
    if (wrong := done.counterexample) and not wrong.exchange.metadata:
        done = replace(done, counterexample=replace(wrong, exchange=asked.sparse(wrong.exchange)))
    if done.events is None:
        return done
    events, more = done.events, layout_events(asked.inst, asked.used)
    missing = tuple(sorted((*events.missing, *more.missing)))
    return replace(done, events=Events(events.hit + more.hit, events.possible + more.possible, events.impossible, missing))


@lru_cache(maxsize=32)
def layouts_do(inst: Instruction) -> LayoutDoes:
    """Each code of metadata at each group, then each class of numbers left out at each k."""
    assert inst.sparsity is not None
    every, codes = layouts(inst), inst.sparsity.codes
    names = [f"metadata 0b{code:04b} at group {group}" for group in range(every.metadata.shape[1]) for code in codes]
    names += [f"{name} left out at k {k}" for k in range(inst.k) for name in every.classes]
    of_codes = every.metadata[..., None] == np.array(codes)
    of_classes = every.left_out[..., None] == np.arange(len(every.classes))
    does = np.concatenate([of_codes.reshape(LAYOUTS, -1), of_classes.reshape(LAYOUTS, -1)], axis=1)
    return LayoutDoes(tuple(names), does)


def layout_events(inst: Instruction, used: NDArray[np.bool_]) -> Events:
    """What the used ones of `sparse.layouts` [LAYOUTS] did: all can."""
    names, does = layouts_do(inst)
    met: NDArray[np.bool_] = np.asarray(does[used].any(axis=0))
    return Events(int(met.sum()), len(names), missing=tuple(name for name, hit in zip(names, met, strict=True) if not hit))


def layout_operands(inst: Instruction, used: NDArray[np.bool_], seed: int) -> Iterator[Request]:
    """Dense questions, drawn until they have them, whose own layouts do what the used ones [LAYOUTS] did not."""
    does = layouts_do(inst).does
    missing = does.any(axis=0) & ~does[used].any(axis=0)
    rng = np.random.default_rng([seed, inst.k])
    while missing.any():
        drawn, chosen = draw("normal", inst.stored, rng, AT_ONCE), list[int]()
        for row, layout in enumerate(own_layouts(drawn)):
            if (does[layout] & missing).any():
                chosen.append(row)
                missing &= ~does[layout]
        yield drawn[chosen]

"""Events of the layouts of a sparse A: each metadata code at each group, each class of numbers at each position left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.instructions import Instruction
from accprobe.operands.kinds import draw
from accprobe.operands.request import Request
from accprobe.operands.sparse import LAYOUTS, layouts, own_layouts
from accprobe.records.verification import Events

AT_ONCE = 1 << 10  # Dot products drawn at once; those with a missing event are queried.


@lru_cache(maxsize=32)
def events_of_layouts(inst: Instruction) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
    """Return the events of each metadata code at each group, then of each class of numbers left out at each k.

    Returns their names [events], and the events of each layout [LAYOUTS, events].
    """
    assert inst.sparsity is not None
    every, codes = layouts(inst), inst.sparsity.codes
    names = [f"metadata 0b{code:04b} at group {group}" for group in range(every.metadata.shape[1]) for code in codes]
    names += [f"{name} left out at k {k}" for k in range(inst.k) for name in every.classes]
    of_codes = every.metadata[..., None] == np.array(codes)
    of_classes = every.left_out[..., None] == np.arange(len(every.classes))
    reached = np.concatenate([of_codes.reshape(LAYOUTS, -1), of_classes.reshape(LAYOUTS, -1)], axis=1)
    return tuple(names), reached


def with_layouts(events: Events, inst: Instruction, used: NDArray[np.bool_]) -> Events:
    """Add the events of the used layouts of `sparse.layouts` [LAYOUTS]; all are possible."""
    names, reached = events_of_layouts(inst)
    hit: list[bool] = np.asarray(reached[used].any(axis=0)).tolist()
    missing = sorted((*events.missing, *(name for name, there in zip(names, hit, strict=True) if not there)))
    return Events(events.hit + sum(hit), events.possible + len(names), events.impossible, tuple(missing))


def layout_operands(inst: Instruction, used: NDArray[np.bool_], seed: int) -> Iterator[Request]:
    """Yield dense requests with layouts that have the events that the used layouts [LAYOUTS] do not have."""
    _, reached = events_of_layouts(inst)
    missing = reached.any(axis=0) & ~reached[used].any(axis=0)
    rng = np.random.default_rng([seed, inst.k])
    while missing.any():
        drawn, chosen = draw("normal", inst.stored, rng, AT_ONCE), list[int]()
        for row, layout in enumerate(own_layouts(drawn)):
            if (reached[layout] & missing).any():
                chosen.append(row)
                missing &= ~reached[layout]
        yield drawn[chosen]

"""The search for operands that reach all events of a model: it keeps and changes those that reach new events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from accprobe.isa.instructions import Instruction
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.verify.coverage.events import EventFamily, Key
from accprobe.verify.coverage.mutations import Mutations
from accprobe.verify.coverage.ranges import largest_of, lead_of
from accprobe.verify.coverage.trace import Reaching, Trace

BATCH = 2048  # Dot products that are mutated at once.
RANDOM = 128  # Random dot products of each kind, from which the search starts.
MOST_IN_VAIN = 20  # The search stops after more batches than this without a new event.
MOST_BATCHES = 150
EXTREMES = 16  # Dot products of the largest operands, from which the search starts too.
RECENT = 256  # Half of the random parents are drawn from this many kept last.


class Reached:
    """Which events were reached, by family and code."""

    def __init__(self, families: dict[Key, EventFamily]) -> None:
        self.hit = {key: np.zeros(len(events), bool) for key, events in families.items()}

    def see(self, reaching: Reaching) -> None:
        """Mark the events that dot products reach."""
        for key, _, codes in reaching:
            self.hit[key][codes] = True

    def new_rows(self, reaching: Reaching) -> dict[int, Key]:
        """As `see`; return the first and the last dot product that reach each new event, and its family."""
        found: dict[int, Key] = {}
        for key, rows, codes in reaching:
            hit = self.hit[key]
            new = ~hit[codes]
            for order in (slice(None), slice(None, None, -1)) if new.any() else ():
                _, first = np.unique(codes[new][order], return_index=True)
                found |= dict.fromkeys(rows[new][order][first].tolist(), key)
            hit[codes] = True
        return found


class Found(NamedTuple):
    """Dot products that reach all events that the search reached. tries: dot products tried."""

    request: Request
    tries: int


def search(trace: Trace, seed: int, known: Iterable[Request] = ()) -> Found:
    """Search for dot products that reach the events of a model. known: where it starts, beside random ones."""
    inst = trace.inst
    rng = np.random.default_rng([seed, inst.k])
    pool, mutations = _Pool(trace), Mutations(inst, trace.model, rng)
    for request in known:
        pool.take(request)
    pool.take(joined([_extremes(inst, rng), *(draw(kind, inst, rng, RANDOM) for kind in kinds(inst))]))
    since = 0
    for _ in range(MOST_BATCHES):
        with np.errstate(all="ignore"):
            since = 0 if pool.take(mutations.of(pool.parents(rng))) else since + 1
        if since > MOST_IN_VAIN:
            break
    return Found(pool.kept, pool.tries)


def _extremes(inst: Instruction, rng: np.random.Generator) -> Request:
    """Return products of the largest operands, with equal or with mixed signs, and C of their size."""
    made = Request.zeros(inst, EXTREMES)
    negative = rng.integers(0, 2, (EXTREMES, 1)) | (rng.integers(0, 2, made.a.shape) & (np.arange(EXTREMES) % 2)[:, None])
    made.a[:] = inst.a.largest | negative.astype(inst.a.dtype) * inst.a.dtype.type(inst.a.sign_bit)
    made.b[:] = inst.b.largest
    exponent = min(lead_of(largest_of(inst.a) * largest_of(inst.b)), inst.c.max_exponent)
    fractions = rng.integers(0, 1 << inst.c.mantissa_bits, EXTREMES)
    patterns = np.minimum(
        ((exponent + inst.c.bias) << inst.c.mantissa_bits | fractions) << inst.c.ignored_low_bits, inst.c.largest
    )
    made.c[:] = patterns.astype(inst.c.dtype) | negative[:, 0].astype(inst.c.dtype) * inst.c.dtype.type(inst.c.sign_bit)
    return made


class _Pool:
    """Dot products that reached new events when they were tried."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._families, self._reached = trace, trace.families, Reached(trace.families)
        self._number = {name: number for number, name in enumerate(dict.fromkeys(name for _, name in trace.families))}
        self.kept, self._of_family, self.tries = Request.zeros(trace.inst, 1), np.zeros(1, np.int64), 0

    def take(self, request: Request) -> bool:
        """Keep those that reach new events; return whether there are any."""
        self.tries += len(request)
        found = self._reached.new_rows(self._trace.of(request))
        if found:
            self.kept = joined([self.kept, request[list(found)]])
            self._of_family = np.concatenate([self._of_family, [self._number[name] for _, name in found.values()]])
        return bool(found)

    def parents(self, rng: np.random.Generator) -> Request:
        """Draw parents to mutate: half from families with events not reached, if there are any; the rest uniform or recent."""
        n, open_ = len(self.kept), [self._number[key[1]] for key in self._families if not self._is_whole(key)]
        chosen = np.where(rng.random(BATCH) < 0.5, rng.integers(0, n, BATCH), n - 1 - rng.integers(0, min(n, RECENT), BATCH))
        family = rng.choice(open_, BATCH // 2) if open_ else np.zeros(0, np.int64)
        for number in np.unique(family):
            rows, there = np.flatnonzero(self._of_family == number), np.flatnonzero(family == number)
            if len(rows):
                chosen[there] = rng.choice(rows, len(there))
        return self.kept[chosen]

    def _is_whole(self, key: Key) -> bool:
        events = zip(self._families[key], self._reached.hit[key].tolist(), strict=True)
        return all(hit or event is None or event.impossible for event, hit in events)

"""How much of what a model's sums can do dot products made them do, and operands for the rest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request, joined
from accprobe.verify.covering import made
from accprobe.verify.events import Event, families
from accprobe.verify.outcome import Events
from accprobe.verify.trace import Trace


class Coverage:
    def __init__(self, inst: Instruction, model: DotModel, seed: int = 0) -> None:
        self._inst, self._model, self._seed = inst, model, seed
        self._families = families(inst, model)
        self._trace = Trace(inst, model)
        self._hit = {key: np.zeros(len(events), np.int64) for key, events in self._families.items()}

    def see(self, request: Request) -> None:
        """Counts what these dot products make the model's sums do."""
        for key, _, codes in self._trace.of(request):
            found = np.bincount(codes[codes >= 0], minlength=len(self._hit[key]))
            self._hit[key] += found

    def missing(self) -> tuple[Event, ...]:
        return tuple(e for key, events in self._families.items() for e, n in zip(events, self._hit[key]) if e and not e.impossible and not n)

    def directed(self) -> Iterator[Request]:
        done = False
        for i, request in made(self._inst, self._model, self._seed):
            wanted = {key: np.array([e is not None and not e.impossible and not n for e, n in zip(events, self._hit[key])]) for key, events in self._families.items() if (key[0] == i)}
            if not any(x.any() for x in wanted.values()) or not len(request):
                continue
            rows = set()
            for key, where, codes in self._trace.of(request):
                if key in wanted and wanted[key].any():
                    w, c = where.ravel(), codes.ravel()
                    ok = c >= 0
                    values, first = np.unique(c[ok], return_index=True)
                    for v, f in zip(values, first):
                        if wanted[key][v]:
                            rows.add(int(w[ok][f]))
            if rows:
                some = request[sorted(rows)]
                self.see(some)
                yield some

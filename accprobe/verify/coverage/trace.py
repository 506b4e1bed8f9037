"""The events of a floating-point model, and which of them dot products reach.

An event of an inner sum counts where no later sum adds anything: only then does it reach the result.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.terms import CachedTerms
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.verify.coverage.events import CodeArrays, EventCodes, EventFamily, Key, labels
from accprobe.verify.coverage.operand_events import magnitudes, operand_codes, operand_families
from accprobe.verify.coverage.ranges import SumRange, sum_ranges
from accprobe.verify.coverage.scaled_groups import group_codes, group_families
from accprobe.verify.coverage.sum_events import SumCodes, sum_families
from accprobe.verify.coverage.sums import Sums

RowNumbers = NDArray[np.intp]

Reaching = Iterator[tuple[Key, RowNumbers, EventCodes]]  # A family, dot products, and the codes of events that they reach.


def float_families(inst: Instruction, model: DotModel) -> dict[Key, EventFamily]:
    """Return all events of a floating-point model."""
    found: dict[Key, EventFamily] = {(-1, name): events for name, events in operand_families(inst).items()}
    sums = zip(labels(model.root), model.root.nodes(), sum_ranges(inst, model), strict=True)
    for i, (label, node, bound) in enumerate(sums):
        own = {name: _of_groups(events, bound) for name, events in sum_families(bound).items()}
        for name, events in (own | group_families(inst, node)).items():
            found[i, name] = tuple(event and event._replace(name=f"{label}: {event.name}") for event in events)
    return found


def _of_groups(events: EventFamily, bound: SumRange) -> EventFamily:
    """Terms that are several products scaled at once are called groups."""
    if bound.arithmetic.scaled_products is None:
        return events
    return tuple(event and event._replace(name=event.name.replace("product", "group")) for event in events)


class Trace:
    """Finds the events of one floating-point model."""

    def __init__(self, inst: Instruction, model: DotModel) -> None:
        self.inst, self.model = inst, model
        self._nodes = list(model.root.nodes())
        self._ranges = sum_ranges(inst, model)

    def of(self, request: Request) -> Reaching:
        """Yield the events that these dot products reach."""
        every = np.arange(len(request))
        with np.errstate(all="ignore"):
            yield from reaching(operand_codes(self.inst, request), -1, every)
            alone = self._alone(request) if len(self._nodes) > 1 else []
            for i, (node, bound) in enumerate(zip(self._nodes, self._ranges, strict=True)):
                rows = every if node is self.model.root else np.flatnonzero(alone[i])
                if len(rows):
                    some = request if node is self.model.root else request[rows]
                    sums = Sums(self.inst, self.model, node, some)
                    yield from reaching(SumCodes(sums, bound).every(), i, rows)
                    yield from reaching(group_codes(self.inst, node, sums, some), i, rows)

    def _alone(self, request: Request) -> list[Truths]:
        """Return, for each sum, whether all terms are zero that are not below it."""
        a, b = ((fmt, magnitudes(fmt, x)) for fmt, x in ((self.inst.a, request.a), (self.inst.b, request.b)))
        zero = (a[1] == 0) & (b[1] <= b[0].largest) | (b[1] == 0) & (a[1] <= a[0].largest)
        if self.inst.scale is not None:
            zero = CachedTerms(self.inst, request).products(tuple(range(self.inst.k)), self.model.subnormal_operands)[0].T == 0
        no_c = magnitudes(self.inst.c, request.c) == 0
        found = []
        for node in self._nodes:
            ks = [k for inner in node.nodes() for k in inner.products]
            others = np.delete(zero, ks, axis=1).all(axis=1)
            found.append(others if any(inner.has_addend for inner in node.nodes()) else others & no_c)
        return found


def reaching(codes: CodeArrays, number: int, rows: RowNumbers) -> Reaching:
    """Number the families of a sum, and its dot products as `rows` has them."""
    for name, where, code in codes:
        places = np.nonzero(where)
        yield (number, name), rows[places[-1]], np.broadcast_to(code, where.shape)[places]

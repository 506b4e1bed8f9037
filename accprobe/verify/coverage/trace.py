"""The events of a model, and which of them dot products reach.

An event of an inner sum counts where no later sum adds anything: only then does it reach the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.terms import CachedTerms
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FusedSum, number_ranges
from accprobe.operands.request import Request
from accprobe.verify.coverage.events import CodeArrays, EventCodes, EventNames, Key, SumRange
from accprobe.verify.coverage.integers import addend_codes, addend_families, integer_codes, integer_families
from accprobe.verify.coverage.operand_events import magnitudes, operand_codes, operand_families
from accprobe.verify.coverage.sum_events import SumCodes, sum_families
from accprobe.verify.coverage.sums import Sums, group_codes, group_families

MODELS_KEPT = 256  # Number of models to keep events of.

RowNumbers = NDArray[np.intp]

Reaching = Iterator[tuple[Key, RowNumbers, EventCodes]]  # A family, dot products, and the codes of events that they reach.


class Trace:
    """Finds the events of one model. families: all of its events."""

    def __init__(self, inst: Instruction, model: DotModel) -> None:
        self.inst, self.model = inst, model
        self._nodes = list(model.root.nodes())
        self._ranges: list[SumRange] = []
        for node in () if inst.is_integer else self._nodes:
            inner = [self._ranges[self._nodes.index(child)] for child in node.children]
            self._ranges.append(SumRange(inst, model, node, inner))
        operands = addend_families(inst) if inst.is_integer else operand_families(inst)
        self.families: dict[Key, EventNames] = {(-1, family): names for family, names in operands.items()}
        for i, label in enumerate(_labels(model.root)):
            for family, names in self._families(i).items():
                self.families[i, family] = tuple(name and f"{label}: {name}" for name in names)

    def _families(self, i: int) -> dict[str, EventNames]:
        """Return the events of a sum; terms that are several products scaled at once are called groups."""
        if self.inst.is_integer:
            return integer_families(self.inst, self._nodes[i])
        families = sum_families(self._ranges[i])
        if self._ranges[i].arithmetic.scaled_products is None:
            return families
        families = {family: tuple(x.replace("product", "group") for x in names) for family, names in families.items()}
        return families | group_families(self.inst, self._nodes[i])

    def of(self, request: Request) -> Reaching:
        """Yield the events that these dot products reach."""
        every = np.arange(len(request))
        with np.errstate(all="ignore"):
            operands = addend_codes if self.inst.is_integer else operand_codes
            yield from _reaching(operands(self.inst, request), -1, every)
            alone = self._alone(request) if len(self._nodes) > 1 else []
            for i, node in enumerate(self._nodes):
                rows = every if node is self.model.root else np.flatnonzero(alone[i])
                if len(rows):
                    some = request if node is self.model.root else request[rows]
                    yield from _reaching(self._codes(i, some), i, rows)

    def covering_rows(self, request: Request) -> dict[tuple[Key, int], RowNumbers]:
        """Return the dot products that reach each event, by family and code, in their order."""
        found: dict[tuple[Key, int], list[RowNumbers]] = {}
        for key, rows, codes in self.of(request):
            order = np.argsort(codes, kind="stable")
            every, starts = np.unique(codes[order], return_index=True)
            for code, part in zip(every.tolist(), np.split(rows[order], starts)[1:], strict=True):
                found.setdefault((key, code), []).append(part)
        return {place: np.unique(np.concatenate(parts)) for place, parts in found.items()}

    def _codes(self, i: int, request: Request) -> CodeArrays:
        """Yield the codes of the events of one sum."""
        node = self._nodes[i]
        if self.inst.is_integer:
            yield from integer_codes(self.inst, self.model, node, request)
            return
        sums = Sums(self.inst, self.model, node, request)
        yield from SumCodes(sums, self._ranges[i]).every()
        yield from group_codes(self.inst, node, sums, request)

    def _alone(self, request: Request) -> list[Truths]:
        """Return, for each sum, whether all terms outside it are zero."""
        zero = self._zero_products(request)
        no_c = (request.c if self.inst.is_integer else magnitudes(self.inst.c, request.c)) == 0
        found: list[Truths] = []
        for node in self._nodes:
            others: Truths = np.asarray(np.delete(zero, node.ks, axis=1).all(axis=1))
            found.append(others if node.adds_c else others & no_c)
        return found

    def _zero_products(self, request: Request) -> Truths:
        """Return which products are zero, [n, K]; a zero times an infinity is not."""
        inst = self.inst
        if inst.is_integer:
            return np.asarray(inst.multiplied(inst.a.integers(request.a), inst.b.integers(request.b)) == 0)
        if inst.scale is not None:
            products, _ = CachedTerms(inst, request).products(tuple(range(inst.k)), self.model.subnormal_operands, None)
            return np.asarray(products.T == 0)
        a, b = magnitudes(inst.a, request.a), magnitudes(inst.b, request.b)
        return np.asarray((a == 0) & (b <= inst.b.largest) | (b == 0) & (a <= inst.a.largest))


def _labels(root: FusedSum) -> list[str]:
    """Return a short name for each sum, all different: "sum 0-15", "add 0-15 c"."""
    found: list[str] = []
    for node in root.nodes():
        c = " c" * (node.has_addend and node.role == "add")
        name = f"{node.role} {' '.join(number_ranges(sorted(node.products or node.ks)))}{c}"
        found.append(name if name not in found else f"{name} ({found.count(name) + 1})")
    return found


trace_of = lru_cache(maxsize=MODELS_KEPT)(Trace)


def _reaching(codes: CodeArrays, number: int, rows: RowNumbers) -> Reaching:
    """Number the families of a sum, and its dot products as `rows` has them."""
    for name, where, code in codes:
        places = np.nonzero(where)
        yield (number, name), rows[places[-1]], np.broadcast_to(code, where.shape)[places]

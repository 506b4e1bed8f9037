"""Events of integer sums: extremes in every group of four products, sizes past every bit, both ends of the result's range.

Four products are what dot product instructions of integers add at once (PTX ISA, dp4a); a group that is kept in too few
bits shows where all four are extreme.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from accprobe.evaluate.error_free import Integers
from accprobe.evaluate.reference import Evaluation
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FusedSum, IntegerArithmetic
from accprobe.operands.request import Request, joined
from accprobe.verify.coverage.events import SIGNS, Event, EventFamily, Key, labels
from accprobe.verify.coverage.trace import EventCodes, Seen

GROUP_OF = 4  # Products.

# Sums of products below this power of two are not told apart; of others the largest power of two that they come to is told.
FEWEST_BITS = 8

ENDS = (
    "the largest number",
    "one above the largest number",
    "far above the largest number",
    "the smallest number",
    "one below the smallest number",
    "far below the smallest number",
)

ODD_PRODUCTS = "odd products"  # The family of events that tells how many of a sum's products are odd.

DRAWS = 12  # Dot products with each number of odd products: what is carried out of the last bit differs in each.

NOT_SO_LARGE = "the products do not come to so much"
NOT_BEYOND = "the terms do not reach the end of the result's range"


def ends(fmt: Format) -> tuple[int, int]:
    """The smallest and the largest number."""
    return (-fmt.largest - 1 if fmt.kind == "signed" else 0), fmt.largest


def extremes(inst: Instruction) -> list[tuple[int, int]]:
    """Pairs of the ends of A and B."""
    return list(dict.fromkeys((a, b) for a in ends(inst.a) for b in ends(inst.b)))


def fours(node: FusedSum) -> list[tuple[int, ...]]:
    """The sum's products in fours, and all of them."""
    ks = node.products
    fours = [ks[i : i + GROUP_OF] for i in range(0, len(ks), GROUP_OF)]
    return fours if len(fours) == 1 else [*fours, ks]


def integer_families(inst: Instruction, model: DotModel) -> dict[Key, EventFamily]:
    """All events of an integer model."""
    products = [inst.multiplied(a, b) for a, b in extremes(inst)]
    reached: dict[int, tuple[int, int]] = {}
    low, high = ends(inst.c)
    found: dict[Key, EventFamily] = {(-1, "C"): tuple(Event(f"operands: C {value}") for value in _addends(inst.c))}
    for i, (name, node) in enumerate(zip(labels(model.root), model.root.nodes(), strict=True)):
        assert isinstance(node.arithmetic, IntegerArithmetic)
        count = len(node.products)
        own = count * min(0, *products), count * max(0, *products)
        spans = [own, *([(low, high)] if node.has_addend else []), *(reached[id(child)] for child in node.children)]
        least, most = (sum(span[end] for span in spans) for end in (0, 1))
        first, last = ends(node.arithmetic.result)
        reached[id(node)] = (least, most) if first <= least and most <= last else (first, last)
        if count:
            found[i, "groups"] = tuple(
                Event(f"{name}: products {ks[0]}-{ks[-1]} all {a} × {b}") for ks in fours(node) for a, b in extremes(inst)
            )
            found[i, ODD_PRODUCTS] = tuple(Event(f"{name}: {n} odd product{'s' * (n != 1)}") for n in range(count + 1))
            top = max(-own[0], own[1]).bit_length() - 1
            found[i, "bits"] = tuple(
                Event(f"{name}: products come to 2^{bit}, {sign}", "" if 1 << bit <= size else NOT_SO_LARGE)
                for bit in range(FEWEST_BITS, top + 1)
                for sign, size in zip(SIGNS, (own[1], -own[0]), strict=True)
            )
        wanted = (last, last + 1, last + 2, first, first - 1, first - 2)
        reasons = ["" if (value <= most if value >= last else least <= value) else NOT_BEYOND for value in wanted]
        found[i, "ends"] = tuple(Event(f"{name}: {word}", reason) for word, reason in zip(ENDS, reasons, strict=True))
    return found


def _addends(fmt: Format) -> list[int]:
    low, high = ends(fmt)
    return sorted({low, min(low + 1, 0), -1 if low else 0, 0, 1, high - 1, high})


class IntegerTrace:
    """What dot products make the sums of an integer model do; see `trace`."""

    def __init__(self, inst: Instruction, model: DotModel) -> None:
        self._inst, self._model = inst, model
        self._nodes = list(model.root.nodes())
        self._extremes = extremes(inst)

    def of(self, request: Request, only: int | None = None) -> Seen:
        """All that these dot products do, or what one sum does, -1: what their operands are."""
        inst, every = self._inst, np.arange(len(request))
        a, b, c = inst.a.integers(request.a), inst.b.integers(request.b), inst.c.integers(request.c)
        if only in (None, -1):
            for code, value in enumerate(_addends(inst.c)):
                yield (-1, "C"), every[c == value], np.full(int((c == value).sum()), code)
        for i, node in enumerate(self._nodes):
            if only not in (None, i):
                continue
            below = list(node.nodes())
            outside = np.delete(inst.multiplied(a, b), [k for inner in below for k in inner.products], axis=1)
            alone = (outside == 0).all(axis=1)
            if not any(inner.has_addend for inner in below):
                alone &= c == 0
            rows = np.flatnonzero(alone)
            if len(rows):
                for name, where, codes in self._events_of_sum(node, request[rows], a[rows], b[rows], c[rows]):
                    yield (i, name), rows[where], codes

    def _events_of_sum(
        self, node: FusedSum, request: Request, a: Integers, b: Integers, c: Integers
    ) -> Iterator[tuple[str, EventCodes, EventCodes]]:
        total = np.zeros(len(c), np.int64)
        if node.products:
            for i, ks in enumerate(fours(node)):
                for j, (x, y) in enumerate(self._extremes):
                    rows = np.flatnonzero((a[:, ks] == x).all(axis=1) & (b[:, ks] == y).all(axis=1))
                    yield "groups", rows, np.full(len(rows), i * len(self._extremes) + j)
            products = self._inst.multiplied(a[:, node.products], b[:, node.products])
            yield ODD_PRODUCTS, np.arange(len(c)), (products & 1).sum(axis=1)
            total = products.sum(axis=1)
            size = np.floor(np.log2(np.maximum(np.abs(total), 1))).astype(np.int64) - FEWEST_BITS
            rows = np.flatnonzero(size >= 0)
            yield "bits", rows, 2 * size[rows] + (total[rows] < 0)
        if node.has_addend:
            total = total + c
        for child in node.children:
            fmt = child.arithmetic.result
            total = total + fmt.integers(Evaluation(replace(self._inst, d=fmt), request).of(replace(self._model, root=child)))
        first, last = ends(node.arithmetic.result)
        for code, which in enumerate(
            (total == last, total == last + 1, total > last + 1, total == first, total == first - 1, total < first - 1)
        ):
            rows = np.flatnonzero(which)
            yield "ends", rows, np.full(len(rows), code)


def integer_operands(inst: Instruction, model: DotModel, rng: np.random.Generator) -> Request:
    """Return dot products that reach all events of an integer model."""
    values = _addends(inst.c)
    addends = Request.zeros(inst, len(values))
    addends.c[:] = np.array(values, np.int64).astype(inst.c.dtype)
    nodes = list(model.root.nodes())
    odd = [_odd_operands(inst, node, rng) for node in nodes if node.products]
    return joined([*odd, addends, *(_extreme_operands(inst, node) for node in nodes)])


def _odd_operands(inst: Instruction, node: FusedSum, rng: np.random.Generator) -> Request:
    """Products of any size of which so many are odd, for each number that there can be."""
    ks = np.array(node.products, np.intp)
    counts = np.repeat(np.arange(len(ks) + 1), DRAWS)
    asked = Request.zeros(inst, len(counts))
    odd = rng.permuted(np.arange(len(ks)) < counts[:, None], axis=1)
    even = rng.integers(0, 3, odd.shape)
    first, second = odd | (even == 0), odd | (even == 1)
    if inst.bit_op == "xor":
        first = even == 0
        second = first ^ odd
    for column, fmt, last in ((asked.a, inst.a, first), (asked.b, inst.b, second)):
        column[:, ks] = rng.integers(0, 1 << (fmt.bits - 1), odd.shape) << 1 | last
    return asked


def _extreme_operands(inst: Instruction, node: FusedSum) -> Request:
    """Dot products for all else that one integer sum can do."""
    rows: list[tuple[tuple[int, ...], int, int, int]] = []
    first, last = ends(node.arithmetic.result)
    ks = node.products or tuple(k for below in node.nodes() for k in below.products)
    for a, b in extremes(inst):
        rows += [(group, a, b, 0) for group in (fours(node) if node.products else [])]
        rows += [(ks[:count], x, y, 0) for count in range(1, len(ks) + 1) for x, y in ((a, b), (a // 2, b))]
        rows += [(ks[:1], a >> i, b >> j, 0) for i in range(inst.a.bits) for j in (0, 3, *range(FEWEST_BITS, inst.b.bits))]
        for end, step in product((first, last), (-3, -2, -1, 0, 1, 2, 3)):
            rows += [(some, a, b, end + step - len(some) * inst.multiplied(a, b)) for some in (ks[:1], ks, ())]
    for sign, c in product((-1, 1), (first, first + 1, last - 1, last)):
        rows += [(ks[:count], x, y, c) for count in (1, 2, 3) for x, y in ((1, sign), (sign, 1))]
    low, high = ends(inst.c)
    rows = [row for row in dict.fromkeys(rows) if low <= row[3] <= high]
    asked = Request.zeros(inst, len(rows))
    for row, (some, a, b, c) in enumerate(rows):
        asked.a[row, list(some)] = a & ((1 << inst.a.bits) - 1)
        asked.b[row, list(some)] = b & ((1 << inst.b.bits) - 1)
        asked.c[row] = c & ((1 << inst.c.bits) - 1)
    return asked

"""Operands for events that were not met."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import NamedTuple

import numpy as np

from accprobe.isa.instructions import Instruction
from accprobe.model.tree import Addend, DotModel, FusedSum, Product
from accprobe.operands.request import Request, joined
from accprobe.verify.coverage.boundary_cases import BoundaryCases, RoleRows
from accprobe.verify.coverage.dense_operands import DenseOperands
from accprobe.verify.coverage.factors import TermNumbers
from accprobe.verify.coverage.groups import group_operands
from accprobe.verify.coverage.kinds_of_operands import OPERAND_CLASSES, codes_of
from accprobe.verify.coverage.lsb_carries import LsbCarryCases
from accprobe.verify.coverage.narrow import narrow_operands
from accprobe.verify.coverage.placing import Placing
from accprobe.verify.coverage.spans import Bounds, TermRole, largest_of, lead_of, term_role

BATCH = 1024  # Dot products that are made at once, before those that hit nothing new are dropped.


ROUNDS = 4  # Times that random numbers are drawn once more for what was not met.


class Made(NamedTuple):
    """Dot products made for one sum; `numbers` made them where they are numbers on its terms."""

    request: Request
    numbers: TermNumbers | None = None


class Maker:
    """Operands for everything that one sum can do."""

    def __init__(self, inst: Instruction, model: DotModel, node: FusedSum, bound: Bounds, rng: np.random.Generator) -> None:
        self._inst, self._bound, self._node, self._rng = inst, bound, node, rng
        self._placing = Placing(inst, model, node, rng)

    @property
    def likeness(self) -> object:
        """The same of sums for which the same numbers do the same."""
        return self._node.arithmetic, self._placing.roles

    def every(self, known: list[TermNumbers]) -> Iterator[Made]:
        """Those that hit most come first; known: numbers that did much in a sum like this."""
        roles = self._placing.roles
        dense = DenseOperands(self._bound, self._inst, roles, self._rng)
        if self._bound.cancelling:
            yield self.on_terms(dense.cancelling())
        odd = LsbCarryCases(self._bound, self._inst, roles, self._rng) if self._bound.arithmetic.alignment_bits else None
        if known:
            yield self.on_terms(TermNumbers.joined(known))
        if odd:
            yield self.on_terms(odd.numbers())
        yield Made(specials(self._inst, self._node, self._rng))
        if groups := group_operands(self._inst, self._node, self._rng):
            yield Made(groups)
        for numbers in (dense.zeros(), dense.tails(), dense.dense()):
            yield self.on_terms(numbers)
        yield from map(self.on_terms, self._batches(BoundaryCases(self._bound, self._inst).every()))
        for _ in range(ROUNDS):
            if odd:
                yield self.on_terms(odd.numbers())
            yield self.on_terms(dense.tails())
            yield self.on_terms(dense.dense())
        yield self.on_terms(dense.below_c())
        if narrow := narrow_operands(self._inst, self._node, self._bound):
            yield Made(narrow)
        yield from map(self.on_terms, self._batches(BoundaryCases(self._bound, self._inst).power_of_two_boundary()))

    def _batches(self, pieces: Iterator[RoleRows]) -> Iterator[TermNumbers]:
        """The rows on terms, about BATCH of them at once."""
        waiting: list[TermNumbers] = []
        for roles, rows in pieces:
            if rows:
                waiting.append(self._spread(roles, TermNumbers.of(rows)))
            if sum(len(numbers.negative) for numbers in waiting) >= BATCH:
                yield TermNumbers.joined(waiting)
                waiting = []
        if waiting:
            yield TermNumbers.joined(waiting)

    def on_terms(self, numbers: TermNumbers) -> Made:
        request, fits = self._placing.operands(numbers)
        return Made(request[fits], numbers.at(fits))

    def _spread(self, roles: tuple[TermRole, ...], numbers: TermNumbers) -> TermNumbers:
        """Numbers [n, roles] on terms of these roles, [n, terms]; the first product and the last among them."""
        n, width = len(numbers.negative), len(self._placing.roles)
        columns = {role: np.flatnonzero([own == role for own in self._placing.roles]) for role in set(roles)}
        start = {role: self._rng.integers(0, len(terms), n) for role, terms in columns.items()}
        found = TermNumbers(*(np.full((n, width), value, np.int64) for value in (0, 0, 1, 0)))
        for j, role in enumerate(roles):
            term = columns[role][(start[role] + roles[:j].count(role)) % len(columns[role])]
            for whole, column in zip(found.columns, numbers.columns, strict=True):
                whole[np.arange(n), term] = column[:, j]
        return found


def classes(inst: Instruction, rng: np.random.Generator) -> Request:
    """Operands of every class beside one another, of both signs; the largest everywhere, with C of their product's size."""
    formats = {"A": inst.a, "B": inst.b, "C": inst.c}
    codes = {letter: codes_of(fmt) for letter, fmt in formats.items()}
    trios = (dict(zip("ABC", trio, strict=True)) for trio in product(OPERAND_CLASSES, repeat=3))
    there = (trio for trio in trios if all(codes[letter][kind] for letter, kind in trio.items()))
    rows = [{letter: (kind, 0) for letter, kind in trio.items()} for trio in there]
    for x, y in product("ABC", repeat=2):
        if codes[y]["infinity"] and not x == y == "C":
            rows += [{x: ("subnormal", 0), y + "'": ("infinity", 1)}] * 2
    rows += [{letter: ("NaN", 0)} for letter in "ABC" for _ in range(8) if codes[letter]["NaN"]]
    asked = Request.zeros(inst, len(rows))
    columns = {"A": asked.a, "B": asked.b, "C": asked.c}
    for row, wanted in enumerate(rows):
        ks = rng.choice(inst.k, 2, replace=inst.k < 2)
        for name, (kind, place) in wanted.items():
            letter = name[0]
            fmt = formats[letter]
            pattern = int(rng.choice(codes[letter][kind])) | int(rng.integers(0, 2)) * fmt.sign_bit
            columns[letter][(row, ks[place]) if letter != "C" else row] = pattern
    return joined([asked, _extremes(inst, rng)])


def _extremes(inst: Instruction, rng: np.random.Generator) -> Request:
    """Every product the largest, of one sign or both, and C of its size."""
    asked = Request.zeros(inst, 12)
    asked.a[:], asked.b[:] = inst.a.largest, inst.b.largest
    size = min(lead_of(largest_of(inst.a) * largest_of(inst.b)), inst.c.max_exponent)
    fraction = rng.integers(0, 1 << inst.c.mantissa_bits, 12)
    asked.c[:] = ((size + inst.c.bias) << inst.c.mantissa_bits | fraction) << inst.c.ignored_low_bits
    asked.c[:] = np.minimum(asked.c, inst.c.largest)
    signs = rng.integers(0, 2, (12, inst.k))
    signs[:4], signs[4:8] = 0, 1
    asked.a[:] |= signs.astype(inst.a.dtype) * inst.a.dtype.type(inst.a.sign_bit)
    asked.c[:] |= signs[:, -1].astype(inst.c.dtype) * inst.c.dtype.type(inst.c.sign_bit)
    return asked


def specials(inst: Instruction, node: FusedSum, rng: np.random.Generator) -> Request:
    """An infinity or a NaN on each kind of term, and infinities of both signs on each two of them."""
    slots: list[list[Product | Addend]] = [[term] if not isinstance(term, FusedSum) else _leaves(term) for term in node.terms]
    by_role = {term_role(term): i for i, term in enumerate(node.terms)}
    chosen = sorted({*by_role.values(), 0, len(node.terms) - 1})
    rows: list[Request] = []
    for i in chosen:
        rows += [
            _infinite(inst, [(slots[i], sign)], kind, way)
            for sign in (0, 1)
            for kind in ("infinity", "NaN")
            for way in range(4)
        ]
    for i, j in permutations(chosen, 2):
        rows += [_infinite(inst, [(slots[i], 0), (slots[j], 1)], "infinity", way) for way in range(4)]
    return joined(rows)


def _leaves(node: FusedSum) -> list[Product | Addend]:
    return [leaf for term in node.terms for leaf in (_leaves(term) if isinstance(term, FusedSum) else [term])]


def _infinite(inst: Instruction, wanted: list[tuple[list[Product | Addend], int]], kind: str, way: int) -> Request:
    """Terms made of these leaves that are infinite, or NaNs: by an operand of A, of B, or C; or too large."""
    asked = Request.zeros(inst, 1)
    a, b, c = (codes_of(fmt)[kind] for fmt in (inst.a, inst.b, inst.c))
    for leaves, sign in wanted:
        ks = [leaf.k for leaf in leaves if isinstance(leaf, Product)]
        if way == 0 and a and ks:
            asked.a[0, ks[0]], asked.b[0, ks[0]] = a[0] | sign * inst.a.sign_bit, codes_of(inst.b)["normal"][1]
        elif way == 1 and b and ks:
            asked.b[0, ks[-1]], asked.a[0, ks[-1]] = b[0] | sign * inst.b.sign_bit, codes_of(inst.a)["normal"][1]
        elif way == 0 and kind == "NaN" and ks and inst.scale is not None and asked.scales_a is not None:
            asked.a[0, ks[0]], asked.b[0, ks[0]] = codes_of(inst.a)["normal"][1], codes_of(inst.b)["normal"][1]
            asked.scales_a[0, ks[0] // (inst.scale_block or 1)] = inst.scale.largest + 1
        elif way == 2 and c and len(ks) < len(leaves):
            asked.c[0] = c[0] | sign * inst.c.sign_bit
        else:
            asked.a[0, ks], asked.b[0, ks] = inst.a.largest | sign * inst.a.sign_bit, inst.b.largest
            for scales in (asked.scales_a, asked.scales_b):
                if scales is not None and inst.scale is not None:
                    scales[0, [k // (inst.scale_block or 1) for k in ks]] = inst.scale.largest
            if len(ks) < len(leaves):
                asked.c[0] = (codes_of(inst.c)["infinity"] or [inst.c.largest])[0] | sign * inst.c.sign_bit
    return asked

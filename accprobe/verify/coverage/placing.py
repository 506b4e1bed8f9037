"""Numbers put on the terms of one sum as operands of dot products, all other operands zero."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.rounding import bit_length
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum, Product
from accprobe.operands.request import Request
from accprobe.verify.coverage.factors import TermNumbers, Whole, encoded, holding
from accprobe.verify.coverage.scaled_placing import ScaledPlacing
from accprobe.verify.coverage.spans import ROLES, TermRole, products_of, term_role


class Placing:
    """Operands of one sum.

    Its terms are columns: the products in their order, C, the inner sums. A number of an inner sum is put on its products, or
    on C where that is below it and no product holds the number.
    """

    def __init__(self, inst: Instruction, model: DotModel, node: FusedSum, rng: np.random.Generator) -> None:
        self._inst, self._model, self._node, self._rng = inst, model, node, rng
        others = [term_role(term) for term in node.terms if not isinstance(term, Product)]
        products: list[TermRole] = ["product"] * products_of(node)
        self.roles = (*products, *sorted(others, key=ROLES.index))

    def operands(self, numbers: TermNumbers) -> tuple[Request, NDArray[np.bool_]]:
        """Numbers [n, terms] as n dot products, and which of them hold them all."""
        inst, n = self._inst, len(numbers.negative)
        asked, fits = Request.zeros(inst, n), np.ones(n, bool)
        products = self.roles.count("product")
        if products:
            fits &= self._on_products(asked, self._node, numbers.at((slice(None), slice(products)))).all(axis=1)
        if self._node.has_addend:
            fits &= self._addend(asked, numbers.at((slice(None), products)), np.ones(n, bool))
        for i, child in enumerate(self._node.children):
            column = numbers.at((slice(None), products + self._node.has_addend + i))
            fits &= self._inner(asked, child, column)
        return asked, fits

    def _on_products(self, asked: Request, node: FusedSum, numbers: TermNumbers) -> NDArray[np.bool_]:
        """Numbers [n, products] put on those of a sum (in place), and which of them they hold."""
        if self._inst.scale is not None:
            assert isinstance(node.arithmetic, FloatArithmetic)
            placing = ScaledPlacing(self._inst, node.arithmetic, node.products, self._products, self._rng)
            return placing.put(asked, numbers)
        ks = list(node.products)
        asked.a[:, ks], asked.b[:, ks], held = self._products(numbers)
        return held

    def _products(self, numbers: TermNumbers) -> tuple[Bits, Bits, NDArray[np.bool_]]:
        inst, subnormals = self._inst, self._model.subnormal_operands
        negative, first, second, exponent = numbers
        most = [(1 << (fmt.mantissa_bits + 1)) - 1 for fmt in (inst.a, inst.b)]
        swap = (first > most[0]) & (second <= most[0])
        first, second = np.where(swap, second, first), np.where(swap, first, second)
        ways = [holding(inst.a, first, normal) for normal in (True, subnormals == "flushed")]
        others = [holding(inst.b, second, normal) for normal in (True, subnormals == "flushed")]
        low, high = (np.zeros_like(exponent) for _ in range(2))
        found = np.zeros(exponent.shape, bool)
        for i, j in ((0, 0), (1, 0), (0, 1), (1, 1)):
            least = np.maximum(ways[i][0], exponent - others[j][1])
            most_ = np.minimum(ways[i][1], exponent - others[j][0])
            better = ~found & (least <= most_)
            low, high = np.where(better, least, low), np.where(better, most_, high)
            found |= better
        of_a = low + (self._rng.random(low.shape) * (high - low + 1)).astype(np.int64)
        flip = self._rng.integers(0, 2, negative.shape)
        a, fits_a = encoded(inst.a, negative ^ flip, first, of_a)
        b, fits_b = encoded(inst.b, flip, second, exponent - of_a)
        return a, b, (first == 0) | (found & fits_a & fits_b)

    def _addend(self, asked: Request, numbers: TermNumbers, where: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """C set there (in place); which of the numbers it holds."""
        c, fits = encoded(self._inst.c, numbers.negative, numbers.first * numbers.second, numbers.exponent)
        asked.c[where] = c[where]
        return fits

    def _inner(self, asked: Request, node: FusedSum, numbers: TermNumbers) -> NDArray[np.bool_]:
        """Numbers that a sum below gives: one product, or C, or several products that have some of the bits each (in place)."""
        if self._inst.scale is not None:
            return self._inner_scaled(asked, node, numbers)
        inner = list(node.nodes())
        ks = np.array(next((below.products for below in inner[::-1] if below.products), ()))
        rows = np.arange(len(numbers.negative))
        if not len(ks):
            return self._addend(asked, numbers, np.ones(len(rows), bool))
        a, b, fits = self._products(numbers)
        done = fits.copy()
        start = self._rng.integers(0, len(ks), len(rows))
        if any(below.has_addend for below in inner):
            by_c = ~fits | ((self._rng.random(len(rows)) < 0.3) & (numbers.first != 0))
            done = np.where(by_c, self._addend(asked, numbers, by_c), fits)
            fits &= ~by_c
        asked.a[rows[fits], ks[start[fits]]], asked.b[rows[fits], ks[start[fits]]] = a[fits], b[fits]
        left = np.flatnonzero(~done & (numbers.second == 1))
        if len(left):
            done[left] = self._split(asked, ks, left, numbers.at(left))
        return done

    def _inner_scaled(self, asked: Request, node: FusedSum, numbers: TermNumbers) -> NDArray[np.bool_]:
        """Numbers that a sum below of scaled products gives: one term of it, or C (in place).

        C where a product does not hold the number, in half of the other cases, and always where products of this sum have the
        same scales.
        """
        n, below = len(numbers.negative), next((inner for inner in node.nodes() if inner.products), None)
        has_c = any(inner.has_addend for inner in node.nodes())
        fits = np.zeros(n, bool)
        if below is not None:
            every = TermNumbers(*(np.full((n, products_of(below)), value, np.int64) for value in (0, 0, 1, 0)))
            rows, start = np.arange(n), self._rng.integers(0, products_of(below), n)
            for whole, column in zip(every.columns, numbers.columns, strict=True):
                whole[rows, start] = column
            alone = replace(asked, a=asked.a.copy(), scales_a=_copied(asked.scales_a), scales_b=_copied(asked.scales_b))
            fits = self._on_products(asked, below, every)[rows, start]
            if has_c:
                shared = not self._blocks(below).isdisjoint(self._blocks(self._node))
                fits &= ~encoded(self._inst.c, numbers.negative, numbers.first * numbers.second, numbers.exponent)[1] | (
                    (self._rng.random(n) < 0.5) & (not shared)
                )
            for now, before in ((asked.a, alone.a), (asked.scales_a, alone.scales_a), (asked.scales_b, alone.scales_b)):
                if now is not None and before is not None:
                    now[~fits] = before[~fits]
        if has_c:
            fits |= self._addend(asked, numbers, ~fits)
        return fits

    def _blocks(self, node: FusedSum) -> set[int]:
        """Those whose scales products of the sum have."""
        return {k // (self._inst.scale_block or 1) for k in node.products}

    def _split(self, asked: Request, ks: Whole, rows: Whole, numbers: TermNumbers) -> NDArray[np.bool_]:
        """Numbers as sums of products, each with as many of the bits as a factor holds (in place)."""
        width = self._inst.a.mantissa_bits + 1
        parts = -(-int(bit_length(numbers.first).max()) // width)
        if parts > len(ks):
            return np.zeros(len(rows), bool)
        done = np.ones(len(rows), bool)
        for i in range(parts):
            piece = (numbers.first >> (i * width)) & ((1 << width) - 1)
            a, b, fits = self._products(TermNumbers(numbers.negative, piece, numbers.second, numbers.exponent + i * width))
            asked.a[rows, ks[i]], asked.b[rows, ks[i]] = a, b
            done &= fits
        return done


def _copied(scales: Bits | None) -> Bits | None:
    return None if scales is None else scales.copy()

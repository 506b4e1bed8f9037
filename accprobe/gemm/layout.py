"""How questions are laid out in A and B: each in a row and a column of its own; where A is not asked, in a column alone."""

from __future__ import annotations

import numpy as np

from accprobe.gemm import factors, units
from accprobe.gemm.pairs import Ints
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits


class Layout:
    """Of products whose A and B are both asked."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def blank(self) -> tuple[Bits, Bits]:
        """A [M, K] and B [N, K] of which every product is zero."""
        spec = self.spec
        return self.a(np.zeros((spec.m, spec.k), spec.a.dtype)), np.zeros((spec.n, spec.k), spec.b.dtype)

    def a(self, drawn: Bits) -> Bits:
        """A, or rows of it, where these are meant."""
        return drawn

    def one(self) -> tuple[int, int]:
        """Patterns whose product is 1."""
        spec = self.spec
        return (1, 1) if spec.a.is_integer else (units.power(spec.a, 0), units.power(spec.b, 0))

    def unlike(self, rows: Ints) -> Ints:
        """Those of the rows that can be asked other questions than one another."""
        return rows

    def apart(self, rows: Ints, columns: Ints) -> tuple[Ints, Ints]:
        """A row and a column for each of as many dot products as fit into one call, none of which has another's operands."""
        side = min(len(rows), len(columns))
        return rows[:side], columns[:side]

    def exponents(self) -> tuple[int, int]:
        """The lowest and the highest exponent of a product of factors that are powers of two."""
        both = self.spec.a, self.spec.b
        return sum(map(units.lowest, both)), sum(fmt.max_exponent for fmt in both)

    def patterns(self, signs: Ints, exponents: Ints, significands: Ints, rng: np.random.Generator) -> tuple[Bits, Bits]:
        """Factors of products of these signs (0: none), exponents and significands, in eighths or `factors.ANY`."""
        return factors.of_both(self.spec, signs, exponents, significands, rng)

    def power(self, exponent: int) -> tuple[int, int]:
        """Patterns of two powers of two whose product is 2^exponent."""
        of_a, of_b = units.factors(exponent, self.spec.a, self.spec.b)
        return units.power(self.spec.a, of_a), units.power(self.spec.b, of_b)


class OnlyB(Layout):
    """Of products whose A is the callable's own: every row has the same questions, each column one."""

    def __init__(self, spec: Spec, a_exponent: int) -> None:
        super().__init__(spec)
        self._exponent = a_exponent
        self._pattern = spec.a.dtype.type(units.power(spec.a, a_exponent))

    def a(self, drawn: Bits) -> Bits:
        return np.full_like(drawn, self._pattern)

    def one(self) -> tuple[int, int]:
        return int(self._pattern), units.power(self.spec.b, -self._exponent)

    def unlike(self, rows: Ints) -> Ints:
        return rows[:1]

    def apart(self, rows: Ints, columns: Ints) -> tuple[Ints, Ints]:
        return np.resize(rows, len(columns)), columns

    def exponents(self) -> tuple[int, int]:
        b = self.spec.b
        return self._exponent + units.lowest(b), self._exponent + b.max_exponent

    def patterns(self, signs: Ints, exponents: Ints, significands: Ints, rng: np.random.Generator) -> tuple[Bits, Bits]:
        b = factors.of_b(self.spec, signs, exponents, significands, rng)
        return np.where(signs != 0, self._pattern, 0).astype(self.spec.a.dtype), b

    def power(self, exponent: int) -> tuple[int, int]:
        return int(self._pattern), units.power(self.spec.b, exponent - self._exponent)


def layout_of(spec: Spec) -> Layout:
    return Layout(spec) if spec.a_exponent is None else OnlyB(spec, spec.a_exponent)

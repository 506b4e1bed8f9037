"""What to put on the terms of a sum so that it does everything it can: a few numbers at places that matter.

A row is a few numbers, each for a term of some role, the others zero. What it comes to is not computed here: `trace` says
which events it hits, and rows that hit nothing new are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from accprobe.isa.instructions import Instruction
from accprobe.verify.coverage.events import steps
from accprobe.verify.coverage.spans import ROLES, Bounds, TermRole

Number = tuple[int, int, int, int]  # negative, two factors of its significand, exponent.

RoleRows = tuple[tuple[TermRole, ...], list[list[Number]]]  # Roles, and for each row a number for each.

WIDE_BITS = 30  # Bits of a significand that fits in an integer beside another.


class BoundaryCases:
    """The rows for one sum."""

    def __init__(self, bound: Bounds, inst: Instruction) -> None:
        self._bound, self._x, self._inst = bound, bound.arithmetic, inst
        self._bits = self._x.alignment_bits
        self._reach = self._bits if self._bits is not None else self._x.result_bits + 2
        self._roles = [role for role in ROLES if role in bound.slots]

    def every(self) -> Iterator[RoleRows]:
        """Row after row, those first that hit most."""
        yield from self._apart()
        yield from self._cancelling()
        yield from self._small()
        yield from self._at_the_floor()
        yield from self._about_half()

    def power_of_two_boundary(self) -> Iterator[RoleRows]:
        """Three terms that make a power of two above them all, and less by about a last bit kept."""
        bits = self._x.result_bits
        for roles in self._tuples(4, 1) if self._bound.terms > 3 else ():
            rows = []
            for top, sign, below in product(self._levels(*set(roles)), (0, 1), (-1, 0, 1)):
                three = [(sign, 3, 1, top - 1), (sign, 3, 1, top - 1), (sign, 1, 1, top)]
                rows.append([*three, (1 - sign, 1, 1, top - bits + below)])
            yield roles, rows

    def _tuples(self, length: int, most_others: int = 2) -> Iterator[tuple[TermRole, ...]]:
        """Roles of so many terms; all but a few are products where there are as many."""
        for roles in product(self._roles, repeat=length):
            counts = {role: roles.count(role) for role in self._roles}
            if any(count > self._bound.slots[role].count for role, count in counts.items()):
                continue
            if length - counts.get("product", 0) <= most_others or "product" not in counts:
                yield roles

    def _spans(self, role: TermRole) -> tuple[int, int]:
        return self._bound.slots[role].reachable.exponents

    def _apart(self) -> Iterator[RoleRows]:
        """Two terms by every shift; and one term below the floor."""
        limit = steps(self._x, 0).ends[-1][0]
        for big, small in self._tuples(2) if self._bound.terms > 1 else ():
            (low, high), (least, most) = self._spans(big), self._spans(small)
            rows = []
            for apart in [*range(limit + 3), 2 * limit, high - least]:
                first, last = max(low, least + apart), min(high, most + apart)
                for i, top in enumerate(sorted({first, (first + last) // 2, last}) if first <= last else ()):
                    sign = (apart + i) & 1
                    rows.append([(i & 1, 1, 1, top), (sign, 1, 1, top - apart)])
                    rows.append([(i & 1, 3, 1, top - 1), (1 - sign, 7, 1, top - apart - 2)])
            yield (big, small), rows
        for role in self._roles:
            low, high = self._spans(role)
            places = {low, high, (low + high) // 2, low - 1, low - 2}
            if self._bound.floor is not None:
                places |= {self._bound.floor - i for i in range(limit + 3)}
            yield (
                (role,),
                [[(sign, s, t, place)] for place in sorted(places) for sign in (0, 1) for s, t in ((1, 1), (3, 3), (7, 5))],
            )

    def _levels(self, *roles: TermRole) -> list[int]:
        """Leading exponents that matter, where terms of these roles can be."""
        x, bound = self._x, self._bound
        fmt = x.result
        spans = [bound.slots[role].reachable for role in roles]
        low, high = max(span.leads[0] for span in spans), min(span.leads[1] for span in spans)
        places = {low + self._reach + 3, (low + high) // 2, high, high - 1, high - 2, fmt.max_exponent, fmt.max_exponent - 1}
        places |= {fmt.min_exponent, fmt.min_exponent + 1, 0}
        return sorted(place for place in places if low <= place <= high)

    def _tops(self, roles: tuple[TermRole, ...]) -> list[int]:
        """Leading exponents of two that cancel; one below C's largest, as products of a block lie no further apart."""
        return self._levels(*roles[:2])[-3:] + (self._levels(*roles)[-1:] if self._inst.scale is not None else [])

    def _cancelling(self) -> Iterator[RoleRows]:
        """M - M, with every smaller term beside it, or as the difference of two."""
        wanted = [*range(1, self._reach + 2)]
        for roles in self._tuples(2):
            levels = self._levels(*roles)[-3:]
            rows = [[(sign, 1, 1, top), (1 - sign, 1, 1, top)] for top in levels for sign in (0, 1)]
            for top, depth in product(levels, wanted):
                sign = depth & 1
                if depth < 61:
                    rows.append([(sign, 1, 1, top), (1 - sign, (1 << depth) - 1, 1, top - depth)])
                    rows.append([(sign, 1, 1, top), (1 - sign, (1 << depth) + 1, 1, top - depth)])
                i, j = depth // 2, depth - depth // 2
                if i and j < WIDE_BITS:
                    one, other = (1 << i) + 1, (1 << j) + 1
                    rows.append([(sign, one, other, top - depth), (1 - sign, one * other - 1, 1, top - depth)])
                    rows.append([(1 - sign, one, other, top - depth), (sign, one * other - 1, 1, top - depth)])
            yield roles, rows
        for roles in self._tuples(3):
            rows = []
            for top in self._tops(roles):
                for depth in range(1, self._reach + 5):
                    for sign in (0, 1):
                        rows.append([(sign, 1, 1, top), (1 - sign, 1, 1, top), (depth & 1, 1, 1, top - depth)])
            yield roles, rows

        if self._bits is not None and self._bound.terms > 3:
            for roles in self._tuples(4):
                tops = self._levels(*roles[:2])[-3:]
                cut = self._bits + 1
                pairs = [
                    (s, t) for s in ((0, cut), (1, cut), (0, cut + 1)) for t in ((0, cut), (1, cut), (1, cut + 1), (0, cut - 1))
                ]
                yield (
                    roles,
                    [
                        [(0, 1, 1, top), (1, 1, 1, top), (s, 1, 1, top - e), (t, 1, 1, top - f)]
                        for top in tops
                        for (s, e), (t, f) in pairs
                    ],
                )

    def _about_half(self) -> Iterator[RoleRows]:
        """Leading numbers of few bits and of many, with what lies about half of the result's last unit; at the ends too."""
        bits = self._x.result_bits
        ones, odd = (1 << (bits + 1)) - 1, (1 << bits) + 1
        for length in (1, 2, 3, 4):
            for roles in self._tuples(length, 2 if length < 4 else 1):
                rows: list[list[Number]] = []
                lead = roles[0]
                for top in self._levels(lead):
                    half, unit = top - bits - 1, top - self._reach
                    leads: list[list[Number]] = [[(0, 1, 1, top)], [(0, odd, 1, top - bits)], [(0, ones, 1, top - bits)]]
                    leads += [[(0, 1, 1, top), (0, 1, 1, top - bits)], [(0, 1, 1, top + 1), (1, 1, 1, top - bits)]]
                    leads += [[(0, 1, 1, top + 1), (1, 1, 1, half)], [(0, 1, 1, top), (0, 1, 1, top)]]
                    below: list[list[Number]] = [[], [(0, 1, 1, half)], [(0, 1, 1, half - 1)], [(0, 3, 1, half - 1)]]
                    below += [[(0, 1, 1, half), (sign, 1, 1, unit)] for sign in (0, 1)]
                    below += [[(1, 1, 1, half)], [(1, 1, 1, half - 1)]]
                    below += [[(0, (1 << k) + s, 1, half - k)] for k in (1, 7, 8, 20) for s in (-1, 1)]
                    below += [[(1, 1, 1, half - 20)], [(0, 1, 1, half - 20)]]
                    for first, rest in product(leads, below):
                        if len(first) + len(rest) == length:
                            rows += [[*first, *rest], [(1 - sign, one, other, at) for sign, one, other, at in (*first, *rest)]]
                if rows:
                    yield roles, rows
        for roles in self._tuples(5, 1) if self._bound.terms > 4 else ():
            rows = []
            for top in self._levels(*set(roles)):
                quarters = [(s, t) for s in (0, 1) for t in (1, 2, 3, 4)]
                rows += [[*((s, 1, 1, top - 1) for _ in range(4)), (1 - s, t, 1, top - bits - 2)] for s, t in quarters]
            yield roles, rows
        for roles in self._tuples(2):
            low, high = self._spans(roles[1])
            fmt = self._x.result
            extreme = [
                [(sign, ones, 1, fmt.max_exponent - bits), (other, 1, 1, e)]
                for sign in (0, 1)
                for other in (0, 1)
                for e in (low, (low + high) // 2, high)
            ]
            yield roles, extreme

    def _small(self) -> Iterator[RoleRows]:
        """Sums about the smallest normal number, and about the smallest subnormal one."""
        fmt, bits = self._x.result, self._x.result_bits
        low = fmt.min_exponent
        last = low - bits
        single = [
            (1, low),
            (1, last),
            (1, last - 1),
            (1, last - 2),
            (3, last - 2),
            (3, last),
            (5, last - 1),
            (1, low - 1),
            (1, last + 1),
        ]
        single += [
            ((1 << bits) - 1, last),
            ((1 << (bits + 2)) - 1, last - 2),
            ((1 << (bits + 1)) - 1, last - 1),
            ((1 << (bits + 2)) - 3, last - 2),
        ]
        pairs = [((1, low), (-1, last - i)) for i in range(3)] + [
            ((1, low), (-3, last - 2)),
            ((1, last), (1, last - 1)),
            ((1, last), (-1, last - 2)),
        ]
        pairs += [(((1 << bits) - 1, last), (1, last - i)) for i in (1, 2)] + [
            (((1 << bits) - 1, last), (3, last - 2)),
            ((3, last), (1, last - 1)),
            ((1, last), (-1, last - 1)),
            ((1, low - 1), (1, low - 1)),
            ((3, last), (-1, last)),
            ((1, low), (-1, low - 1)),
        ]
        for role in self._roles:
            yield (role,), [[(sign, s, 1, e)] for s, e in single for sign in (0, 1)]
        for roles in self._tuples(2):
            yield (
                roles,
                [
                    [(sign ^ (s < 0), abs(s), 1, e), (sign ^ (t < 0), abs(t), 1, f)]
                    for (s, e), (t, f) in pairs
                    for sign in (0, 1)
                ],
            )
        for roles in self._tuples(3, 1):
            rows = [[(sign, 1, 1, low), (1 - sign, 1, 1, last), (sign, s, 1, last - 2)] for s in (1, 2, 3) for sign in (0, 1)]
            rows += [
                [(sign, 1, 1, low - 1), (sign, 1, 1, low - 1), (1 - sign, s, 1, last - 2)]
                for s in (1, 2, 3, 4)
                for sign in (0, 1)
            ]
            yield roles, rows

    def _at_the_floor(self) -> Iterator[RoleRows]:
        """Terms about the lowest alignment, with bits below its cut."""
        floor = self._bound.floor
        if floor is None or self._bits is None:
            return
        cut = floor - self._bits
        tops = [floor + 1, floor, floor - 1, floor - 2, floor - 3]
        for roles in self._tuples(2):
            rows = []
            for top, sign, other in product(tops, (0, 1), (0, 1)):
                for place in (cut - 1, cut - 2, cut, cut + 1, floor - 4):
                    rows += [[(sign, 1, 1, top), (other, s, 1, place)] for s in (1, 3)]
            yield roles, rows
        for role in self._roles:
            yield (
                (role,),
                [
                    [(sign, (1 << (top - cut + 1)) + 1, 1, cut - 1)]
                    for top in tops
                    for sign in (0, 1)
                    if -1 <= top - cut < WIDE_BITS
                ],
            )
            yield (role,), [[(sign, s, 1, cut + i)] for s in (1, 3, 5, 7) for i in range(-4, 3) for sign in (0, 1)]

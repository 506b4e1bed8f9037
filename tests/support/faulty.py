"""Devices with faults in elements of a tile.

The layout of the tile is a second implementation, from the comments of probes/tile.cuh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from outside import Unit

from accprobe.build.lowerings import Lowering
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.operands.protocol import Device, DeviceKind
from accprobe.operands.request import Request

Mask = NDArray[np.bool_]


def placements(inst: Instruction) -> int:
    return inst.m * inst.n // gcd(inst.m, inst.n)


def cells(inst: Instruction, count: int, placement: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows and columns of the tile for `count` dot products of one launch."""
    together = gcd(inst.m, inst.n)
    tile, problem = np.divmod(np.arange(count), together)
    placed = (placement + tile) % placements(inst)
    row_shift, column_shift = placed // inst.n * together, placed % inst.n
    return (problem + row_shift) % inst.m, (problem + column_shift) % inst.n


@dataclass(frozen=True)
class Place:
    """Some elements of a tile.

    kind: "cell" (row `first`, column `second`), "row", "column", "lane" `first` of warp `second` (of every warp where that is
    -1), "register" `first` of every lane, "half": the `first` of upper, lower, left, right, even columns.
    """

    kind: Literal["cell", "row", "column", "lane", "register", "half"]
    first: int
    second: int = -1

    def holds(self, inst: Instruction, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Mask:
        if self.kind == "cell":
            return (rows == self.first) & (columns == self.second)
        if self.kind == "row":
            return rows == self.first
        if self.kind == "column":
            return columns == self.first
        if self.kind == "lane":
            lane = rows % 8 * 4 + columns % 8 // 2
            return (lane == self.first) & ((self.second < 0) | (rows // 16 == self.second))
        if self.kind == "register":
            lower = rows % 16 // 8 if inst.m >= 16 else 0
            element = columns % 2 + 2 * lower + (4 if inst.m >= 16 else 2) * (columns // 8)
            return element // (inst.register_bits // inst.d.storage_bits) == self.first
        halves = (rows < inst.m // 2, rows >= inst.m // 2, columns < inst.n // 2, columns >= inst.n // 2, columns % 2 == 0)
        return halves[self.first]


LATER = ("from call", "from answer")
"""Faults that begin at some call or result, perhaps after the run."""

OF_A_RATE = ("random", "pattern")
"""Faults of a fraction of all results."""

STEADY = ("always", "late in batch", "one hot", "size remainder", "size from", "after equal", "huge cancels")
"""Faults of every result of some kind."""


@dataclass(frozen=True)
class Fault:
    """A fault. place: elements of the tile, None: all; when, with `number`: of `WHEN`.

    how: "flip", "set", "clear" bit `bit`; "next" bit pattern; "neighbour": the result of the next dot product.
    """

    when: str = "always"
    number: int = 1
    place: Place | None = None
    how: Literal["flip", "set", "clear", "next", "neighbour"] = "flip"
    bit: int = 0

    def rate(self, inst: Instruction) -> float | None:
        """Return the share of faulty results in the whole tile, if the fault has one."""
        if self.when not in OF_A_RATE:
            return None
        rows, columns = np.meshgrid(np.arange(inst.m), np.arange(inst.n), indexing="ij")
        return (1.0 if self.place is None else float(self.place.holds(inst, rows, columns).mean())) / self.number


class PlantedDevice(Device):
    """One instruction, computed by `unit`, with a fault."""

    kind: DeviceKind = "cuda"
    pure = False
    name = "planted"
    architecture = "sm_90a"

    def __init__(self, unit: Unit, opcode: str, fault: Fault | None = None, seed: int = 0) -> None:
        self.unit, self._opcode, self._fault = unit, opcode, fault
        self.rng = np.random.default_rng([seed, 7])
        self.before: Request | None = None
        self.calls = self.answers = 0
        self.acted = 0
        """Results that the fault has changed."""

    def describe(self) -> dict[str, object]:
        return {"compute_capability": "9.0", "sm_count": 132}

    def environment(self) -> dict[str, str]:
        return {"driver": "planted"}

    def instructions(self) -> Sequence[Instruction]:
        return [self.unit.inst]

    def explain_unavailable(self, inst: Instruction) -> str | None:
        return None if inst == self.unit.inst else "not planted"

    def placements(self, inst: Instruction) -> int:
        return placements(inst)

    def lowering(self, inst: Instruction) -> Lowering | None:
        return Lowering((self._opcode,), ((self._opcode, 1),), "nvdisasm", "ab" * 32)

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        request.check(inst)
        d = self.unit.dot(request)
        if self._fault and len(d):
            rows = self._wrong(self._fault, inst, request, placement)
            spoiled = _spoiled(self._fault, inst, d)
            self.acted += int((rows & (spoiled != d)).sum())
            d = np.where(rows, spoiled, d)
        self.calls += 1
        self.answers += len(d)
        self.before = request
        return d

    def begun(self) -> bool:
        """Return whether the fault has begun."""
        if not self._fault or self._fault.when not in LATER:
            return True
        return (self.calls if self._fault.when == "from call" else self.answers) > self._fault.number

    def _wrong(self, fault: Fault, inst: Instruction, request: Request, placement: int) -> Mask:
        n = len(request)
        here = np.ones(n, bool) if fault.place is None else fault.place.holds(inst, *cells(inst, n, placement))
        return here & np.asarray(WHEN[fault.when](self, fault.number, request), bool)

    def repeats(self, request: Request) -> bool:
        before = self.before
        return before is not None and all(map(np.array_equal, before.columns, request.columns))

    def preceding(self, request: Request) -> NDArray[np.uint64]:
        """Return the hash of what was asked before each dot product; of the first ever, another one than its own."""
        now = hashes(request)
        first = hashes(self.before[-1:]) if self.before is not None and len(self.before) else now[:1] + np.uint64(1)
        return np.concatenate([first, now[:-1]])

    def numbers(self, request: Request) -> NDArray[np.int64]:
        """Return the number of each result among all."""
        return self.answers + np.arange(len(request))


WHEN: dict[str, Callable[[PlantedDevice, int, Request], object]] = {
    "always": lambda device, number, request: True,
    # One result in so many, at random.
    "random": lambda device, number, request: device.rng.random(len(request)) * number < 1,
    # One dot product in so many, by a hash of its bits.
    "pattern": lambda device, number, request: hashes(request) % number == 0,
    # From that one on.
    "from call": lambda device, number, request: device.calls >= number,
    "from answer": lambda device, number, request: device.numbers(request) >= number,
    # Before it.
    "until call": lambda device, number, request: device.calls < number,
    "until answer": lambda device, number, request: device.numbers(request) < number,
    # Every so many.
    "each call": lambda device, number, request: device.calls % number == number - 1,
    # So many results of every twice so many.
    "window": lambda device, number, request: device.numbers(request) % (2 * number) < number,
    # One call in so many, by a hash of the last dot product before it.
    "after some": lambda device, number, request: device.before is not None and device.preceding(request)[0] % number == 0,
    # One dot product in so many, where the call repeats the one before it, or where it does not.
    "again": lambda device, number, request: device.repeats(request) & (hashes(request) % number == 0),
    "anew": lambda device, number, request: (not device.repeats(request)) & (hashes(request) % number == 0),
    # From that dot product of a call on.
    "late in batch": lambda device, number, request: np.arange(len(request)) >= number,
    # One in so many of those with a single one in A and ones and twos alone in B, as a self-test has them.
    "one hot": lambda device, number, request: _one_hot(device.unit.inst, request) & (hashes(request) % number == 0),
    # Calls whose size modulo 8 it is.
    "size remainder": lambda device, number, request: len(request) % 8 == number,
    # Calls of so many dot products to twice as many.
    "size from": lambda device, number, request: number <= len(request) < 2 * number,
    # A dot product like the one before it.
    "after equal": lambda device, number, request: device.preceding(request) == hashes(request),
    # The dot product before it is one in so many, by a hash of its bits.
    "after pattern": lambda device, number, request: device.preceding(request) % number == 0,
    # A product is two to the power of that number or more, and the result is finite.
    "huge cancels": lambda device, number, request: (
        _huge(device.unit.inst, request, number) & np.isfinite(device.unit.inst.d.values(device.unit.dot(request)))
    ),
}


def _one_hot(inst: Instruction, request: Request) -> Mask:
    with np.errstate(all="ignore"):
        a, b = inst.a.values(request.a), inst.b.values(request.b)
    return ((a != 0).sum(axis=1) == 1) & ((a == 0) | (a == 1)).all(axis=1) & ((b == 1) | (b == 2)).all(axis=1)


def _huge(inst: Instruction, request: Request, exponent: int) -> Mask:
    """Return the dot products with a finite product of 2^exponent or larger."""
    with np.errstate(all="ignore"):
        products = np.abs(inst.a.values(request.a).astype(np.float64) * inst.b.values(request.b).astype(np.float64))
    return (np.isfinite(products) & (products >= 2.0**exponent)).any(axis=1)


def hashes(request: Request) -> NDArray[np.uint64]:
    """Return a hash of all bit patterns of each dot product, [N]."""
    rng = np.random.default_rng(14)
    mixed = np.zeros(len(request), np.uint64)
    for column in request.columns:
        wide = column.reshape(len(request), -1).astype(np.uint64)
        for place in wide.T:
            mixed = (mixed ^ place) * (rng.integers(1 << 62, dtype=np.uint64) | np.uint64(1))
            mixed ^= mixed >> np.uint64(31)
    return mixed


def _spoiled(fault: Fault, inst: Instruction, d: Bits) -> Bits:
    bit = d.dtype.type(1 << fault.bit)
    match fault.how:
        case "flip":
            return d ^ bit
        case "set":
            return d | bit
        case "clear":
            return d & ~bit
        case "next":
            return d ^ d.dtype.type(1) if inst.is_integer else np.where(d & 1 == 1, d - d.dtype.type(1), d + d.dtype.type(1))
        case "neighbour":
            return np.roll(d, -1)

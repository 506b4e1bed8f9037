"""Additions, multiplications, divisions, minima and maxima of a GPU, and additions to memory: compiled and run.

Source: PTX ISA, "Floating Point Instructions: add, mul, fma, div, min, max", "Half Precision Floating Point
Instructions", "Parallel Synchronization and Communication Instructions: red", "Data Movement and Conversion Instructions:
cp.reduce.async.bulk".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from accprobe.build import compiler
from accprobe.build.cache import Cubin
from accprobe.build.probes import device_code
from accprobe.function.units import STORAGE, GpuInstruction
from accprobe.isa.formats import FORMATS, Bits, Format

ArithmeticOperation = Literal["add", "mul", "fma", "div", "min", "max"]
Location = Literal["register", "global", "shared", "bulk"]
THREADS, BLOCKS = 256, 2112

# Expressions of inline assembly by register class: an operand from its bits, and the bits of a result.
_READ = {"f": "__uint_as_float", "d": "__longlong_as_double", "h": "", "r": ""}
_KINDS = {"f": "float", "d": "double", "h": "unsigned short", "r": "unsigned"}
_BITS = {"f": "__float_as_uint(t)", "d": "__double_as_longlong(t)", "h": "t", "r": "t"}


@dataclass(frozen=True)
class ArithmeticUnit:
    """One instruction of two or three operands of a format.

    place: "register", or the memory that it adds to ("bulk": to global memory, by an asynchronous copy). lanes: numbers of an
    operand, such as 2 of f16x2.
    """

    name: str
    operation: ArithmeticOperation
    fmt: Format
    place: Location = "register"
    lanes: int = 1

    def exists_on(self, target: str) -> bool:
        return True  # of sm_90, the oldest target that is measured

    @property
    def source(self) -> str:
        """Return the complete CUDA C++ of its kernel."""
        head = f"// {self.name}\nusing Word = {self._word()};\n"
        return f"{head}#define {self._macro()}\n{device_code('arithmetic.cu')}"

    @property
    def _registers(self) -> tuple[str, int]:
        """Return the class of the registers of an operand, and their number."""
        if self.fmt.storage_bits == 16:
            return ("h", 1) if self.lanes == 1 else ("r", self.lanes // 2)
        return "d" if self.fmt.name == "f64" else "f", self.lanes

    def _word(self) -> str:
        count = self._registers[1]
        return STORAGE[self.lanes * self.fmt.storage_bits] if count == 1 else f"uint{count}"

    def _macro(self) -> str:
        register, count = self._registers
        read = _READ[register]
        if self.place == "bulk":
            operands = '"l"(p), "r"((unsigned)__cvta_generic_to_shared(x)), "r"(bytes)'
            return f'BULK(p, x, bytes) asm volatile("{self.name} [%0], [%1], %2;" :: {operands} : "memory")'
        if self.place != "register":
            pointer = '"l"(p)' if self.place == "global" else '"r"((unsigned)__cvta_generic_to_shared(p))'
            macro = "REDUCE" if self.place == "global" else "REDUCE_SHARED"
            parts = ["value"] if count == 1 else [f"(value).{name}" for name in "xyzw"[:count]]
            operands = ", ".join(f'"{register}"({read}({part}))' for part in parts)
            values = ", ".join(f"%{i + 1}" for i in range(count))
            vector = values if count == 1 else f"{{{values}}}"
            return f'{macro}(p, value) asm volatile("{self.name} [%0], {vector};" :: {pointer}, {operands} : "memory")'
        names = "abc"[: operands_of(self.operation)]
        operands = ", ".join(f'"{register}"({read}({name}))' for name in names)
        places = ", ".join(f"%{i + 1}" for i in range(len(names)))
        return (
            f'APPLY(y, a, b, c) {{ {_KINDS[register]} t; asm volatile("{self.name} %0, {places};" : "={register}"(t) :'
            f" {operands}); y = {_BITS[register]}; }}"
        )

    def compile(self, target: str) -> Cubin:
        """Return the cubin of its kernel. Raises ToolMissing, and AccprobeError if the target lacks the instruction."""
        return compiler.compile_source(self.source, target, self.name)


def operands_of(operation: ArithmeticOperation) -> int:
    return 3 if operation == "fma" else 2


def _units() -> Iterator[ArithmeticUnit]:
    f32, f16, bf16, f64 = FORMATS["f32"], FORMATS["f16"], FORMATS["bf16"], FORMATS["f64"]
    operations: tuple[ArithmeticOperation, ...] = ("add", "mul", "fma")
    for operation, rounding, ftz in product(operations, ("rn", "rz", "rm", "rp"), ("", ".ftz")):
        yield ArithmeticUnit(f"{operation}.{rounding}{ftz}.f32", operation, f32)
    for operation in operations:
        yield ArithmeticUnit(f"{operation}.rn.sat.f32", operation, f32)
        yield ArithmeticUnit(f"{operation}.rn.f16", operation, f16)
        yield ArithmeticUnit(f"{operation}.rn.ftz.f16", operation, f16)
        yield ArithmeticUnit(f"{operation}.rn.bf16", operation, bf16)
        for fmt in (f16, bf16):
            yield ArithmeticUnit(f"{operation}.rn.{fmt}x2", operation, fmt, lanes=2)
    yield ArithmeticUnit("fma.rn.relu.f16", "fma", f16)
    yield ArithmeticUnit("fma.rn.relu.bf16", "fma", bf16)
    yield from (ArithmeticUnit(f"{operation}.rn.f64", operation, f64) for operation in operations)
    extremes: tuple[ArithmeticOperation, ...] = ("min", "max")
    for operation in extremes:
        yield from (ArithmeticUnit(f"{operation}{kind}.f32", operation, f32) for kind in ("", ".ftz", ".NaN"))
        yield ArithmeticUnit(f"{operation}.f64", operation, f64)
        for fmt, kind in product((f16, bf16), ("", ".NaN")):
            yield ArithmeticUnit(f"{operation}{kind}.{fmt}x2", operation, fmt, lanes=2)
    for rounding, ftz in product(("rn", "full", "approx"), ("", ".ftz")):
        yield ArithmeticUnit(f"div.{rounding}{ftz}.f32", "div", f32)
    yield from _additions_to_memory()


def _additions_to_memory() -> Iterator[ArithmeticUnit]:
    f32, f16, bf16, f64 = FORMATS["f32"], FORMATS["f16"], FORMATS["bf16"], FORMATS["f64"]
    places: tuple[Location, ...] = ("global", "shared")
    for place, fmt in product(places, (f32, f64)):
        yield ArithmeticUnit(f"red.{place}.add.{fmt}", "add", fmt, place)
    for count in (2, 4):
        yield ArithmeticUnit(f"red.global.add.v{count}.f32", "add", f32, "global", count)
    for fmt in (f16, bf16):
        yield ArithmeticUnit(f"red.global.add.noftz.{fmt}", "add", fmt, "global")
        yield ArithmeticUnit(f"red.global.add.noftz.{fmt}x2", "add", fmt, "global", 2)
        yield ArithmeticUnit(f"red.shared.add.noftz.{fmt}x2", "add", fmt, "shared", 2)
        for count in (2, 4):
            yield ArithmeticUnit(f"red.global.add.noftz.v{count}.{fmt}x2", "add", fmt, "global", 2 * count)
    for fmt in (f32, f64, f16, bf16):
        noftz = ".noftz" if fmt.storage_bits == 16 else ""
        yield ArithmeticUnit(f"cp.reduce.async.bulk.global.shared::cta.bulk_group.add{noftz}.{fmt}", "add", fmt, "bulk")


ARITHMETIC_UNITS: tuple[ArithmeticUnit, ...] = tuple(_units())


class GpuArithmetic(GpuInstruction):
    """An arithmetic instruction on a GPU."""

    def words(self, *operands: Bits) -> Bits:
        """Return the results of three arrays of words."""
        with self._gpu.lend(f"failed to run {self.unit.name}") as cupy:
            given = [cupy.asarray(each) for each in operands]
            results = given[1].copy()  # the memory that `bulk` adds to
            self._kernel((BLOCKS,), (THREADS,), (*given, results, results.size // self.unit.lanes))
            return np.asarray(results.get())

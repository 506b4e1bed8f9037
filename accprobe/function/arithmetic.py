"""Additions, multiplications, divisions, minima and maxima of a GPU, and additions to memory: compiled and run.

Source: PTX ISA, "Floating Point Instructions: add, mul, fma, div, min, max", "Half Precision Floating Point
Instructions", "Parallel Synchronization and Communication Instructions: red", "Data Movement and Conversion Instructions:
cp.reduce.async.bulk".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from accprobe.build import compiler
from accprobe.build.cache import Cubin
from accprobe.build.probes import device_code
from accprobe.function.units import BLOCKS, STORAGE, THREADS, GpuInstruction, assembly, given, spelled_out
from accprobe.isa.formats import FORMATS, Bits, Format

ArithmeticOperation = Literal["add", "mul", "fma", "div", "min", "max"]


@dataclass(frozen=True)
class ArithmeticUnit:
    """One instruction of two or three operands of a format, known by its PTX name."""

    name: str

    @cached_property
    def operation(self) -> ArithmeticOperation:
        return next(each for each in get_args(ArithmeticOperation) if each in self._words)

    @cached_property
    def place(self) -> str:
        """Return "register", or the memory that it adds to ("bulk": to global memory, by an asynchronous copy)."""
        return next((each for each in ("bulk", "shared", "global") if each in self._words), "register")

    @cached_property
    def fmt(self) -> Format:
        return FORMATS[self._words[-1].partition("x")[0]]

    @cached_property
    def lanes(self) -> int:
        """Return how many numbers an operand has: 2 of f16x2, 8 of v4.f16x2."""
        packed, vector = self._words[-1].partition("x")[2], re.search(r"\.v(\d)", self.name)
        return int(packed or 1) * int(vector[1] if vector else 1)

    @property
    def _words(self) -> list[str]:
        return self.name.split(".")

    def exists_on(self, target: str) -> bool:
        return True  # of sm_90, the oldest target that is measured

    @property
    def source(self) -> str:
        """Return the complete CUDA C++ of its kernel."""
        count = self._registers[1]
        word = STORAGE[self.lanes * self.fmt.storage_bits] if count == 1 else f"uint{count}"
        return f"// {self.name}\nusing Word = {word};\n#define {self._macro()}\n{device_code('arithmetic.cu')}"

    @property
    def _registers(self) -> tuple[str, int]:
        """Return the class of the registers of an operand, and their number."""
        if self.fmt.storage_bits == 16:
            return ("h", 1) if self.lanes == 1 else ("r", self.lanes // 2)
        return "d" if self.fmt.name == "f64" else "f", self.lanes

    def _macro(self) -> str:
        register, count = self._registers
        if self.place == "bulk":
            operands = '"l"(p), "r"((unsigned)__cvta_generic_to_shared(x)), "r"(bytes)'
            return f'BULK(p, x, bytes) asm volatile("{self.name} [%0], [%1], %2;" :: {operands} : "memory")'
        if self.place != "register":
            pointer = '"l"(p)' if self.place == "global" else '"r"((unsigned)__cvta_generic_to_shared(p))'
            macro = "REDUCE" if self.place == "global" else "REDUCE_SHARED"
            parts = ["value"] if count == 1 else [f"(value).{name}" for name in "xyzw"[:count]]
            operands = ", ".join(given(register, part) for part in parts)
            values = ", ".join(f"%{i + 1}" for i in range(count))
            vector = values if count == 1 else f"{{{values}}}"
            return f'{macro}(p, value) asm volatile("{self.name} [%0], {vector};" :: {pointer}, {operands} : "memory")'
        names = "abc"[: operands_of(self.operation)]
        places = ", ".join(f"%{i + 1}" for i in range(len(names)))
        operands = ", ".join(given(register, name) for name in names)
        return f"APPLY(y, a, b, c) {assembly(f'{self.name} %0, {places};', register, operands)}"

    def compile(self, target: str) -> Cubin:
        """Return the cubin of its kernel. Raises ToolMissing, and AccprobeError if the target lacks the instruction."""
        return compiler.compile_source(self.source, target, self.name)


def operands_of(operation: ArithmeticOperation) -> int:
    return 3 if operation == "fma" else 2


_INSTRUCTIONS = (
    *("{add,mul,fma}.{rn,rz,rm,rp}{,.ftz}.f32", "{add,mul,fma}.rn.sat.f32", "{add,mul,fma}.rn{,.ftz}.f16"),
    *("{add,mul,fma}.rn.bf16", "{add,mul,fma}.rn.{f16,bf16}x2", "fma.rn.relu.{f16,bf16}", "{add,mul,fma}.rn.f64"),
    *("{min,max}{,.ftz,.NaN}.f32", "{min,max}.f64", "{min,max}{,.NaN}.{f16,bf16}x2", "div.{rn,full,approx}{,.ftz}.f32"),
    *("red.{global,shared}.add.{f32,f64}", "red.global.add.{v2,v4}.f32", "red.global.add.noftz.{f16,bf16}"),
    *("red.{global,shared}.add.noftz.{f16,bf16}x2", "red.global.add.noftz.{v2,v4}.{f16,bf16}x2"),
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add{.f32,.f64,.noftz.f16,.noftz.bf16}",
)
ARITHMETIC_UNITS: tuple[ArithmeticUnit, ...] = tuple(map(ArithmeticUnit, spelled_out(_INSTRUCTIONS)))


class GpuArithmetic(GpuInstruction):
    """An arithmetic instruction on a GPU."""

    def words(self, *operands: Bits) -> Bits:
        """Return the results of three arrays of words."""
        with self._gpu.lend(f"failed to run {self.unit.name}") as cupy:
            given = [cupy.asarray(each) for each in operands]
            results = given[1].copy()  # the memory that `bulk` adds to
            self._kernel((BLOCKS,), (THREADS,), (*given, results, results.size // self.unit.lanes))
            return np.asarray(results.get())

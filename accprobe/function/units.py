"""Scalar PTX instructions as functions of words: special function unit and conversions, compiled and run on a GPU.

Sources: PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions" and "Data Movement and Conversion
Instructions: cvt".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal

from accprobe.build import compiler
from accprobe.build.cache import Cubin
from accprobe.build.probes import device_code
from accprobe.isa.formats import FORMATS, Format
from accprobe.sass.reading import functions

Kind = Literal["special function", "conversion", "CUDA function"]

# Storage types of CUDA C++ by bits.
STORAGE = {8: "unsigned char", 16: "unsigned short", 32: "unsigned int", 64: "unsigned long long"}
# Register class of inline assembly by format: bit patterns in integer registers, f32 in a float register.
REGISTERS = {"f32": "f", "f16": "h", "bf16": "h", "tf32": "r", "s32": "r", "u32": "r"}
# By register class: the C++ type, and the functions from an operand's bits to that type and back.
_TYPES = {
    "f": ("float", "__uint_as_float", "__float_as_uint"),
    "d": ("double", "__longlong_as_double", "__double_as_longlong"),
    "h": ("unsigned short", "", ""),
    "r": ("unsigned", "", ""),
}
# SASS that loads, stores, indexes and branches, whatever the function is.
MOVES = frozenset(
    {"LDG", "STG", "LDC", "ULDC", "S2R", "S2UR", "CS2R", "MOV", "UMOV", "IMAD", "UIMAD", "IADD", "IADD3", "UIADD3"}
    | {"ISETP", "UISETP", "LEA", "ULEA", "EXIT", "BRA", "NOP", "RET", "BSSY", "BSYNC", "WARPSYNC", "ENDCOLLECTIVE"}
    | {"MEMBAR", "ERRBAR", "CGAERRBAR", "CCTL", "LDS", "STS", "LDCU", "R2UR", "USEL", "USHF", "UPRMT", "PLOP3", "ELECT"}
    | {"BAR", "FENCE", "DEPBAR", "UTMACMDFLUSH"}
)
THREADS, BLOCKS = 256, 132 * 16


@dataclass(frozen=True)
class ScalarUnit:
    """One scalar instruction, or function of CUDA. function: its reference function. since: its first target, "" for sm_90.

    A packed instruction converts x and zeros; one that rounds at random (`.rs`) gets random bits that are 0.
    """

    name: str
    operand: Format
    result: Format
    kind: Kind
    function: str = "identity"
    since: str = ""

    def exists_on(self, target: str) -> bool:
        return _number(target) >= _number(self.since)

    @property
    def source(self) -> str:
        """Return the complete CUDA C++ of the kernel that applies it to an array."""
        return self.kernel("function.cu")

    def kernel(self, file: str) -> str:
        """Return the complete CUDA C++ of a kernel of `probes/` that applies it."""
        types = f"using Operand = {STORAGE[self.operand.storage_bits]};\nusing Result = {STORAGE[self.result.storage_bits]};\n"
        return f"// {self.name}\n{types}#define APPLY(y, x) {self._apply()}\n{device_code(file)}"

    def _apply(self) -> str:
        """Return the statement that stores in y the result of x, through registers of the operand's and the result's class."""
        if self.kind == "CUDA function":
            return f"y = __float_as_uint({self.name}(__uint_as_float(x)))"
        if self.result.storage_bits == 8 or ".rs" in self.name:
            return self._packed()
        if self.operand.storage_bits == 8:
            text = f"{self.name} %0, %1;"
            if self.operand.name == "e2m1":  # two numbers are a byte, which no register class of inline assembly holds
                text = f"{{ .reg .b8 t, u; mov.b16 {{t, u}}, %1; {self.name} %0, t; }}"
            return assembly(text, "r", given("h", "(unsigned short)(x)"))
        return assembly(f"{self.name} %0, %1;", REGISTERS[self.result.name], given(REGISTERS[self.operand.name], "x"))

    def _packed(self) -> str:
        """Return the statement of a conversion of several f32 numbers: x becomes the lowest one of the result."""
        four, result = "x4." in self.name, self.result
        to = "h" if result.storage_bits == 8 and (not four or result.name == "e2m1") else "r"
        operands = ("{%1, %1, %1, %2}" if four else "%1, %2") + ", %3" * (".rs" in self.name)
        text = f"{self.name} %0, {operands};"
        if result.name == "e2m1" and not four:
            text = f"{{ .reg .b8 t; {self.name} t, {operands}; cvt.u16.u8 %0, t; }}"
        bits = ', "r"(0)' * (".rs" in self.name)
        return assembly(text, to, f'"f"(0.0f), {given("f", "x")}{bits}', " & 15" * (result.name == "e2m1"))

    def compile(self, target: str) -> Cubin:
        """Return the cubin of its kernel. Raises ToolMissing, and AccprobeError if the target lacks the instruction."""
        return compiler.compile_source(self.source, target, self.name)


def given(register: str, bits: str) -> str:
    """Return an operand of inline assembly from an expression of its bits. register: its class."""
    return f'"{register}"({_TYPES[register][1]}({bits}))'


def assembly(text: str, register: str, operands: str, mask: str = "") -> str:
    """Return the statement that stores in y the bits of the result of inline assembly. register: the result's class."""
    kind, _, bits = _TYPES[register]
    return f'{{ {kind} t; asm volatile("{text}" : "={register}"(t) : {operands}); y = {bits}(t){mask}; }}'


def _number(target: str) -> int:
    return int("".join(filter(str.isdigit, target)) or 0)


def opcodes_of(cubin: Cubin) -> tuple[str, ...]:
    """Return the opcodes that compute, in order of appearance: `2×FMUL` for two. Raises ToolMissing without nvdisasm."""
    (function,) = functions(cubin.path, targets=False)
    kept = [opcode for opcode in function.opcodes if opcode.partition(".")[0] not in MOVES and opcode != "SHF.L.U64.HI"]
    return tuple(name if count == 1 else f"{count}×{name}" for name, count in Counter(kept).items())


def spelled_out(patterns: Iterable[str]) -> Iterator[str]:
    """Yield the names that patterns stand for: "cvt.{rn,rz}.f16.f32" for two."""
    for pattern in patterns:
        yield from map("".join, product(*(part.split(",") for part in re.split("[{}]", pattern))))


SPECIAL_FUNCTIONS = {"ex2": "exp2", "lg2": "log2", "rcp": "reciprocal"} | {
    name: name for name in ("rsqrt", "sqrt", "sin", "cos", "tanh")
}
"""Reference functions by operation of the special function unit."""

_SPECIAL_FUNCTIONS = (
    *("{ex2,lg2,rcp,rsqrt,sqrt,sin,cos}.approx{.ftz,}.f32", "tanh.approx.f32", "{ex2,tanh}.approx.f16"),
    *("ex2.approx.ftz.bf16", "tanh.approx.bf16", "{rcp,sqrt}.rn.f32"),
)
_CONVERSIONS = (
    *("cvt.{rn,rz}{,.relu}.f16.f32", "cvt.{rn,rz}{,.relu}.bf16.f32", "cvt.rna.tf32.f32"),
    *("cvt.rn.satfinite{,.relu}.{e4m3,e5m2}x2.f32", "cvt.rn.f16x2.{e4m3,e5m2}x2"),
    *("cvt.{rni,rzi,rmi,rpi}{,.ftz}.{s32,u32}.f32", "cvt.{rni,rzi,rmi,rpi}.s32.f16"),
    *("cvt.{rn,rz,rm,rp}.f32.{s32,u32}", "cvt.f32.{f16,bf16}", "cvt.rn.f16.s32"),
)
_CONVERSIONS_OF_BLACKWELL = (
    *("cvt.rn.satfinite{,.relu}.{e2m1,e3m2,e2m3}x2.f32", "cvt.rn.f16x2.{e2m1,e3m2,e2m3}x2"),
    *("cvt.{rz,rp}{,.satfinite}.ue8m0x2.f32", "cvt.rn.bf16x2.ue8m0x2"),
    *("cvt.rs.{f16,bf16}x2.f32", "cvt.rs.satfinite.{e4m3,e5m2,e3m2,e2m3,e2m1}x4.f32"),
)


def _special_function(name: str) -> ScalarUnit:
    operation, *_, fmt = name.split(".")
    return ScalarUnit(name, FORMATS[fmt], FORMATS[fmt], "special function", SPECIAL_FUNCTIONS[operation])


def _conversion(name: str, since: str = "") -> ScalarUnit:
    result, operand = (FORMATS[re.sub("x[24]$", "", part)] for part in name.split(".")[-2:])
    return ScalarUnit(name, operand, result, "conversion", since=since)


SCALAR_UNITS: tuple[ScalarUnit, ...] = (
    *map(_special_function, spelled_out(_SPECIAL_FUNCTIONS)),
    *map(_conversion, spelled_out(_CONVERSIONS)),
    *(_conversion(name, "sm_100a") for name in spelled_out(_CONVERSIONS_OF_BLACKWELL)),
)
"""Scalar instructions to measure. Instructions of sm_100a never ran on hardware."""


class GpuInstruction:
    """The kernel of a unit on a GPU. Raises ToolMissing, AccprobeError if it does not compile there."""

    def __init__(self, unit: Any, index: int = 0) -> None:
        from accprobe.devices.cuda import CudaDevice

        self.unit, self.name, self.device = unit, unit.name, f"cuda:{index}"
        self._gpu = CudaDevice(index)
        self.cubin: Cubin = unit.compile(self._gpu.architecture)

    @cached_property
    def _kernel(self) -> Any:
        with self._gpu.lend(f"failed to load {self.name}") as cupy:
            return cupy.RawModule(path=str(self.cubin.path)).get_function("apply")


class GpuUnit(GpuInstruction):
    """A scalar unit on a GPU, a `Subject` of cupy or numpy arrays."""

    on_device = True

    def __init__(self, unit: ScalarUnit, index: int = 0) -> None:
        super().__init__(unit, index)
        self.operand, self.result = unit.operand, unit.result

    def words(self, words: Any) -> Any:
        """Return result words of cupy or numpy words, in an array of the same library."""
        with self._gpu.lend(f"failed to run {self.name}") as cupy:
            operands = cupy.ascontiguousarray(cupy.asarray(words, self.operand.dtype))
            results = cupy.empty(operands.shape, self.result.dtype)
            blocks = min(BLOCKS, -(-operands.size // THREADS))
            if blocks:
                self._kernel((blocks,), (THREADS,), (operands, results, operands.size))
            return results if isinstance(words, cupy.ndarray) else results.get()

"""Scalar PTX instructions as functions of words: special function unit and conversions, compiled and run on a GPU.

Sources: PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions" and "Data Movement and Conversion
Instructions: cvt".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
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
REGISTERS = {"f32": "f", "f16": "h", "bf16": "h", "tf32": "r", "s32": "r", "u32": "r", "s16": "h", "s8": "r", "u8": "r"}
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
    """One scalar instruction. function: its reference function. since: the first target that has it, "" for sm_90.

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
        return self._head + device_code(file)

    @property
    def _head(self) -> str:
        head = f"using Operand = {STORAGE[self.operand.storage_bits]};\nusing Result = {STORAGE[self.result.storage_bits]};\n"
        return f"// {self.name}\n{head}#define APPLY(y, x) {self._apply()}\n"

    def _apply(self) -> str:
        """Return the statement that stores in y the result of x, through registers of the operand's and the result's class."""
        if self.kind == "CUDA function":
            return f"y = __float_as_uint({self.name}(__uint_as_float(x)))"
        if _is_narrow(self.result) or ".rs" in self.name:
            return self._packed()
        if _is_narrow(self.operand):
            text = f"{self.name} %0, %1;"
            if self.operand.name == "e2m1":  # two numbers are a byte, which no register class of inline assembly holds
                text = f"{{ .reg .b8 t, u; mov.b16 {{t, u}}, %1; {self.name} %0, t; }}"
            return f'{{ unsigned t; asm volatile("{text}" : "=r"(t) : "h"((unsigned short)(x))); y = t; }}'
        to, of = REGISTERS[self.result.name], REGISTERS[self.operand.name]
        kind = {"f": "float", "h": "unsigned short", "r": "unsigned"}[to]
        value = "__float_as_uint(t)" if to == "f" else "t"
        return f'{{ {kind} t; asm volatile("{self.name} %0, %1;" : "={to}"(t) : "{of}"({_read(self.operand)})); y = {value}; }}'

    def _packed(self) -> str:
        """Return the statement of a conversion of several f32 numbers: x becomes the lowest one of the result."""
        four, result = "x4." in self.name, self.result
        to = "h" if _is_narrow(result) and (not four or result.name == "e2m1") else "r"
        given = ("{%1, %1, %1, %2}" if four else "%1, %2") + ", %3" * (".rs" in self.name)
        text = f"{self.name} %0, {given};"
        if result.name == "e2m1" and not four:
            text = f"{{ .reg .b8 t; {self.name} t, {given}; cvt.u16.u8 %0, t; }}"
        bits = ', "r"(0)' * (".rs" in self.name)
        mask = " & 15" * (result.name == "e2m1")
        kind = {"h": "unsigned short", "r": "unsigned"}[to]
        operands = f'"f"(0.0f), "f"({_read(self.operand)}){bits}'
        return f'{{ {kind} t; asm volatile("{text}" : "={to}"(t) : {operands}); y = t{mask}; }}'

    def compile(self, target: str) -> Cubin:
        """Return the cubin of its kernel. Raises ToolMissing, and AccprobeError if the target lacks the instruction."""
        return compiler.compile_source(self.source, target, self.name)


def _is_narrow(fmt: Format) -> bool:
    return fmt.storage_bits == 8 and not fmt.is_integer


def _number(target: str) -> int:
    return int("".join(filter(str.isdigit, target)) or 0)


def _read(fmt: Format) -> str:
    """Return the expression of operand x in its register class."""
    if fmt.name == "f32":
        return "__uint_as_float(x)"
    return "(int)(signed char)(x)" if fmt.name == "s8" else "x"


def opcodes_of(cubin: Cubin) -> tuple[str, ...]:
    """Return the opcodes that compute, in order of appearance: `2×FMUL` for two. Raises ToolMissing without nvdisasm."""
    (function,) = functions(cubin.path, targets=False)
    kept = [opcode for opcode in function.opcodes if opcode.partition(".")[0] not in MOVES and opcode != "SHF.L.U64.HI"]
    return tuple(name if count == 1 else f"{count}×{name}" for name, count in Counter(kept).items())


def _special_functions() -> list[ScalarUnit]:
    f32, halves = FORMATS["f32"], (FORMATS["f16"], FORMATS["bf16"])
    named = {
        "ex2": "exp2",
        "lg2": "log2",
        "rcp": "reciprocal",
        "rsqrt": "rsqrt",
        "sqrt": "sqrt",
        "sin": "sin",
        "cos": "cos",
    }
    units = [
        ScalarUnit(f"{name}.approx{ftz}.f32", f32, f32, "special function", function)
        for name, function in named.items()
        for ftz in (".ftz", "")
    ]
    units.append(ScalarUnit("tanh.approx.f32", f32, f32, "special function", "tanh"))
    for fmt in halves:
        ftz = ".ftz" if fmt.name == "bf16" else ""
        units.append(ScalarUnit(f"ex2.approx{ftz}.{fmt}", fmt, fmt, "special function", "exp2"))
        units.append(ScalarUnit(f"tanh.approx.{fmt}", fmt, fmt, "special function", "tanh"))
    units += [ScalarUnit(f"{name}.rn.f32", f32, f32, "special function", named[name]) for name in ("rcp", "sqrt")]
    return units


def _conversions() -> list[ScalarUnit]:
    f32, f16, bf16, tf32 = (FORMATS[name] for name in ("f32", "f16", "bf16", "tf32"))
    units = []
    for to in (f16, bf16):
        units += [(f"cvt.{rounding}{relu}.{to}.f32", f32, to) for rounding in ("rn", "rz") for relu in ("", ".relu")]
    units.append(("cvt.rna.tf32.f32", f32, tf32))
    for to in (FORMATS["e4m3"], FORMATS["e5m2"]):
        units += [(f"cvt.rn.satfinite{relu}.{to}x2.f32", f32, to) for relu in ("", ".relu")]
        units.append((f"cvt.rn.f16x2.{to}x2", to, f16))
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        units += [(f"cvt.{rounding}{ftz}.{to}.f32", f32, FORMATS[to]) for to in ("s32", "u32") for ftz in ("", ".ftz")]
        units.append((f"cvt.{rounding}.s32.f16", f16, FORMATS["s32"]))
    for rounding in ("rn", "rz", "rm", "rp"):
        units += [(f"cvt.{rounding}.f32.{of}", FORMATS[of], f32) for of in ("s32", "u32")]
    units += [("cvt.f32.f16", f16, f32), ("cvt.f32.bf16", bf16, f32), ("cvt.rn.f16.s32", FORMATS["s32"], f16)]
    return [ScalarUnit(name, of, to, "conversion") for name, of, to in units]


def _conversions_of_blackwell() -> list[ScalarUnit]:
    f32, f16, bf16, scale = (FORMATS[name] for name in ("f32", "f16", "bf16", "ue8m0"))
    units = []
    for to in (FORMATS["e2m1"], FORMATS["e3m2"], FORMATS["e2m3"]):
        units += [(f"cvt.rn.satfinite{relu}.{to}x2.f32", f32, to) for relu in ("", ".relu")]
        units.append((f"cvt.rn.f16x2.{to}x2", to, f16))
    units += [(f"cvt.{r}{limit}.ue8m0x2.f32", f32, scale) for r in ("rz", "rp") for limit in ("", ".satfinite")]
    units.append(("cvt.rn.bf16x2.ue8m0x2", scale, bf16))
    units += [(f"cvt.rs.{to}x2.f32", f32, to) for to in (f16, bf16)]
    narrow = (FORMATS[name] for name in ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1"))
    units += [(f"cvt.rs.satfinite.{to}x4.f32", f32, to) for to in narrow]
    return [ScalarUnit(name, of, to, "conversion", since="sm_100a") for name, of, to in units]


SCALAR_UNITS: tuple[ScalarUnit, ...] = (*_special_functions(), *_conversions(), *_conversions_of_blackwell())
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

"""Additions, multiplications and fused multiply-adds of a GPU, and additions to memory, against IEEE 754.

Their operands are too many to try all: directed and random words are compared. The findings are what IEEE 754 leaves open or an
instruction changes: rounding, subnormal operands and results, saturation, the word of NaN.

Sources: IEEE 754-2019; PTX ISA, "Floating Point Instructions: add, mul, fma", "Half Precision Floating Point Instructions",
"Parallel Synchronization and Communication Instructions: red, atom".
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal

import numpy as np

from accprobe.build import compiler
from accprobe.build.cache import Cubin
from accprobe.build.probes import device_code
from accprobe.function.candidates import sample_words
from accprobe.function.quadratic import module_of
from accprobe.function.reference import ROUNDING_MODES, FormatConversion, RoundingMode, flush, unlike, values_of_words
from accprobe.function.units import STORAGE, opcodes_of
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.report.functions import FunctionRow

ArithmeticOperation = Literal["add", "mul", "fma"]
THREADS, BLOCKS = 256, 2112
# Random rows beside every pair of special words.
RANDOM_ROWS = 1 << 20
SPECIAL_WORDS = 160
# Rows from which the rules are inferred; all are compared.
RULE_ROWS = 1 << 15


@dataclass(frozen=True)
class ArithmeticUnit:
    """One instruction of two or three operands of a format. place: "register", or the memory that it adds to."""

    name: str
    operation: ArithmeticOperation
    fmt: Format
    place: Literal["register", "global", "shared"] = "register"

    @property
    def source(self) -> str:
        """Return the complete CUDA C++ of its kernel."""
        head = f"// {self.name}\nusing Word = {STORAGE[self.fmt.storage_bits]};\n"
        return f"{head}#define {self._macro()}\n{device_code('arithmetic.cu')}"

    def _macro(self) -> str:
        register, read = ("f", "__uint_as_float") if self.fmt.name == "f32" else ("h", "")
        if self.place != "register":
            pointer = '"l"(p)' if self.place == "global" else '"r"((unsigned)__cvta_generic_to_shared(p))'
            macro = "REDUCE" if self.place == "global" else "REDUCE_SHARED"
            return f'{macro}(p, x) asm volatile("{self.name} [%0], %1;" :: {pointer}, "{register}"({read}(x)) : "memory")'
        names = "abc" if self.operation == "fma" else "ab"
        operands = ", ".join(f'"{register}"({read}({name}))' for name in names)
        places = ", ".join(f"%{i + 1}" for i in range(len(names)))
        kind, value = ("float", "__float_as_uint(t)") if register == "f" else ("unsigned short", "t")
        return (
            f'APPLY(y, a, b, c) {{ {kind} t; asm volatile("{self.name} %0, {places};" : "={register}"(t) : {operands});'
            f" y = {value}; }}"
        )

    def compile(self, target: str) -> Cubin:
        """Return the cubin of its kernel. Raises ToolMissing, and AccprobeError if the target lacks the instruction."""
        return compiler.compile_source(self.source, target, self.name)


def _units() -> Iterator[ArithmeticUnit]:
    f32, f16, bf16 = FORMATS["f32"], FORMATS["f16"], FORMATS["bf16"]
    operations: tuple[ArithmeticOperation, ...] = ("add", "mul", "fma")
    for operation, rounding, ftz in product(operations, ("rn", "rz", "rm", "rp"), ("", ".ftz")):
        yield ArithmeticUnit(f"{operation}.{rounding}{ftz}.f32", operation, f32)
    for operation in operations:
        yield ArithmeticUnit(f"{operation}.rn.sat.f32", operation, f32)
        yield ArithmeticUnit(f"{operation}.rn.f16", operation, f16)
        yield ArithmeticUnit(f"{operation}.rn.ftz.f16", operation, f16)
        yield ArithmeticUnit(f"{operation}.rn.bf16", operation, bf16)
    yield ArithmeticUnit("fma.rn.relu.f16", "fma", f16)
    yield ArithmeticUnit("fma.rn.relu.bf16", "fma", bf16)
    yield ArithmeticUnit("red.global.add.f32", "add", f32, "global")
    yield ArithmeticUnit("red.global.add.noftz.f16", "add", f16, "global")
    yield ArithmeticUnit("red.global.add.noftz.bf16", "add", bf16, "global")
    yield ArithmeticUnit("red.shared.add.f32", "add", f32, "shared")


ARITHMETIC_UNITS: tuple[ArithmeticUnit, ...] = tuple(_units())


@dataclass(frozen=True)
class Rules:
    """Deviations of an instruction from the exact value. saturated: results are clamped to [0, 1], and NaN becomes 0."""

    rounding: RoundingMode = "RNE"
    flushed_operands: bool = False
    flushed: bool = False
    saturated: bool = False
    relu: bool = False
    nan: int = 0

    def words(self, operation: ArithmeticOperation, operands: tuple[Any, ...], fmt: Format) -> Any:
        """Return the words of results, int64."""
        a, b, *c = (self._read(each, fmt) for each in operands[: 3 if operation == "fma" else 2])
        with np.errstate(all="ignore"):
            first, second = (a, b) if operation == "add" else (a * b, c[0] if c else None)
            values = first if second is None else _odd_sum(first, second)
            values = self._signed_zero(values, first, second)
        found = FormatConversion(self.rounding, _overflow(self.rounding), nan=self.nan, flushed=self.flushed).words(values, fmt)
        return self._limited(self._toward_zero(found, values, fmt), values, fmt)

    def _read(self, words: Any, fmt: Format) -> Any:
        values = values_of_words(words, fmt)
        return flush(values, fmt) if self.flushed_operands else values

    def _signed_zero(self, values: Any, first: Any, second: Any) -> Any:
        """Return sums whose exact zeros of two signs are negative when rounding down."""
        if second is None or self.rounding != "RD":
            return values
        xp = module_of(values)
        return xp.where((values == 0) & (xp.signbit(first) != xp.signbit(second)), -0.0, values)

    def _toward_zero(self, words: Any, values: Any, fmt: Format) -> Any:
        """Return words whose overflow stays finite on the side that the rounding turns away from."""
        xp = module_of(values)
        kept = {"RD": ~xp.signbit(values), "RU": xp.signbit(values)}.get(self.rounding)
        infinity = fmt.infinity or 0
        if kept is None:
            return words
        return xp.where(kept & xp.isfinite(values) & (words & fmt.sign_bit - 1 == infinity), words - 1, words)

    def _limited(self, words: Any, values: Any, fmt: Format) -> Any:
        xp = module_of(values)
        if self.relu:
            words = xp.where(xp.signbit(values) & ~xp.isnan(values), 0, words)
        if self.saturated:
            one = fmt.bias << fmt.mantissa_bits
            words = xp.where(xp.isnan(values) | xp.signbit(values), 0, xp.minimum(words, one))
        return words


def _overflow(rounding: RoundingMode) -> Literal["infinity", "largest"]:
    return "largest" if rounding == "RZ" else "infinity"


def _odd_sum(a: Any, b: Any) -> Any:
    """Return a + b rounded to odd in float64, so that a later rounding to fewer bits is the correct one.

    The error of the sum is exact (Knuth's TwoSum); if it is not zero, an even sum moves one step toward it.
    """
    xp = module_of(a)
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    bits = total.view(np.int64)
    step = xp.where((error > 0) == (total > 0), 1, -1)
    moved = (bits + step).view(np.float64)
    inexact = xp.isfinite(error) & (error != 0) & (bits & 1 == 0)
    return xp.where(inexact, moved, total)


class GpuArithmetic:
    """An arithmetic instruction on a GPU."""

    def __init__(self, unit: ArithmeticUnit, index: int = 0) -> None:
        from accprobe.devices.cuda import CudaDevice

        self.unit, self.device = unit, f"cuda:{index}"
        self._gpu = CudaDevice(index)
        self.cubin = unit.compile(self._gpu.architecture)

    @cached_property
    def _kernel(self) -> Any:
        with self._gpu.lend(f"failed to load {self.unit.name}") as cupy:
            return cupy.RawModule(path=str(self.cubin.path)).get_function("apply")

    def words(self, *operands: Bits) -> Bits:
        """Return the results of three arrays of words."""
        with self._gpu.lend(f"failed to run {self.unit.name}") as cupy:
            given = [cupy.asarray(each) for each in operands]
            results = cupy.zeros_like(given[0])
            self._kernel((BLOCKS,), (THREADS,), (*given, results, results.size))
            return np.asarray(results.get())


def measure_arithmetic(subject: Any, seed: int = 0) -> FunctionRow:
    """Return the row of an arithmetic instruction. subject: has `unit` and `words(a, b, c)`."""
    started, unit = time.monotonic(), subject.unit
    operands = arithmetic_operands(unit.fmt, seed)
    results = subject.words(*operands)
    some = slice(None, None, len(results) // RULE_ROWS)
    rules = infer_rules(unit, tuple(each[some] for each in operands), results[some])
    wrong = np.flatnonzero(unlike(results, rules.words(unit.operation, operands, unit.fmt), unit.fmt, any_nan=False))
    return FunctionRow(
        name=unit.name,
        operand=unit.fmt.name,
        result=unit.fmt.name,
        status="inferred" if len(wrong) else "confirmed",
        reason=f"{len(wrong):,} of {len(results):,} results differ from the model" if len(wrong) else "",
        opcodes=opcodes_of(subject.cubin),
        computes=in_words(unit, rules),
        words=len(results),
        of=1 << unit.fmt.storage_bits * (3 if unit.operation == "fma" else 2),
        mismatches=len(wrong),
        counterexamples=tuple(_counterexample(unit, operands, results, rules, int(i)) for i in wrong[:4]),
        device=subject.device,
        seconds=round(time.monotonic() - started, 3),
    )


def arithmetic_operands(fmt: Format, seed: int) -> tuple[Bits, ...]:
    """Return rows of a, b and c: every pair of special words, random words, and words whose exponents are near."""
    rng = np.random.default_rng(seed)
    some = sample_words(fmt)
    special = np.concatenate([some[: SPECIAL_WORDS // 2], some[len(some) // 2 :][: SPECIAL_WORDS // 2]])
    pairs = np.array([*product(special, special)], fmt.dtype)
    a, b, c = rng.integers(0, 1 << fmt.storage_bits, (3, RANDOM_ROWS)).astype(fmt.dtype)
    shift = fmt.mantissa_bits
    near = a + (rng.integers(-26, 27, RANDOM_ROWS) << shift).astype(fmt.dtype)
    b = np.where(rng.random(RANDOM_ROWS) < 0.5, near ^ b & fmt.dtype.type((1 << shift) - 1 | fmt.sign_bit), b)
    third = rng.choice(special, len(pairs))
    return tuple(np.concatenate(each) for each in ((pairs[:, 0], a), (pairs[:, 1], b), (third, c)))


def infer_rules(unit: ArithmeticUnit, operands: tuple[Bits, ...], results: Bits) -> Rules:
    """Return the rules that explain most results, field by field."""
    nans = np.unique(results[_is_nan(results, unit.fmt)])
    best = Rules(nan=int(nans[0]) if len(nans) else 0)

    def wrong(rules: Rules) -> int:
        return int((rules.words(unit.operation, operands, unit.fmt) != results).sum())

    for _ in range(2):  # a second turn, as a field may show only with another
        for field, choices in _CHOICES.items():
            best = min((replace(best, **{field: choice}) for choice in choices), key=wrong)
    return best


_CHOICES: dict[str, tuple[Any, ...]] = {
    "relu": (False, True),
    "saturated": (False, True),
    "rounding": ROUNDING_MODES[:4],
    "flushed_operands": (False, True),
    "flushed": (False, True),
}


def _is_nan(words: Bits, fmt: Format) -> Any:
    return np.isnan(values_of_words(words, fmt))


def in_words(unit: ArithmeticUnit, rules: Rules) -> str:
    """Return "a · b + c, rounded once (RNE), subnormal operands and results flushed, NaN 0x7fffffff"."""
    exact = {"add": "a + b", "mul": "a · b", "fma": "a · b + c"}[unit.operation]
    flushed = " and ".join(name for name, is_so in (("operands", rules.flushed_operands), ("results", rules.flushed)) if is_so)
    parts = (
        f"{exact}, rounded once ({rules.rounding})",
        f"subnormal {flushed} flushed" if flushed else "subnormal numbers kept",
        "negative results become 0" if rules.relu else "",
        "clamped to [0, 1]" if rules.saturated else "",
        "" if rules.saturated else f"NaN 0x{rules.nan:0{unit.fmt.storage_bits // 4}x}",
        "one writer; the order of several is unspecified" if unit.place != "register" else "",
    )
    return ", ".join(filter(None, parts))


def _counterexample(unit: ArithmeticUnit, operands: tuple[Bits, ...], results: Bits, rules: Rules, row: int) -> str:
    digits = unit.fmt.storage_bits // 4
    names = "abc" if unit.operation == "fma" else "ab"
    given = tuple(each[row : row + 1] for each in operands)
    shown = ", ".join(f"{name} = 0x{int(each[0]):0{digits}x}" for name, each in zip(names, given, strict=False))
    expected = int(rules.words(unit.operation, given, unit.fmt)[0])
    return f"{shown}: 0x{int(results[row]):0{digits}x}, expected 0x{expected:0{digits}x}"

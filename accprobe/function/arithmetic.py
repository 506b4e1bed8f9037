"""Additions, multiplications, minima and maxima of a GPU, and additions to memory, against IEEE 754.

Their operands are too many to try all: directed and random words are compared. The findings are what IEEE 754 leaves open or an
instruction changes: rounding, subnormal operands and results, saturation, the word of NaN.

Sources: IEEE 754-2019; PTX ISA, "Floating Point Instructions: add, mul, fma, div, min, max", "Half Precision Floating Point
Instructions", "Parallel Synchronization and Communication Instructions: red", "Data Movement and Conversion Instructions:
cp.reduce.async.bulk".
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accprobe.build import compiler
from accprobe.build.cache import Cubin
from accprobe.build.probes import device_code
from accprobe.function.candidates import sample_words
from accprobe.function.model import FunctionModel
from accprobe.function.quadratic import module_of
from accprobe.function.records import model_of
from accprobe.function.reference import ROUNDING_MODES, FormatConversion, RoundingMode, flush, unlike, values_of_words
from accprobe.function.units import STORAGE, opcodes_of
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.report.claims import status_of
from accprobe.report.functions import FunctionRow, TableModelRecord
from accprobe.report.report import Report
from accprobe.verify.outcome import Verification

ArithmeticOperation = Literal["add", "mul", "fma", "div", "min", "max"]
Place = Literal["register", "global", "shared", "bulk"]
THREADS, BLOCKS = 256, 2112
# Random rows beside every pair of special words.
RANDOM_ROWS = 1 << 20
SPECIAL_WORDS = 160
# Rows from which the rules are inferred; all are compared.
RULE_ROWS = 1 << 15

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
    place: Place = "register"
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
    yield ArithmeticUnit("add.rn.f64", "add", f64)  # numpy has no fused multiply-add to compare fma.rn.f64 with
    yield ArithmeticUnit("mul.rn.f64", "mul", f64)
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
    places: tuple[Place, ...] = ("global", "shared")
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


@dataclass(frozen=True)
class Rules:
    """Deviations of an instruction from the exact value. saturated: results are clamped to [0, 1], and NaN becomes 0.

    nan_wins: a minimum or maximum of a number and NaN is NaN. payload: the operand whose NaN a result keeps, also of two NaNs;
    quieted: with its quiet bit set. tiny_before: results count as subnormal by the exact value, not after IEEE 754's rounding.
    reciprocal: a division multiplies by that of the special function unit, for small or large divisors with operands scaled.
    """

    rounding: RoundingMode = "RNE"
    flushed_operands: bool = False
    flushed: bool = False
    saturated: bool = False
    relu: bool = False
    nan: int = 0
    nan_wins: bool = False
    payload: Literal["", "first", "second"] = ""
    quieted: bool = True
    tiny_before: bool = False
    reciprocal: Literal["", "plain", "small", "large", "small and large"] = ""

    def words(self, operation: ArithmeticOperation, operands: tuple[Any, ...], fmt: Format) -> Any:
        """Return the words of results: int64, for f64 uint64."""
        a, b, *c = (self._read(each, fmt) for each in operands[: operands_of(operation)])
        with np.errstate(all="ignore"):
            if operation in ("min", "max"):
                values = self._extreme(operation, a, b)
            elif operation == "div":
                values = self._quotient(a, b) if self.reciprocal else a / b
            elif fmt.name == "f64":
                values = a + b if operation == "add" else a * b
            else:
                first, second = (a, b) if operation == "add" else (a * b, c[0] if c else None)
                values = first if second is None else _odd_sum(first, second)
                values = self._signed_zero(values, first, second)
        if fmt.name == "f64":
            return self._with_payload(values, *operands[:2])
        conversion = FormatConversion(self.rounding, _overflow(self.rounding), nan=self.nan)
        found = conversion.words(values, fmt)
        if self.flushed:
            found = module_of(found).where(self._tiny(values, conversion, fmt), found & fmt.sign_bit, found)
        return self._limited(self._toward_zero(found, values, fmt), values, fmt)

    def _tiny(self, values: Any, conversion: FormatConversion, fmt: Format) -> Any:
        """Mark values below the normal numbers: exactly, or rounded to the format's digits with an unbounded exponent."""
        if self.tiny_before:
            return module_of(values).abs(values) < 2.0**fmt.min_exponent
        twice = conversion.words(2 * values, fmt) & fmt.sign_bit - 1  # those at the limit are rounded as normal numbers
        return twice < 2 << fmt.mantissa_bits

    def _read(self, words: Any, fmt: Format) -> Any:
        values = values_of_words(words, fmt)
        return flush(values, fmt) if self.flushed_operands else values

    def _extreme(self, operation: ArithmeticOperation, a: Any, b: Any) -> Any:
        """Return the minimum or maximum; -0 is smaller than +0."""
        xp = module_of(a)
        chosen = xp.fmin(a, b) if operation == "min" else xp.fmax(a, b)
        negative = xp.signbit(a) | xp.signbit(b) if operation == "min" else xp.signbit(a) & xp.signbit(b)
        chosen = xp.where((a == 0) & (b == 0), xp.where(negative, -0.0, 0.0), chosen)
        return xp.where(xp.isnan(a) | xp.isnan(b), xp.nan, chosen) if self.nan_wins else chosen

    def _quotient(self, a: Any, b: Any) -> Any:
        """Return exact products of a and the recorded reciprocal of b, both f32."""
        xp, f32 = module_of(a), FORMATS["f32"]
        size = xp.abs(b)
        for is_scaled, where, factor in (
            ("small" in self.reciprocal, size < SMALL_DIVISOR, 2.0**24),
            ("large" in self.reciprocal, size > LARGE_DIVISOR, 0.25),
        ):
            if is_scaled:
                a, b = (xp.where(where, (x * factor).astype(np.float32).astype(np.float64), x) for x in (a, b))
        inverse = _reciprocal().words(b.astype(np.float32).view(np.uint32))
        return a * values_of_words(inverse, f32)

    def _with_payload(self, values: Any, a: Any, b: Any) -> Any:
        """Return the words of f64 results, whose NaN is one word or that of an operand."""
        xp, f64 = module_of(values), FORMATS["f64"]
        nan = xp.full(values.shape, self.nan, np.uint64)
        for operand in {"": (), "first": (b, a), "second": (a, b)}[self.payload]:
            nan = xp.where(_is_nan(operand, f64), operand | np.uint64(self.quieted << 51), nan)
        return xp.where(xp.isnan(values), nan, values.view(np.uint64))

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


# Limits of |b| between which a quotient is not scaled, read in SASS of sm_90a.
SMALL_DIVISOR, LARGE_DIVISOR = 2.0**-126, 2.0**126


@cache
def _reciprocal() -> FunctionModel:
    """Return the recorded model of the special function unit's reciprocal."""
    (row,) = (row for row in Report.load("functions-h200").functions if row.name == "rcp.approx.ftz.f32")
    assert isinstance(row.model, TableModelRecord)
    return model_of(row.model)


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
            results = given[1].copy()  # the memory that `bulk` adds to
            self._kernel((BLOCKS,), (THREADS,), (*given, results, results.size // self.unit.lanes))
            return np.asarray(results.get())


def measure_arithmetic(subject: Any, seed: int = 0) -> FunctionRow:
    """Return the row of an arithmetic instruction. subject: has `unit` and `words(a, b, c)`."""
    started, unit = time.monotonic(), subject.unit
    operands = arithmetic_operands(unit.fmt, seed)
    results = subject.words(*operands)
    rules, wrong = _rules_of_all(unit, operands, results)
    verification = Verification(
        compared=len(results),
        mismatches=len(wrong),
        seed=seed,
        mismatch=_counterexample(unit, operands, results, rules, int(wrong[0])) if len(wrong) else "",
        of=1 << unit.fmt.storage_bits * operands_of(unit.operation),
    )
    status, reason = status_of(verification)
    return FunctionRow(
        name=unit.name,
        operand=unit.fmt.name,
        result=unit.fmt.name,
        status=status,
        reason=reason,
        opcodes=opcodes_of(subject.cubin),
        computes=in_words(unit, rules),
        verification=verification,
        device=subject.device,
        seconds=round(time.monotonic() - started, 3),
    )


def arithmetic_operands(fmt: Format, seed: int) -> tuple[Bits, ...]:
    """Return rows of a, b and c: every pair of special words, random words, and words whose exponents are near."""
    rng = np.random.default_rng(seed)
    special = _special_words(fmt)
    pairs = np.array([*product(special, special)], fmt.dtype)
    if fmt.name == "f64":
        a, b, c = rng.integers(0, 1 << 64, (3, RANDOM_ROWS), np.uint64)
    else:
        a, b, c = rng.integers(0, 1 << fmt.storage_bits, (3, RANDOM_ROWS)).astype(fmt.dtype)
    shift = fmt.mantissa_bits
    near = a + (rng.integers(-26, 27, RANDOM_ROWS) << shift).astype(fmt.dtype)
    b = np.where(rng.random(RANDOM_ROWS) < 0.5, near ^ b & fmt.dtype.type((1 << shift) - 1 | fmt.sign_bit), b)
    third = rng.choice(special, len(pairs))
    return tuple(np.concatenate(each) for each in ((pairs[:, 0], a), (pairs[:, 1], b), (third, c)))


def _special_words(fmt: Format) -> Bits:
    if fmt.name == "f64":
        exponents = (0, 1, 2, 511, 969, 970, 971, 1022, 1023, 1024, 1075, 2045, 2046, 2047)
        words = [(exponent << 52) + step for exponent in exponents for step in (-1, 0, 1) if exponent or step >= 0]
        return np.array([word | sign for sign in (0, 1 << 63) for word in words], np.uint64)
    some = sample_words(fmt)
    return np.concatenate([some[: SPECIAL_WORDS // 2], some[len(some) // 2 :][: SPECIAL_WORDS // 2]])


def _rules_of_all(unit: ArithmeticUnit, operands: tuple[Bits, ...], results: Bits) -> tuple[Rules, NDArray[np.int64]]:
    """Return the rules and the rows that they do not explain.

    They are inferred from a sample of rows, and again with the first rows that they do not explain.
    """
    nan, some = _nan_word(unit, operands, results), np.arange(0, len(results), max(1, len(results) // RULE_ROWS))
    found: list[tuple[Rules, NDArray[np.int64]]] = []
    for _ in range(2):
        rules = infer_rules(unit, tuple(each[some] for each in operands), results[some], nan)
        expected = rules.words(unit.operation, operands, unit.fmt)
        found.append((rules, np.flatnonzero(unlike(results, expected, unit.fmt, any_nan=False))))
        if not len(found[-1][1]):
            break
        some = np.union1d(some, found[-1][1][:RULE_ROWS])
    return min(found, key=lambda each: len(each[1]))


def _nan_word(unit: ArithmeticUnit, operands: tuple[Bits, ...], results: Bits) -> int:
    """Return the commonest NaN among results, of operands without NaN if there are such; 0 without any."""
    nan = _is_nan(results, unit.fmt)
    created = nan.copy()
    for operand in operands[: operands_of(unit.operation)]:
        created &= ~_is_nan(operand, unit.fmt)
    words, counts = np.unique(results[created if created.any() else nan], return_counts=True)
    return int(words[counts.argmax()]) if len(words) else 0


def infer_rules(unit: ArithmeticUnit, operands: tuple[Bits, ...], results: Bits, nan: int) -> Rules:
    """Return the rules that explain most results, field by field."""
    best = Rules(nan=nan)

    def wrong(rules: Rules) -> int:
        return int((rules.words(unit.operation, operands, unit.fmt) != results).sum())

    for _ in range(2):  # a second turn, as a field may show only with another
        for field, choices in _choices(unit).items():
            best = min((replace(best, **{field: choice}) for choice in choices), key=wrong)
    return best


def _choices(unit: ArithmeticUnit) -> dict[str, tuple[Any, ...]]:
    """Return the values of the rules' fields that may show in results of a unit, in the order of inference."""
    flag = (False, True)
    if unit.fmt.name == "f64":
        return {"nan_wins": flag, "payload": ("", "first", "second"), "quieted": (True, False)}
    flushes = {"flushed_operands": flag, "flushed": flag, "tiny_before": flag}
    if unit.operation in ("min", "max"):
        return {"nan_wins": flag, **flushes}
    if unit.operation == "div":
        return {"reciprocal": ("", "plain", "small", "large", "small and large"), **flushes}
    return {"relu": flag, "saturated": flag, "rounding": ROUNDING_MODES[:4], **flushes}


def _is_nan(words: Bits, fmt: Format) -> Any:
    return np.isnan(values_of_words(words, fmt))


def in_words(unit: ArithmeticUnit, rules: Rules) -> str:
    """Return "a · b + c, rounded once (RNE), subnormal operands and results flushed, NaN 0x7fffffff"."""
    operation = {
        "add": f"a + b, rounded once ({rules.rounding})",
        "mul": f"a · b, rounded once ({rules.rounding})",
        "fma": f"a · b + c, rounded once ({rules.rounding})",
        "div": f"{'a · rcp.approx.ftz(b)' if rules.reciprocal else 'a / b'}, rounded once ({rules.rounding})",
        "min": "minimum of a and b",
        "max": "maximum of a and b",
    }[unit.operation]
    wins = "NaN if one is NaN" if rules.nan_wins else "the number if one is NaN"
    kept = "" if rules.quieted else ", not quieted"
    nan = f"NaN of the {rules.payload} operand{kept}" if rules.payload else f"NaN 0x{rules.nan:0{unit.fmt.storage_bits // 4}x}"
    flushed = " and ".join(name for name, is_so in (("operands", rules.flushed_operands), ("results", rules.flushed)) if is_so)
    before = " before rounding" if rules.flushed and rules.tiny_before else ""
    parts = (
        operation,
        wins if unit.operation in ("min", "max") else "",
        "a and b · 2^24 for |b| < 2^-126" if "small" in rules.reciprocal else "",
        "a and b · 2^-2 for |b| > 2^126" if "large" in rules.reciprocal else "",
        f"subnormal {flushed} flushed{before}" if flushed else "subnormal numbers kept",
        "negative results become 0" if rules.relu else "",
        "clamped to [0, 1]" if rules.saturated else "",
        "" if rules.saturated else nan,
        "one writer; the order of several is unspecified" if unit.place != "register" else "",
    )
    return ", ".join(filter(None, parts))


def _counterexample(unit: ArithmeticUnit, operands: tuple[Bits, ...], results: Bits, rules: Rules, row: int) -> str:
    digits = unit.fmt.storage_bits // 4
    names = "abc"[: operands_of(unit.operation)]
    given = tuple(each[row : row + 1] for each in operands)
    shown = ", ".join(f"{name} = 0x{int(each[0]):0{digits}x}" for name, each in zip(names, given, strict=False))
    expected = int(rules.words(unit.operation, given, unit.fmt)[0])
    return f"{shown}: 0x{int(results[row]):0{digits}x}, expected 0x{expected:0{digits}x}"

"""The rules of an arithmetic instruction: rounding, subnormal numbers, saturation and NaN, from directed and random words.

The operands are too many to try all. The rules are what IEEE 754 leaves open or an instruction changes.

Source: IEEE 754-2019.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import rounded_to_odd
from accprobe.evaluate.evaluator import evaluate
from accprobe.function.arithmetic import ArithmeticOperation, ArithmeticUnit, operands_of
from accprobe.function.candidates import sample_words
from accprobe.function.quadratic import module_of
from accprobe.function.records import measured_row, recorded_models
from accprobe.function.reference import (
    ROUNDING_MODES,
    FormatConversion,
    RoundingMode,
    fit_fields,
    flush,
    single,
    unlike,
    values_of_words,
    words_of_singles,
)
from accprobe.function.units import opcodes_of
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import Chain, ProductModel, multiply_add
from accprobe.operands.request import Request
from accprobe.records.functions import FunctionRow
from accprobe.records.verification import Verification

Doubles = NDArray[np.float64]

# Random rows beside every pair of special words.
RANDOM_ROWS = 1 << 20
SPECIAL_WORDS = 160
# Rows from which the rules are inferred; all are compared.
RULE_ROWS = 1 << 15


@dataclass(frozen=True)
class Rules:
    """Deviations of an instruction from the exact value. saturated: results are clamped to [0, 1], and NaN becomes 0.

    nan_wins: a minimum or maximum of a number and NaN is NaN. payload: the operands that a result keeps the NaN of, "ba": b's
    before a's; quieted: with its quiet bit set. tiny_before: results count as subnormal by the exact value, not after IEEE
    754's rounding. reciprocal: a division multiplies by the special function unit's reciprocal, for small or large divisors
    with operands scaled.
    """

    rounding: RoundingMode = "RNE"
    flushed_operands: bool = False
    flushed: bool = False
    saturated: bool = False
    relu: bool = False
    nan: int = 0
    nan_wins: bool = False
    payload: str = ""
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
                values = approximate_quotient(a, b, self.reciprocal) if self.reciprocal else a / b
            elif fmt.name == "f64":
                values = _fused_doubles(*operands) if c else a + b if operation == "add" else a * b
            else:
                first, second = (a, b) if operation == "add" else (a * b, c[0] if c else None)
                values = first if second is None else rounded_to_odd(first, second)
                values = self._signed_zero(values, first, second)
        if fmt.name == "f64":
            return self._with_payload(values, operands)
        conversion = FormatConversion(self.rounding, "IEEE 754", nan=self.nan, relu=self.relu)
        found = conversion.words(values, fmt)
        if self.flushed:
            found = module_of(found).where(self._tiny(values, conversion, fmt), found & fmt.sign_bit, found)
        if not self.saturated:
            return found
        xp = module_of(values)
        return xp.where(xp.isnan(values) | xp.signbit(values), 0, xp.minimum(found, fmt.bias << fmt.mantissa_bits))

    def _tiny(self, values: Any, conversion: FormatConversion, fmt: Format) -> Any:
        """Mark values below the normal numbers: exactly, or rounded to the format's digits with an unbounded exponent."""
        if self.tiny_before:
            return module_of(values).abs(values) < 2.0**fmt.min_exponent
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes quiet
            doubled = 2 * values
        twice = conversion.words(doubled, fmt) & fmt.sign_bit - 1  # those at the limit are rounded as normal numbers
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

    def _with_payload(self, values: Any, operands: tuple[Any, ...]) -> Any:
        """Return the words of f64 results. A NaN is one word, or an operand's NaN."""
        xp, f64 = module_of(values), FORMATS["f64"]
        nan = xp.full(values.shape, self.nan, np.uint64)
        for letter in reversed(self.payload):
            operand = operands["abc".index(letter)]
            nan = xp.where(_is_nan(operand, f64), operand | np.uint64(self.quieted << 51), nan)
        return xp.where(xp.isnan(values), nan, values.view(np.uint64))

    def _signed_zero(self, values: Any, first: Any, second: Any) -> Any:
        """Return sums: exact zeros of two signs are negative when rounding down."""
        if second is None or self.rounding != "RD":
            return values
        xp = module_of(values)
        return xp.where((values == 0) & (xp.signbit(first) != xp.signbit(second)), -0.0, values)


# Limits of |b| between which a quotient is not scaled, read in SASS of sm_90a.
SMALL_DIVISOR, LARGE_DIVISOR = 2.0**-126, 2.0**126


def approximate_quotient(a: Any, b: Any, scaled: str = "small and large") -> Any:
    """Return exact products of a and the recorded reciprocal of b, both f32: before its rounding, the quotient of div.full.f32.

    scaled: the divisors for which both operands are scaled.
    """
    size = module_of(b).abs(b)
    for word, where, factor in (("small", size < SMALL_DIVISOR, 2.0**24), ("large", size > LARGE_DIVISOR, 0.25)):
        if word in scaled:
            a, b = (module_of(b).where(where, single(x * factor), x) for x in (a, b))
    return a * values_of_words(recorded_models()["rcp.approx.ftz.f32"].words(words_of_singles(b)), FORMATS["f32"])


_F64 = FORMATS["f64"]
_FUSED = ProductModel(_F64, _F64, 1, multiply_add(_F64), Chain(0, 1, (0,)), _F64)


def _fused_doubles(a: Bits, b: Bits, c: Bits) -> Doubles:
    """Return a · b + c of f64 words, rounded once."""
    found: Doubles = evaluate(_FUSED.step, _FUSED.instruction, Request(a[:, None], b[:, None], c)).view(np.float64)
    return found


def measure_arithmetic(subject: Any, seed: int = 0) -> FunctionRow:
    """Return the row of an arithmetic instruction. subject: has `unit`, `device`, `cubin` and `words(a, b, c)`."""
    started, unit = time.monotonic(), subject.unit
    operands = arithmetic_operands(unit.fmt, seed)
    if unit.operation == "fma" and unit.fmt.name == "f64":
        operands = _near_products(operands, seed)
    results = subject.words(*operands)
    rules, wrong = _rules_of_all(unit, operands, results)
    verification = Verification(
        compared=len(results),
        mismatches=len(wrong),
        seed=seed,
        mismatch=_counterexample(unit, operands, results, rules, int(wrong[0])) if len(wrong) else "",
        of=1 << unit.fmt.storage_bits * operands_of(unit.operation),
    )
    row = {"name": unit.name, "opcodes": opcodes_of(subject.cubin), "computes": in_words(unit, rules)}
    return measured_row(subject, (unit.fmt, unit.fmt), verification, started, **row)


def arithmetic_operands(fmt: Format, seed: int) -> tuple[Bits, ...]:
    """Return rows of a, b and c: every pair of special words, random words, and words with near exponents."""
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


def _near_products(operands: tuple[Bits, ...], seed: int) -> tuple[Bits, ...]:
    """Return rows of f64 operands. In half of the rows, a · b and c have near exponents."""
    a, b, c = operands
    rng, fraction, exponents = np.random.default_rng(seed), np.uint64((1 << 52) - 1), np.uint64(2047 << 52)
    of_product = sum((each & exponents).view(np.int64) >> 52 for each in (a, b)) - 1023
    near = (of_product + rng.integers(-110, 111, len(c))).clip(0, 2046).view(np.uint64) << np.uint64(52)
    moved = c & (fraction | np.uint64(1 << 63)) | near
    return a, b, np.where(rng.random(len(c)) < 0.5, moved, c)


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
        best = fit_fields(best, _choices(unit), wrong)
    return best


def _choices(unit: ArithmeticUnit) -> dict[str, tuple[Any, ...]]:
    """Return the values of the rules' fields that may show in results of a unit, in the order of inference."""
    flag = (False, True)
    if unit.fmt.name == "f64":
        nan_wins = {"nan_wins": flag} if unit.operation in ("min", "max") else {}
        orders = permutations("abc"[: operands_of(unit.operation)])
        return {**nan_wins, "payload": ("", *map("".join, orders)), "quieted": (True, False)}
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
    of_two = {"ab": "the first operand", "ba": "the second operand"}
    whose = of_two.get(rules.payload, " before ".join(rules.payload))
    nan = f"NaN of {whose}{kept}" if rules.payload else f"NaN 0x{rules.nan:0{unit.fmt.storage_bits // 4}x}"
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

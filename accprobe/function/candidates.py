"""Explanations of a function: hypotheses, the reference function that it is near to, and one rounding of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from accprobe.function.quadratic import module_of
from accprobe.function.reference import (
    FUNCTIONS,
    OVERFLOWS,
    ROUNDING_MODES,
    FormatConversion,
    errors_in_ulp,
    exact_values,
    fit_fields,
    leading_bits,
    reference,
    special_words,
    unlike,
    values_of_words,
)
from accprobe.isa.formats import Bits, Format
from accprobe.records.functions import ConversionRecord, TableModelRecord

# A reference function is recognised if this share of the results is within so many units in the last place.
RECOGNISED, WITHIN = 0.9, 64.0
# Random words of the sample on which candidates are tried first.
RANDOM_WORDS = 1 << 14


@dataclass(frozen=True)
class Hypothesis:
    """words: operand words to result words; in_words: as a report has it. any_nan: it does not say which NaN a result is.

    record: what a report keeps of it, to predict results.
    """

    in_words: str
    words: Callable[[Any], Any]
    any_nan: bool = False
    record: TableModelRecord | ConversionRecord | None = None

    def count_wrong(self, operands: Any, results: Any, result: Format) -> int:
        return int(unlike(results, self.words(operands), result, self.any_nan).sum())


def sample_words(fmt: Format) -> Bits:
    """Return every word of at most 16 bits; else words around powers of two and borders of formats, and random ones."""
    end = 1 << fmt.bits + fmt.ignored_low_bits
    if end <= 1 << 16:
        return np.arange(end, dtype=np.int64).astype(fmt.dtype)
    rng = np.random.default_rng(0)
    near = [1 << bit for bit in range(fmt.storage_bits)]
    if fmt.is_float:
        exponents = np.arange(1 << fmt.exponent_bits) << fmt.mantissa_bits + fmt.ignored_low_bits
        small = np.arange(1 << 13, dtype=np.int64) * (end >> 13)  # f16 numbers, and halves between fp8 ones
        near += [int(word) for word in exponents] + [int(word) for word in small]
    words = np.concatenate(
        [np.array([word + step for word in near for step in (-1, 0, 1)]), rng.integers(0, end, RANDOM_WORDS)]
    )
    words = np.concatenate([words, words | fmt.sign_bit]) if fmt.is_float else words
    return (words % end).astype(fmt.dtype)


def recognise_function(operands: Bits, results: Bits, operand: Format, result: Format) -> str:
    """Return the reference function that most results are near to; "" if there is none. Results have a float format."""
    values, best = values_of_words(operands, operand), ("", WITHIN)
    for name in FUNCTIONS:
        ulps = errors_in_ulp(results, reference(name, values), result)
        known = np.isfinite(ulps)
        if known.sum() < 16 or (ulps[known] <= WITHIN).mean() < RECOGNISED:
            continue
        mean = float(np.minimum(ulps[known], WITHIN).mean())
        if mean < best[1]:
            best = (name, mean)
    return best[0]


def fit_rounding(name: str, operands: Bits, results: Bits, operand: Format, result: Format) -> Hypothesis:
    """Return the rounding of a reference function that explains most of the sample, field by field."""
    exact = {flushed: exact_values(name, operand, flushed)(operands) for flushed in (False, True)}
    is_nan = np.isnan(exact[False])
    nan = np.unique(results[is_nan])
    keeps_nan = len(nan) > 1 and bool((results == leading_bits(operands, operand, result))[is_nan].all())

    def wrong(conversion: FormatConversion, flushed: bool = False) -> int:
        words = conversion.words(exact[flushed], result)
        return int(unlike(results, words, result, conversion.nan is None).sum())

    best = fit_fields(FormatConversion(nan=int(nan[0]) if len(nan) == 1 else None), _CHOICES, wrong)
    flushed = wrong(best, True) < wrong(best)
    nan_word = None if best.nan is None else f"0x{best.nan:0{result.storage_bits // 4}x}"
    values = {each.name: getattr(best, each.name) for each in fields(best)} | {"nan": nan_word, "keeps_nan": keeps_nan}
    return candidate_of(ConversionRecord(function=name, flushed_operands=flushed, **values), operand, result)


_CHOICES: dict[str, tuple[Any, ...]] = {
    "rounding": ROUNDING_MODES,
    "overflow": OVERFLOWS,
    "infinite": OVERFLOWS,
    "relu": (False, True),
    "flushed": (False, True),
}


def candidate_of(record: ConversionRecord, operand: Format, result: Format) -> Hypothesis:
    values = record.model_dump(exclude={"function", "flushed_operands", "keeps_nan"})
    conversion = FormatConversion(**(values | {"nan": None if record.nan is None else int(record.nan, 16)}))
    name, flushed = record.function, record.flushed_operands
    exact = exact_values(name, operand, flushed)

    def words(operands: Any) -> Any:
        values = exact(operands)
        found = conversion.words(values, result)
        if record.keeps_nan:
            xp = module_of(operands)
            found = xp.where(xp.isnan(values), leading_bits(operands, operand, result), found)
        return found

    what = "the operand" if name == "identity" else name
    limits = {"largest": "saturated", "NaN": "too large values become NaN", "infinity": ""}[conversion.overflow]
    extra = (
        limits if result.is_float else "saturated",
        "subnormal operands flushed" if flushed else "",
        "subnormal results flushed" if conversion.flushed else "",
        "negative results become 0" if conversion.relu else "",
        "NaN keeps its leading bits" if record.keeps_nan else "",
    )
    exactly = name == "identity" and operand.is_float and operand.widens_to(result)
    rounding = "exact" if exactly else f"rounded once ({conversion.rounding})"
    return Hypothesis(
        ", ".join(filter(None, (f"{what}, {rounding}", *extra))), words, conversion.nan is None and not record.keeps_nan, record
    )


def special_results(fmt: Format, function: Callable[[Bits], Bits], result: Format) -> dict[str, str]:
    """Return the results of `special_words`, as hex; none of an integer operand."""
    if not fmt.is_float:
        return {}
    inputs = special_words(fmt)
    words = function(np.array(list(inputs.values()), fmt.dtype))
    return {name: f"0x{int(word):0{result.storage_bits // 4}x}" for name, word in zip(inputs, words, strict=True)}

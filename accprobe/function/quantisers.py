"""Quantisers: functions of an operand and its scale that return a narrow format, element by element.

They divide by the scale, or multiply by it or by its reciprocal. A division and a multiplication by the reciprocal differ only
where the rounded reciprocal crosses the boundary of two results. So every operand of 16 bits, or a sample of f32, is probed
with scales of many sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.adapter import one_sentence
from accprobe.callables.arrays import open_arrays
from accprobe.callables.spec import BLOCK
from accprobe.errors import AccprobeError
from accprobe.function.candidates import sample_words
from accprobe.function.records import measured_row
from accprobe.function.reference import (
    OVERFLOWS,
    ROUNDING_MODES,
    FormatConversion,
    fit_fields,
    special_words,
    unlike,
    values_of_words,
    word_text,
)
from accprobe.function.rules import approximate_quotient
from accprobe.function.subjects import find_function
from accprobe.function.versus import ResultDifference
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.records.functions import FunctionRow
from accprobe.records.verification import Verification

ScaleLayout = Literal["tensor", "row", "block"]
ScaleOperation = Literal[
    "x / scale", "x · scale", "x · (1 / scale)", "div.full(x, scale)", "x · rcp.approx(scale)", "x · div.full(1, scale)"
]
Doubles = NDArray[np.float64]

# Models are fitted to every n-th pair, and to some with infinities. A prime, so that every scale is among them.
STEP, MOST_INFINITIES = 61, 256
MOST_WRONG = 0.05
# Share of the sample by which a model may be worse than the best one and still be compared with all results.
NEARLY = 0.005


def scale_values() -> NDArray[np.float32]:
    """Return scales: powers of two, their neighbours, the ratios that quantisers compute, small, large and random ones."""
    largest = np.array([448, 57344, 6, 127], np.float32)
    powers = np.float32(2) ** np.array([0, 1, -1, 10, -10, 40, -40, -126], np.float32)
    near = np.nextafter(powers[:3], np.float32(np.inf))
    subnormal = np.array([2.0**-130], np.float32)  # its reciprocal is infinite
    inexact = np.array([3, 41, 47, 55], np.float32)  # times its rounded reciprocal, each but 3 is not 1
    random = np.float32(2) ** np.random.default_rng(0).uniform(-16, 16, 10).astype(np.float32)
    return np.concatenate([powers, near, 1 / largest, largest[:2], inexact, random, subnormal]).astype(np.float32)


class QuantiserSubject:
    """A Python function f(x, scale). layout: a scale for the tensor, for each row, or for each `BLOCK` elements of a row."""

    def __init__(self, name: str, fmt: Format, layout: ScaleLayout, device: str | None, arrays: str | None) -> None:
        found = find_function(name)
        self.name, self.operand, self.layout = name, fmt, layout
        self._function, self._file = found.function, found.file
        self.library: Any = open_arrays(arrays or found.arrays, device)
        self.device: str = self.library.device
        every = sample_words(fmt)
        self.words: Bits = np.resize(every, -(-len(every) // BLOCK) * BLOCK)
        self.scales = scale_values()
        self.result: Format = FORMATS["f32"]

    @cached_property
    def scale_of_elements(self) -> NDArray[np.float32]:
        """Return the scale of each element, [scales, words]."""
        rows = np.arange(len(self.scales))[:, None]
        blocks = np.arange(len(self.words))[None, :] // BLOCK if self.layout == "block" else 0
        return self.scales[np.broadcast_to((rows + blocks) % len(self.scales), (len(self.scales), len(self.words)))]

    @cached_property
    def results(self) -> Bits:
        """Return the results, [scales, words]. Raises AccprobeError unless the function returns one for each element, and the
        same again where one call takes all scales.
        """
        words = np.broadcast_to(self.words, (len(self.scales), len(self.words)))
        if self.layout == "tensor":
            return np.stack([self._call(self.words, scale.reshape(())) for scale in self.scales])
        step = 1 if self.layout == "row" else BLOCK
        scales = self.scale_of_elements[:, :: step if self.layout == "block" else len(self.words)]
        found, again = (self._call(words, scales) for _ in range(2))
        if (found != again).any():
            raise AccprobeError(f"{self.name} gives other results when called again")
        return found

    def _call(self, words: Bits, scales: NDArray[np.float32]) -> Bits:
        flat = np.ascontiguousarray(scales).reshape(-1).view(np.uint32)
        given = f"x {list(words.shape)} and scales {list(scales.shape)}"
        fails = f"{self.name} fails as f(x, scale) of {given} (leave --scale out for a function of x alone):"
        with one_sentence(fails, self.device, self._file), np.errstate(all="ignore"):
            x = self.library.operand("x", np.ascontiguousarray(words), self.operand)
            scale = self.library.operand("scale", flat, FORMATS["f32"]).reshape(scales.shape)
            result = self._function(x, scale)
            received = self.library.received(result)
        if received is None or received.shape != words.shape or received.fmt is None or not received.fmt.is_float:
            got = f"{list(received.shape)} of {received.type}" if received else type(result).__name__
            raise AccprobeError(f"{self.name} returns {got}; expected floating-point results of the shape {list(words.shape)}")
        self.result = received.fmt
        found: Bits = self.library.patterns(result, received.fmt)
        return found


ANY_NAN = FormatConversion(nan=None)


@dataclass(frozen=True)
class QuantiserModel:
    """operation: of x and the scale, in f32; `div.full` is Triton's `/`. scale, quotient: formats to which both are rounded,
    None for f32.
    """

    operation: ScaleOperation
    scale: Format | None
    quotient: Format | None
    conversion: FormatConversion = ANY_NAN

    def values(self, x: Doubles, scale: Doubles) -> Doubles:
        """Return the values before the conversion. Quotients and products of f32 numbers are exact enough in float64."""
        with np.errstate(all="ignore"):
            s = _rounded(scale, self.scale)
            if self.operation == "div.full(x, scale)":
                return _rounded(approximate_quotient(x, s), self.quotient)
            if factor := _RECIPROCALS.get(self.operation):
                s = _rounded(factor(s), self.scale)
            return _rounded(x / s if self.operation == "x / scale" else x * s, self.quotient)

    def words(self, x: Doubles, scale: Doubles, result: Format) -> Any:
        return self.conversion.words(self.values(x, scale), result)

    def __str__(self) -> str:
        steps = [f"scale rounded to {self.scale}"] * (self.scale is not None)
        steps += [f"rounded to {self.quotient}"] * (self.quotient is not None)
        return ", ".join([f"{self.operation} in f32", *steps])

    def in_words(self, result: Format) -> str:
        """Return "x / scale in f32, rounded to e4m3 (RNE), saturated, subnormal results kept"."""
        given = self.conversion.overflow, self.conversion.infinite  # a format without infinity has NaN instead
        overflow, infinite = ("NaN" if each == "infinity" and result.infinity is None else each for each in given)
        parts = (
            f"{self}, rounded to {result} ({self.conversion.rounding})",
            "saturated" if overflow == "largest" else f"too large values become {overflow}",
            f"infinity becomes {'the largest number' if infinite == 'largest' else infinite}" if infinite != overflow else "",
            "subnormal results flushed" if self.conversion.flushed else "subnormal results kept",
        )
        return ", ".join(filter(None, parts))


_RECIPROCALS: dict[str, Callable[[Doubles], Doubles]] = {
    "x · (1 / scale)": lambda scale: 1 / scale,
    "x · rcp.approx(scale)": lambda scale: approximate_quotient(np.ones_like(scale), scale, ""),
    "x · div.full(1, scale)": lambda scale: approximate_quotient(np.ones_like(scale), scale),
}


def _rounded(values: Doubles, fmt: Format | None) -> Doubles:
    single = values.astype(np.float32)
    return (single if fmt is None else single.astype(fmt.ml_dtype)).astype(np.float64)


def measure_quantiser(subject: QuantiserSubject) -> FunctionRow:
    """Return the row of a quantiser. Raises AccprobeError."""
    started = time.monotonic()
    results = subject.results.reshape(-1)
    x = np.broadcast_to(values_of_words(subject.words, subject.operand), subject.results.shape).reshape(-1)
    scale = subject.scale_of_elements.reshape(-1).astype(np.float64)
    best, wrong, others = infer_quantiser(x, scale, results, subject)
    expected = best.words(x, scale, subject.result)
    known = len(wrong) <= MOST_WRONG * len(results)
    verification = Verification(
        compared=len(results),
        mismatches=len(wrong) if known else 0,
        mismatch=_pair(subject, int(wrong[0]), int(expected[wrong[0]])) if known and len(wrong) else "",
    )
    return measured_row(
        subject,
        (subject.operand, subject.result),
        verification,
        started,
        "" if known else "no division or product by the scale",
        name=subject.name,
        computes=f"with a scale of each {subject.layout}: {best.in_words(subject.result)}" if known else "",
        specials=_specials(subject),
        contradicted=tuple(others),
    )


def infer_quantiser(
    x: Doubles, scale: Doubles, results: Bits, subject: QuantiserSubject
) -> tuple[QuantiserModel, NDArray[np.int64], list[str]]:
    """Return the model that explains most results, the places of those that it does not, and models that some contradict.

    All models are fitted to a sample. Models that explain nearly as much of it as the best one are compared with all results
    until one explains them all. Division and multiplication by the reciprocal differ in few results.
    """
    narrow = [None, subject.operand] if subject.operand.storage_bits == 16 else [None]
    models = [QuantiserModel(operation, a, b) for operation in get_args(ScaleOperation) for a in narrow for b in narrow]
    rows = np.union1d(np.arange(0, len(x), STEP), np.flatnonzero(np.isinf(x))[:MOST_INFINITIES])
    some = x[rows], scale[rows], results[rows]
    fitted = sorted((_fitted(model, *some, subject.result) for model in models), key=lambda each: each[1])
    contradicted, best, fewest = [], fitted[0][0], np.arange(len(results) + 1)
    for model, in_sample in fitted:
        if len(fewest) and in_sample <= fitted[0][1] + NEARLY * len(some[0]):
            wrong = np.flatnonzero(unlike(results, model.words(x, scale, subject.result), subject.result, any_nan=True))
            if len(wrong):
                contradicted.append((model, f"{len(wrong):,} of {len(results):,} differ"))
            if len(wrong) < len(fewest):
                best, fewest = model, wrong
        elif in_sample:
            contradicted.append((model, f"{in_sample:,} of {len(some[0]):,} differ"))
    return best, fewest, [f"{model} ({count})" for model, count in contradicted if model != best]


def _fitted(model: QuantiserModel, x: Doubles, scale: Doubles, results: Bits, result: Format) -> tuple[QuantiserModel, int]:
    """Return a model with the conversion that explains most results, field by field, and how many it does not explain."""
    values = model.values(x, scale)

    def wrong(conversion: FormatConversion) -> int:
        return int(unlike(results, conversion.words(values, result), result, any_nan=True).sum())

    choices = {"overflow": OVERFLOWS, "infinite": OVERFLOWS, "rounding": ROUNDING_MODES, "flushed": (False, True)}
    best = fit_fields(model.conversion, choices, wrong)
    return replace(model, conversion=best), wrong(best)


def compare_quantisers(one: QuantiserSubject, other: QuantiserSubject) -> ResultDifference:
    """Return how the results of two quantisers differ. Raises AccprobeError for two result formats."""
    found = ResultDifference(one, other, "pairs of operand and scale")
    places = found.add(one.results.reshape(-1), other.results.reshape(-1))
    if len(places):
        found.first = _pair(one, int(places[0]), int(other.results.reshape(-1)[places[0]]), "and")
    return found


def _pair(subject: QuantiserSubject, place: int, other: int, word: str = "expected") -> str:
    """Return "x = 0x3f8d (1.1015625), scale = 0x3eaaaaab (0.333333343): 0x45, expected 0x46"."""
    row, column = divmod(place, len(subject.words))
    scale = int(subject.scale_of_elements[row, column].view(np.uint32))
    digits, got = subject.result.storage_bits // 4, int(subject.results[row, column])
    given = f"x = {word_text(int(subject.words[column]), subject.operand)}, scale = {word_text(scale, FORMATS['f32'])}"
    return f"{given}: 0x{got:0{digits}x}, {word} 0x{other:0{digits}x}"


def _specials(subject: QuantiserSubject) -> dict[str, str]:
    """Return the results of `special_words` where the scale is 1."""
    found = {}
    for name, word in special_words(subject.operand).items():
        places = np.flatnonzero((subject.words == word) & (subject.scale_of_elements == 1))
        if len(places):
            found[name] = f"0x{int(subject.results.reshape(-1)[places[0]]):0{subject.result.storage_bits // 4}x}"
    return found

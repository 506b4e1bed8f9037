"""Explanations that combine functions, every step rounded to f32: of numpy, CUDA C, and the special function unit."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.function.candidates import Hypothesis
from accprobe.function.quadratic import module_of
from accprobe.function.records import recorded_models
from accprobe.function.reference import FUNCTIONS, FormatConversion, single, values_of_words, words_of_singles
from accprobe.function.rules import approximate_quotient
from accprobe.function.units import SCALAR_UNITS, SPECIAL_FUNCTIONS, GpuUnit, ScalarUnit
from accprobe.isa.formats import FORMATS, Format

_F32 = FORMATS["f32"]

# An array of f32 numbers of numpy, or `RoundedValues`.
Singles = Any
# A function of f32 words.
WordFunction = Callable[[Any], Any]

LOG2_E, LN_2, LOG10_2 = 1.4426950408889634, 0.6931471805599453, 0.3010299956639812
ROOT_HALF, ROOT_2, ROOT_2_PI = math.sqrt(0.5), math.sqrt(2), math.sqrt(2 / math.pi)

COMPOSITIONS: Mapping[str, Mapping[str, Callable[[Any, Singles], Singles]]] = {
    "exp": {"ex2(x · 1.4426950)": lambda m, x: m.ex2(x * LOG2_E)},
    "log": {"lg2(x) · 0.69314718": lambda m, x: m.lg2(x) * LN_2},
    "log10": {"lg2(x) · 0.30103": lambda m, x: m.lg2(x) * LOG10_2},
    "rsqrt": {"1 / sqrt(x)": lambda m, x: 1 / m.sqrt(x)},
    "tanh": {"(1 - exp(-2x)) / (1 + exp(-2x))": lambda m, x: (1 - m.exp(-2 * x)) / (1 + m.exp(-2 * x))},
    "sigmoid": {
        "1 / (1 + exp(-x))": lambda m, x: 1 / (1 + m.exp(-x)),
        "rcp(1 + ex2(-x · 1.4426950))": lambda m, x: m.rcp(1 + m.ex2(x * -LOG2_E)),
        "div(1, 1 + ex2(-x · 1.4426950))": lambda m, x: m.div(1, 1 + m.ex2(x * -LOG2_E)),
    },
    "silu": {
        "x · sigmoid(x)": lambda m, x: x * m.sigmoid(x),
        "x / (1 + exp(-x))": lambda m, x: x / (1 + m.exp(-x)),
        "x · 1 / (1 + exp(-x))": lambda m, x: x * (1 / (1 + m.exp(-x))),
        "x · rcp(1 + ex2(-x · 1.4426950))": lambda m, x: x * m.rcp(1 + m.ex2(x * -LOG2_E)),
        "x · div(1, 1 + ex2(-x · 1.4426950))": lambda m, x: x * m.div(1, 1 + m.ex2(x * -LOG2_E)),
        "div(x, 1 + ex2(-x · 1.4426950))": lambda m, x: m.div(x, 1 + m.ex2(x * -LOG2_E)),
    },
    "gelu": {
        "x / 2 · (1 + erf(x · 0.70710678))": lambda m, x: x * 0.5 * (1 + m.erf(x * ROOT_HALF)),
        "x / 2 · (1 + erf(x / √2))": lambda m, x: x * 0.5 * (1 + m.erf(x / ROOT_2)),
    },
    "gelu_tanh": {
        "x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))": lambda m, x: (
            0.5 * x * (1 + m.tanh((x + x * x * x * 0.044715) * ROOT_2_PI))
        )
    },
}
"""Ways to compute a reference function with a library m, by text. The text names each function of m before its "(": `exp(`."""

CUDA_FUNCTIONS = {
    "exp": ("expf", "__expf"),
    "exp2": ("exp2f",),
    "expm1": ("expm1f",),
    "log": ("logf", "__logf"),
    "log2": ("log2f",),
    "log10": ("log10f",),
    "log1p": ("log1pf",),
    "sqrt": ("sqrtf",),
    "rsqrt": ("rsqrtf",),
    "sin": ("sinf", "__sinf"),
    "cos": ("cosf", "__cosf"),
    "tan": ("tanf",),
    "tanh": ("tanhf",),
    "erf": ("erff",),
}
"""Functions of the CUDA C++ Programming Guide, "Mathematical Functions", by reference function."""


def _rounded(operation: Callable[[Any, Any], Any]) -> Callable[[RoundedValues, Any], RoundedValues]:
    """Return the method of an operation with a result rounded to f32."""

    def method(self: RoundedValues, other: Any) -> RoundedValues:
        value = other.values if isinstance(other, RoundedValues) else float(np.float32(other))
        return RoundedValues(single(operation(self.values, value)))

    return method


class RoundedValues:
    """f32 numbers as float64 values of cupy: its f32 arithmetic flushes subnormal numbers. Each operation rounds once."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __neg__(self) -> RoundedValues:
        return RoundedValues(-self.values)

    __add__ = __radd__ = _rounded(operator.add)
    __mul__ = __rmul__ = _rounded(operator.mul)
    __truediv__ = _rounded(operator.truediv)
    __rtruediv__ = _rounded(lambda x, y: y / x)
    __rsub__ = _rounded(lambda x, y: y - x)


@dataclass(frozen=True)
class Library:
    """Functions of f32 numbers. names: the name to show for each name in COMPOSITIONS; in_words: a text with {} for a way."""

    names: Mapping[str, str]
    functions: Mapping[str, Callable[..., Singles]]
    in_words: str

    def __getattr__(self, name: str) -> Callable[..., Singles]:
        return self.functions[name]

    def list_variants(self, name: str) -> Iterator[tuple[str, Callable[[Singles], Singles]]]:
        """Yield the ways to compute a reference function with functions that the library has, in words."""
        for own in (name, *(unit for unit, function in SPECIAL_FUNCTIONS.items() if function == name != unit)):
            if own in self.names:
                yield self.in_words.format(self.names[own]), self.functions[own]
        for text, way in COMPOSITIONS.get(name, {}).items():
            if all(each in self.names for each in re.findall(r"\w+(?=\()", text)):
                written = re.sub(r"\w+(?=\()", lambda found: self.names[found[0]], text)
                yield self.in_words.format(written), partial(way, self)


def compositions(name: str, operand: Format, result: Format, device: str) -> Iterator[Hypothesis]:
    """Yield ways to compute a reference function in f32, rounded once to the result; first truncated units if it is not f32."""
    if result is not _F32:
        yield from truncated_units(name, operand, result)
    for library in _libraries(name, device):
        for text, way in library.list_variants(name):
            yield _hypothesis(text, way, operand, result)


def _hypothesis(text: str, way: Callable[[Singles], Singles], operand: Format, result: Format) -> Hypothesis:
    def words(operands: Any) -> Any:
        with np.errstate(all="ignore"):
            if module_of(operands) is not np:
                found = way(RoundedValues(values_of_words(operands, operand))).values
            else:
                found = way(values_of_words(operands, operand).astype(np.float32))
                if result is _F32:
                    return found.view(np.uint32)
            return FormatConversion(nan=None).words(found.astype(np.float64), result)

    return Hypothesis(text if result is _F32 else f"{text}, rounded once (RNE)", words, any_nan=True)


def _libraries(name: str, device: str) -> Iterator[Library]:
    """Yield the libraries of a device with the functions that compositions of `name` need. For a GPU they are compiled.

    Without a compiler there are no functions of CUDA, and recorded models replace the units.
    """
    needed = {name, *re.findall(r"\w+(?=\()", " ".join(COMPOSITIONS.get(name, ())))}
    if device == "cpu":
        yield Library({each: each for each in FUNCTIONS}, FUNCTIONS, "numpy's {} in f32")
    for ftz in (".ftz", ""):
        names = {
            unit: f"{unit}.approx{'' if unit == 'tanh' else ftz}"
            for unit in SPECIAL_FUNCTIONS
            if {unit, SPECIAL_FUNCTIONS[unit]} & needed
        }
        functions: dict[str, Callable[..., Singles]] = {"div": _full_quotient}
        functions |= {unit: _of_singles(_unit_words(f"{each}.f32", device)) for unit, each in names.items()}
        yield Library(names | {"div": "div.full"}, functions, "{}, on the special function unit")
    for number in range(2 if device != "cpu" else 0):  # exact and fast functions
        names = {each: found[number] for each, found in CUDA_FUNCTIONS.items() if each in needed and found[number:]}
        units = {each: ScalarUnit(found, _F32, _F32, "CUDA function", each) for each, found in names.items()}
        try:
            functions = {each: _of_singles(GpuUnit(unit, _index(device)).words) for each, unit in units.items()}
        except AccprobeError:
            return
        yield Library(names, functions, "CUDA's {}")


def _unit_words(name: str, device: str) -> WordFunction:
    """Return the instruction of a GPU, or its recorded model."""
    if device != "cpu":
        (unit,) = (unit for unit in SCALAR_UNITS if unit.name == name)
        try:
            return GpuUnit(unit, _index(device)).words
        except AccprobeError:
            pass
    return recorded_models()[name].words


def _index(device: str) -> int:
    return int(device.partition(":")[2] or 0)


def _of_singles(words: WordFunction) -> Callable[[Singles], Singles]:
    """Return a function of f32 numbers from one of their words."""

    def function(x: Singles) -> Singles:
        if isinstance(x, RoundedValues):
            return RoundedValues(values_of_words(words(words_of_singles(x.values)), _F32))
        return words(np.ascontiguousarray(x).view(np.uint32)).view(np.float32)

    return function


def _full_quotient(x: Singles, y: Singles) -> Singles:
    """Return x / y as `div.full.f32` computes it."""
    a, b = (each.values if isinstance(each, RoundedValues) else np.float64(each) for each in (x, y))
    found = single(approximate_quotient(module_of(b).full_like(b, a) if np.ndim(a) == 0 else a, b))
    return RoundedValues(found) if isinstance(y, RoundedValues) else found.astype(np.float32)


def truncated_units(name: str, operand: Format, result: Format) -> Iterator[Hypothesis]:
    """Yield recorded units of a function with an f32 operand and a truncated result."""
    (direct,) = [unit for unit, function in SPECIAL_FUNCTIONS.items() if function == name] or [name]
    for unit in (f"{direct}.approx.ftz.f32", f"{direct}.approx.f32"):
        if model := recorded_models().get(unit):
            words = partial(model.words_of, operand=operand, result=result)
            yield Hypothesis(f"{unit}, truncated to {result}", words, record=model.record)

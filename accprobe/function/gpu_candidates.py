"""Explanations of a callable on a GPU: functions of CUDA C, and compositions of recorded special function units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.function.candidates import Hypothesis
from accprobe.function.records import model_of
from accprobe.function.reference import FormatConversion, values_of_words
from accprobe.function.units import GpuUnit, ScalarUnit
from accprobe.isa.formats import FORMATS, Format
from accprobe.report.functions import TableModelRecord
from accprobe.report.recorded import recorded
from accprobe.report.report import Report

_F32 = FORMATS["f32"]
RECORDED = "functions-h200"

CUDA_FUNCTIONS = {
    "exp": ("expf", "__expf"),
    "exp2": ("exp2f",),
    "expm1": ("expm1f",),
    "log": ("logf", "__logf"),
    "log2": ("log2f",),
    "log10": ("log10f",),
    "log1p": ("log1pf",),
    "rsqrt": ("rsqrtf",),
    "sin": ("sinf", "__sinf"),
    "cos": ("cosf", "__cosf"),
    "tan": ("tanf",),
    "tanh": ("tanhf",),
    "erf": ("erff",),
}
"""Functions of the CUDA C++ Programming Guide, "Mathematical Functions", by reference function."""

# Names of units by reference function, where they differ.
UNIT_NAMES = {"exp2": "ex2", "log2": "lg2", "reciprocal": "rcp"}

Values = Any
Step = Callable[[Values], Values]


def gpu_candidates(name: str, operand: Format, result: Format, index: int) -> Iterator[Hypothesis]:
    """Yield candidates of a reference function, computed in f32 and rounded once to the result's format."""
    if result is not _F32:
        yield from truncated_units(name, operand, result)
    for function in CUDA_FUNCTIONS.get(name, ()):
        unit = GpuUnit(ScalarUnit(function, _F32, _F32, "CUDA function", name), index)
        yield _in_f32(f"CUDA {function}", unit.words, operand, result)
    for text, words in _compositions(name):
        yield _in_f32(text, words, operand, result)


def truncated_units(name: str, operand: Format, result: Format) -> Iterator[Hypothesis]:
    """Yield recorded units of a function whose operand is a number of f32 and whose result is truncated."""
    direct = UNIT_NAMES.get(name, name)
    for unit in (f"{direct}.approx.ftz.f32", f"{direct}.approx.f32"):
        if record := recorded_unit(unit):
            words = partial(model_of(record).words_of, operand=operand, result=result)
            yield Hypothesis(f"{unit}, truncated to {result}", words, record=record)


def _in_f32(text: str, function: Callable[[Any], Any], operand: Format, result: Format) -> Hypothesis:
    def words(operands: Any) -> Any:
        given = operands if operand is _F32 else _words(values_of_words(operands, operand))
        found = function(given)
        return found if result is _F32 else FormatConversion(nan=None).words(values_of_words(found, _F32), result)

    return Hypothesis(text if result is _F32 else f"{text}, rounded once (RNE)", words, any_nan=True)


def _words(values: Values) -> Any:
    """Return float64 values as f32 words, rounded to nearest even."""
    return FormatConversion(nan=0x7FFFFFFF).words(values, _F32).astype(np.uint32)


def _compositions(name: str) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield ways to compute a function with recorded units, each step rounded to f32."""
    for ftz in (".ftz", ""):
        units = {base: _unit(f"{base}.approx{ftz}.f32") for base in ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos")}
        units["tanh"] = _unit("tanh.approx.f32")
        yield from ((text.replace(".approx", f".approx{ftz}"), words) for text, words in _of_units(name, units))


def recorded_unit(name: str) -> TableModelRecord | None:
    """Return the table model of a recorded unit; None if it is not confirmed."""
    if RECORDED not in recorded():
        return None
    row = next((row for row in Report.load(RECORDED).functions if row.name == name), None)
    if row is None or not isinstance(row.model, TableModelRecord) or row.status != "confirmed":
        return None
    return row.model


def _unit(name: str) -> Step | None:
    """Return a recorded unit as a function of float64 values that are f32 numbers; None if it is not recorded."""
    record = recorded_unit(name)
    if record is None:
        return None
    model = model_of(record)
    return lambda values: values_of_words(model.words(_words(values)), _F32)


def _of_units(name: str, units: dict[str, Step | None]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    direct = UNIT_NAMES.get(name, name)
    if unit := units.get(direct):
        yield f"{direct}.approx(x)", _steps(unit)
    ex2, rcp, lg2 = units["ex2"], units["rcp"], units["lg2"]
    if name == "exp" and ex2:
        yield "ex2.approx(x · 1.4426950)", _steps(_times(LOG2_E), ex2)
    if name in ("log", "log10") and lg2:
        factor = LN_2 if name == "log" else LOG10_2
        yield f"lg2.approx(x) · {factor:.8g}", _steps(lg2, _times(factor))
    if name in ("sigmoid", "silu") and ex2 and rcp:
        sigmoid = (_times(-LOG2_E), ex2, lambda e: 1 + e, rcp)
        if name == "sigmoid":
            yield "rcp.approx(1 + ex2.approx(-x · 1.4426950))", _steps(*sigmoid)
        else:
            yield "x · rcp.approx(1 + ex2.approx(-x · 1.4426950))", _steps(*sigmoid, last=lambda x, y: x * y)


# Constants in f32.
LOG2_E, LN_2, LOG10_2 = (float(np.float32(value)) for value in (1.4426950408889634, 0.6931471805599453, 0.3010299956639812))


def _times(factor: float) -> Step:
    return lambda x: x * factor


def _steps(*steps: Step, last: Callable[[Values, Values], Values] | None = None) -> Callable[[Any], Any]:
    """Return a function of f32 words that rounds to f32 after each step. last: combines the operand with the result."""

    def words(given: Any) -> Any:
        x = y = values_of_words(given, _F32)
        with np.errstate(all="ignore"):
            for step in steps:
                y = values_of_words(_words(step(y)), _F32)
            return _words(y if last is None else last(x, y))

    return words


def candidates_there(name: str, operand: Format, result: Format, device: str) -> Iterator[Hypothesis]:
    """Yield the candidates of a GPU's callable; none if the compiler is missing."""
    try:
        yield from gpu_candidates(name, operand, result, int(device.partition(":")[2] or 0))
    except AccprobeError:
        return

"""Functions in reports: their rows, their models in words, and their results."""

from __future__ import annotations

import time
import warnings
from functools import cache
from math import frexp
from typing import Any

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.function.candidates import candidate_of
from accprobe.function.model import FunctionModel
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.records.claims import Status, status_of
from accprobe.records.functions import FunctionRow, ScalingRecord, TableModelRecord
from accprobe.records.verification import Verification
from accprobe.report.report import Report


def measured_row(
    subject: Any, formats: tuple[Format, Format], verification: Verification, started: float, unexplained: str = "", **more: Any
) -> FunctionRow:
    """Return the row of a measurement. unexplained: why no model is known, "" where one is. started: of `time.monotonic`."""
    status: Status = "unverified"
    if not unexplained:
        status, unexplained = status_of(verification)
    return FunctionRow(
        operand=formats[0].name,
        result=formats[1].name,
        status=status,
        reason=unexplained,
        verification=verification,
        device=subject.device,
        seconds=round(time.monotonic() - started, 3),
        **more,
    )


def table_in_words(model: TableModelRecord) -> str:
    """Return "2 tables of 64 quadratics, truncated squarer, result truncated"."""
    sizes = list(dict.fromkeys(len(table.coefficients) for table in model.tables))
    counts = " and ".join(map(str, sizes)) if len(sizes) <= 2 else f"{min(sizes)} to {max(sizes)}"
    tables = f"table of {counts}" if len(model.tables) == 1 else f"{len(model.tables)} tables of {counts}"
    squares = " and ".join(dict.fromkeys(table.square for table in model.tables))
    scaled = f"; {' and '.join(map(_scaling_in_words, model.scalings))}" if model.scalings else ""
    return f"{tables} quadratics, {squares} squarer, result truncated{scaled}"


def _scaling_in_words(scaling: ScalingRecord) -> str:
    """Return "x · 2^24 for |x| < 2^-126, then result · 2^12"."""
    x = "|x|" if scaling.size else "x"
    limit = f"{scaling.limit:g}" if abs(scaling.limit) >= 1 and scaling.limit < 1e6 else _power(scaling.limit)
    after = {"square": "squared", "plus": f"{scaling.value:+g}", "times": f"· {_power(scaling.value)}"}[scaling.then]
    return f"x · {_power(scaling.factor)} for {x} {'<' if scaling.below else '>'} {limit}, then result {after}"


def _power(value: float) -> str:
    return f"2^{frexp(value)[1] - 1}"


def function_words(row: FunctionRow, words: Bits) -> Bits:
    """Return the result words of a recorded function. Raises AccprobeError if the row has no model."""
    if row.model is None:
        raise AccprobeError(
            f"{row.title} has no recorded model ({row.computes or row.reason}): its results cannot be predicted"
        )
    if row.status != "confirmed":
        warnings.warn(f"{row.title} is {row.status}: {row.reason}", stacklevel=4)
    operand = FORMATS[row.operand]
    if operand.storage_bits <= 16 and words.size > 1 << operand.storage_bits:
        every = _words_of(row, np.arange(1 << operand.storage_bits, dtype=operand.dtype))
        return every[words]
    return _words_of(row, words)


def _words_of(row: FunctionRow, words: Bits) -> Bits:
    operand, result = FORMATS[row.operand], FORMATS[row.result]
    if isinstance(row.model, TableModelRecord):
        found: Bits = FunctionModel(row.model).words_of(words, operand, result)
    else:
        assert row.model is not None
        found = candidate_of(row.model, operand, result).words(words)
    return found.astype(result.dtype)


@cache
def recorded_models() -> dict[str, FunctionModel]:
    """Return the models of the special function unit's instructions in the report `functions-h200`, by PTX name."""
    rows = Report.load("functions-h200").functions
    return {row.name: FunctionModel(row.model) for row in rows if isinstance(row.model, TableModelRecord)}

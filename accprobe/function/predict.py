"""Results of recorded functions."""

from __future__ import annotations

import warnings

from accprobe.errors import AccprobeError
from accprobe.function.candidates import candidate_of
from accprobe.function.records import model_of
from accprobe.isa.formats import FORMATS, Bits
from accprobe.report.functions import FunctionRow, TableModelRecord


def function_words(row: FunctionRow, words: Bits) -> Bits:
    """Return the result words of a recorded function. Raises AccprobeError if the row has no model."""
    operand, result = FORMATS[row.operand], FORMATS[row.result]
    if row.model is None:
        raise AccprobeError(
            f"{row.title} has no recorded model ({row.computes or row.reason}): its results cannot be predicted"
        )
    if row.status != "confirmed":
        warnings.warn(f"{row.title} is {row.status}: {row.reason}", stacklevel=4)
    found: Bits
    if isinstance(row.model, TableModelRecord):
        found = model_of(row.model).words_of(words, operand, result)
    else:
        found = candidate_of(row.model, operand, result).words(words).astype(result.dtype)
    return found

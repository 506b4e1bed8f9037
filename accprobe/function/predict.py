"""Results of recorded functions, by the name of their row."""

from __future__ import annotations

import warnings

from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.function.candidates import candidate_of
from accprobe.function.records import model_of
from accprobe.isa.formats import FORMATS, Bits
from accprobe.report.functions import FunctionRow, TableModelRecord
from accprobe.report.report import Report


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
        found = model_of(row.model).words(words)
    else:
        found = candidate_of(row.model, operand, result).words(words).astype(result.dtype)
    return found


def named_function(like: str) -> FunctionRow:
    """Return the row that "REPORT:NAME" or "REPORT" means. Raises UnknownName, ReportError."""
    source, _, name = like.partition(":")
    rows = Report.load(source).functions
    if not rows:
        reductions = [row.title for row in Report.load(source).products if row.reduction]
        has = f"; its reductions are {', '.join(reductions[:4])}" if reductions else "; for a product give two matrices"
        raise UnknownName(f"{source} has no function '{name}'{has}")
    matching = [row for row in rows if name in (row.name, row.title)] if name else list(rows)
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise UnknownName(f"{source} has no function '{name}'; {nearest(name, [row.title for row in rows])}")
    some = ", ".join(row.title for row in matching[:4])
    raise UnknownName(f"{like} means {len(matching)} functions; give one of {some}{', …' * (len(matching) > 4)}")

"""Results of recorded functions, by the name of their row."""

from __future__ import annotations

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
        raise AccprobeError(f"{row.title} has no model, so its results cannot be predicted: {row.reason or row.status}")
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
        raise UnknownName(f"{source} has no functions: give a report of `accprobe function`, and for a product two matrices")
    matching = [row for row in rows if name in (row.name, row.title)] if name else list(rows)
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise UnknownName(f"{source} has no function '{name}'; {nearest(name, [row.title for row in rows])}")
    some = ", ".join(row.title for row in matching[:4])
    raise UnknownName(f"{like} means {len(matching)} functions; give one of {some}{', …' * (len(matching) > 4)}")

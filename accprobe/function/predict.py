"""Results of recorded models for the user's operands: of scalar functions here, of products by `accprobe.emulate`."""

from __future__ import annotations

from typing import Any

import numpy as np

from accprobe import emulate
from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.function.candidates import candidate_of
from accprobe.function.quadratic import module_of
from accprobe.function.records import model_of
from accprobe.isa.formats import FORMATS, Format
from accprobe.report.functions import FunctionRow, TableModelRecord
from accprobe.report.report import Report


def predict(like: str, a: Any, b: Any = None, c: Any = None, **options: Any) -> Any:
    """Return the results of a recorded model: `accprobe.emulate.predict` for two matrices, `predict_function` for one array."""
    return predict_function(like, a) if b is None else emulate.predict(like, a, b, c, **options)


def predict_function(like: str, x: Any) -> Any:
    """Return the results of a recorded function, element by element: words for words, values for values.

    like: "REPORT:NAME", such as "functions-h200:ex2.approx.ftz.f32"; the name may be left out where a report has one function.
    x: a numpy or cupy array or a torch tensor of the operand's format, or unsigned words of it. Raises AccprobeError.
    """
    row = named_function(like)
    operand, result = FORMATS[row.operand], FORMATS[row.result]
    if row.model is None:
        raise AccprobeError(f"{like} has no model, so its results cannot be predicted: {row.reason or row.status}")
    words, as_values = _words(x, operand)
    if isinstance(row.model, TableModelRecord):
        found = model_of(row.model).words(words)
    else:
        found = candidate_of(row.model, operand, result).words(words).astype(result.dtype)
    return _as_given(x, found, result, as_values)


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


def _words(x: Any, fmt: Format) -> tuple[Any, bool]:
    """Return the words of x, and whether x has values. Raises AccprobeError for another type."""
    if type(x).__module__.partition(".")[0] == "torch":
        words, as_values = _words(emulate.from_torch(x), fmt)
        return words, as_values
    array = x if module_of(x) is not np else np.asarray(x)
    value_type = fmt.dtype if fmt.ml_dtype is None else np.dtype(fmt.ml_dtype)
    if array.dtype == fmt.dtype:
        return module_of(array).ascontiguousarray(array), False
    if array.dtype != value_type:
        raise AccprobeError(f"x has type {array.dtype}; expected {value_type} ({fmt}), or words as {fmt.dtype}")
    return module_of(array).ascontiguousarray(array).view(fmt.dtype), True


def _as_given(x: Any, words: Any, fmt: Format, as_values: bool) -> Any:
    if type(x).__module__.partition(".")[0] == "torch":
        return emulate.as_given(x, words, fmt)
    if not as_values or fmt.ml_dtype is None:
        return words
    return words.view(np.dtype(fmt.ml_dtype))

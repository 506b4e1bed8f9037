"""Measure one function: find what it computes, compare the explanation with all results, and make a row of the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from accprobe.function.candidates import Hypothesis, fit_rounding, recognise_function, sample_words, special_results
from accprobe.function.fit import infer_table_model
from accprobe.function.records import measured_row, table_in_words
from accprobe.function.reference import exact_values, word_text
from accprobe.function.statistics import Pass
from accprobe.function.subjects import Subject, chunks_of, count_compared, lent
from accprobe.records.functions import FunctionErrors, FunctionRow
from accprobe.records.verification import Verification

# Share of a sample that a model may leave unexplained and still be shown.
MOST_WRONG = 0.05

# One comparison at a time: its arrays take gigabytes of a GPU's memory.
_COMPARING = Lock()

ShowShare = Callable[[str, float], None]


@dataclass(frozen=True)
class FunctionRequest:
    """The measurement of a function. function: its reference function, "" to recognise it. tables: look for a table model.

    sampled: compare the words of the sample alone.
    """

    function: str = ""
    exhaustive: bool = True
    sampled: bool = False
    tables: bool = False
    opcodes: tuple[str, ...] = ()


def measure(
    subject: Subject,
    request: FunctionRequest,
    progress: ShowShare = lambda name, share: None,
    on_stopped: Callable[[FunctionRow], object] = lambda row: None,
) -> FunctionRow:
    """Return the row of a function. Raises AccprobeError if it is not elementwise, DeviceError if the device fails.

    on_stopped: called with the row of the words compared so far, if any, before KeyboardInterrupt is raised.
    """
    started = time.monotonic()
    progress("sample", 0)
    operands = sample_words(subject.operand)
    results = np.asarray(_of_numpy(subject, operands))
    function = request.function
    if not function and subject.result.is_float:
        function = recognise_function(operands, results, subject.operand, subject.result)
    found, contradicted = _explain(subject, function, operands, results, request)
    progress("all words", 0)
    of = 1 << subject.operand.bits + subject.operand.ignored_low_bits
    total = count_compared(subject.operand, request.exhaustive)

    chunks = [operands] if request.sampled else chunks_of(subject, total)
    done = Pass(subject.result, found, exact_values(function, subject.operand) if function else None)

    def row() -> FunctionRow:
        return measured_row(
            subject,
            (subject.operand, subject.result),
            Verification(
                compared=done.words,
                mismatches=done.mismatches,
                mismatch=_counterexample(subject, *done.first) if done.first else "",
                of=of,
            ),
            started,
            "" if found else "no model that accprobe knows explains its results",
            name=subject.name,
            opcodes=request.opcodes,
            computes=found.in_words if found else "",
            digest=f"{done.digest:016x}" if done.words == of else "",
            errors=_errors(subject, function, done),
            specials=special_results(subject.operand, lambda words: np.asarray(_of_numpy(subject, words)), subject.result),
            model=found.record if found else None,
            contradicted=tuple(contradicted),
        )

    try:
        with _COMPARING, lent(subject), np.errstate(all="ignore"):
            for chunk in chunks:
                done.add(chunk, subject.words(chunk))
                progress("all words", done.words / total)
    except KeyboardInterrupt as e:
        if done.words:
            stopped = row()
            changed = {"reason": str(e) or "interrupted"} | ({"status": "inferred"} if found else {})
            on_stopped(stopped.model_copy(update=changed))
        raise
    return row()


def _of_numpy(subject: Subject, words: Any) -> Any:
    """Return the results of a numpy array of words, at most a chunk at once."""
    return np.concatenate([subject.words(words[i : i + (1 << 24)]) for i in range(0, len(words), 1 << 24)])


def _explain(
    subject: Subject, function: str, operands: Any, results: Any, request: FunctionRequest
) -> tuple[Hypothesis | None, list[str]]:
    """Return the candidate that explains the sample, or most of it, and hypotheses that results contradict."""
    contradicted: list[str] = []
    best, fewest = None, int(MOST_WRONG * len(operands))
    for candidate in _candidates(subject, function, operands, results, request):
        wrong = candidate.count_wrong(operands, results, subject.result)
        if not wrong:
            return candidate, contradicted
        contradicted.append(candidate.in_words)
        if wrong < fewest:
            best, fewest = candidate, wrong
    if request.tables and subject.operand.name == subject.result.name == "f32":
        model, excluded = infer_table_model(lambda words: np.asarray(_of_numpy(subject, words)))
        contradicted += excluded
        if model is not None:
            return Hypothesis(table_in_words(model.record), model.words, record=model.record), contradicted
    return best, [each for each in contradicted if best is None or each != best.in_words]


def _candidates(subject: Subject, function: str, operands: Any, results: Any, request: FunctionRequest) -> Iterator[Hypothesis]:
    if not function and subject.result.is_float:
        return
    yield fit_rounding(function or "identity", operands, results, subject.operand, subject.result)
    if function and subject.operand.is_float and subject.result.is_float and not request.tables:
        from accprobe.function.compositions import compositions

        yield from compositions(function, subject.operand, subject.result, subject.device)


def _counterexample(subject: Subject, operand: int, got: int, expected: int) -> str:
    words = (word_text(got, subject.result), word_text(expected, subject.result))
    return f"f({word_text(operand, subject.operand)}) = {words[0]}, expected {words[1]}"


def _errors(subject: Subject, function: str, done: Pass) -> FunctionErrors | None:
    errors = done.errors
    if not function or not errors.count:
        return None
    digits = subject.operand.storage_bits // 4
    return FunctionErrors(
        function=function,
        words=errors.count,
        largest=round(errors.largest, 4),
        at=f"0x{errors.at:0{digits}x}",
        mean=float(f"{errors.total / errors.count:.3g}"),
        correct=errors.correct,
        against=errors.against,
    )

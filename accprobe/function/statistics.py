"""One pass over the results of a function: compare with a model, measure errors, hash all results.

It works on arrays of numpy or cupy, in chunks of consecutive words, so that 2^32 words need little memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accprobe.function.candidates import Hypothesis
from accprobe.function.quadratic import module_of
from accprobe.function.reference import errors_in_ulp, unlike, values_of_words
from accprobe.isa.formats import Format


@dataclass
class UlpErrors:
    """Errors in units in the last place (ulp), of results that are normal numbers, as are the exact values.

    largest, at: the largest error and its operand. total: the sum of all errors. count: number of results; correct: those that
    are correctly rounded. against: pairs of consecutive operands with results that change in the opposite direction of the
    function.
    """

    largest: float = 0.0
    at: int = 0
    total: float = 0.0
    count: int = 0
    correct: int = 0
    against: int = 0

    def add(self, operands: Any, words: Any, exact: Any, fmt: Format) -> None:
        xp = module_of(words)
        ulps, values = errors_in_ulp(words, exact, fmt), values_of_words(words, fmt)
        smallest, largest = 2.0**fmt.min_exponent, float(fmt.values(np.array([fmt.largest], fmt.dtype))[0])
        known = xp.isfinite(ulps) & (xp.abs(values) >= smallest) & (xp.abs(exact) >= smallest) & (xp.abs(exact) <= largest)
        ulps = xp.where(known, ulps, 0)
        self.count += int(known.sum())
        self.total += float(ulps.sum())
        self.correct += int((known & (ulps <= 0.5)).sum())
        here = int(ulps.argmax())
        if float(ulps[here]) > self.largest:
            self.largest, self.at = float(ulps[here]), int(operands[here])
        moved, expected = xp.diff(values), xp.diff(exact)
        with np.errstate(all="ignore"):
            self.against += int((moved * xp.sign(expected) < 0).sum())


@dataclass
class Pass:
    """The comparison of results with a model, and with exact float64 values. fmt: of the results.

    words: results so far. mismatches, first: results that differ from the model, and the first as (operand, got, expected).
    digest: the sum over all operands of a 64-bit mix of operand and result, modulo 2^64.
    """

    fmt: Format
    model: Hypothesis | None = None
    exact: Callable[[Any], Any] | None = None
    words: int = 0
    mismatches: int = 0
    first: tuple[int, int, int] | None = None
    digest: int = 0
    errors: UlpErrors = field(default_factory=UlpErrors)

    def add(self, operands: Any, results: Any) -> None:
        """Compare further results; they count once all of them are compared, as a signal may come before."""
        self.digest = (self.digest + results_digest(operands, results)) & (1 << 64) - 1
        if self.exact is not None and self.fmt.is_float:
            self.errors.add(operands, results, self.exact(operands), self.fmt)
        if self.model is not None:
            expected = self.model.words(operands)
            wrong = unlike(results, expected, self.fmt, self.model.any_nan)
            count = int(wrong.sum())
            if count and self.first is None:
                i = int(wrong.argmax())
                self.first = int(operands[i]), int(results[i]), int(expected[i])
            self.mismatches += count
        self.words += results.size


def results_digest(operands: Any, results: Any) -> int:
    """Return the sum of splitmix64 of operand · 2^32 + result, modulo 2^64. Source: Steele et al., OOPSLA 2014."""
    xp = module_of(operands)
    mixed = operands.astype(np.uint64) << np.uint64(32) | results.astype(np.uint64)
    mixed += np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return int(xp.sum(mixed ^ mixed >> np.uint64(31), dtype=np.uint64))

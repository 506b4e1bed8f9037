"""Compare two functions operand by operand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.function.measure import SAMPLED_WORDS, FunctionRequest, chunks_of
from accprobe.function.reference import unlike
from accprobe.function.subjects import Subject
from accprobe.gemm.verification import ordered


@dataclass(frozen=True)
class FunctionDifference:
    """Operands with different results. largest: in units in the last place, at operand `at`; first: (operand, one, other)."""

    words: int
    differing: int
    largest: int
    at: int
    first: tuple[int, int, int] | None


def compare_functions(one: Subject, other: Subject, request: FunctionRequest) -> FunctionDifference:
    """Compare two functions of one operand format on all operands, or 2^26. Raises AccprobeError for two result formats."""
    if one.result is not other.result:
        raise AccprobeError(
            f"{one.name} returns {one.result} and {other.name} {other.result}: their results cannot be compared"
        )
    bits = one.operand.bits + one.operand.ignored_low_bits
    total = 1 << bits if bits <= 16 or request.exhaustive else SAMPLED_WORDS
    words = differing = largest = at = 0
    first: tuple[int, int, int] | None = None
    for operands in chunks_of(one, total):
        left, right = one.words(operands), other.words(operands)
        places = np.flatnonzero(unlike(left, right, one.result, any_nan=True))
        words, differing = words + len(operands), differing + len(places)
        if not len(places):
            continue
        far = np.abs(ordered(one.result, left[places]) - ordered(one.result, right[places]))
        if first is None:
            first = (int(operands[places[0]]), int(left[places[0]]), int(right[places[0]]))
        if far.max() > largest:
            largest, at = int(far.max()), int(operands[places[far.argmax()]])
    return FunctionDifference(words, differing, largest, at, first)


def in_words(found: FunctionDifference, one: Subject, other: Subject) -> str:
    """Return the difference in one sentence."""
    if found.first is None:
        return f"{one.name} and {other.name}: the same bits for {found.words:,} operands"
    digits, result_digits = one.operand.storage_bits // 4, one.result.storage_bits // 4
    operand, left, right = found.first
    return (
        f"{one.name} and {other.name} differ for {found.differing:,} of {found.words:,} operands,"
        f" by at most {found.largest:,} ulp (at 0x{found.at:0{digits}x}); first at 0x{operand:0{digits}x}:"
        f" 0x{left:0{result_digits}x} and 0x{right:0{result_digits}x}"
    )

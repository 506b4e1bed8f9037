"""Compare the results of two functions on the same operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.function.reference import is_nan, unlike
from accprobe.function.subjects import Subject, chunks_of, count_compared
from accprobe.isa.formats import Bits, ordered


@dataclass
class ResultDifference:
    """Operands with different results of the functions `one` and `other`. operands: what they are, in words. largest: the
    largest difference in units in the last place. first: in words. Raises AccprobeError for two result formats.
    """

    one: Any
    other: Any
    operands: str
    compared: int = 0
    differing: int = 0
    largest: int = 0
    first: str = ""

    def __post_init__(self) -> None:
        if self.one.result is not self.other.result:
            names = f"{self.one.name} returns {self.one.result} and {self.other.name} {self.other.result}"
            raise AccprobeError(f"{names}: their results cannot be compared")

    def add(self, left: Bits, right: Bits) -> NDArray[np.intp]:
        """Count results that differ, and return their places."""
        fmt = self.one.result
        places = np.flatnonzero(unlike(left, right, fmt, any_nan=True))
        self.compared, self.differing = self.compared + len(left), self.differing + len(places)
        numbers = places[~(is_nan(left[places], fmt) | is_nan(right[places], fmt))]
        far = np.abs(ordered(fmt, left[numbers]) - ordered(fmt, right[numbers]))
        self.largest = max(self.largest, int(far.max(initial=0)))
        return places

    def __str__(self) -> str:
        names = f"{self.one.name} and {self.other.name}"
        if not self.differing:
            return f"{names}: the same bits for {self.compared:,} {self.operands}"
        ulp = f", by at most {self.largest:,} ulp" if self.largest else ""
        return f"{names} differ for {self.differing:,} of {self.compared:,} {self.operands}{ulp}; first: {self.first}"


def compare_functions(one: Subject, other: Subject, exhaustive: bool) -> ResultDifference:
    """Compare two functions of one operand format on all operands, or 2^26. Raises AccprobeError for two result formats."""
    found = ResultDifference(one, other, "operands")
    for operands in chunks_of(one, count_compared(one.operand, exhaustive)):
        left, right = one.words(operands), other.words(operands)
        places = found.add(left, right)
        if len(places) and not found.first:
            digits = one.operand.storage_bits // 4, one.result.storage_bits // 4
            operand, *words = (int(each[places[0]]) for each in (operands, left, right))
            found.first = f"x = 0x{operand:0{digits[0]}x}: " + " and ".join(f"0x{word:0{digits[1]}x}" for word in words)
    return found

"""A callable as the black box that is asked: operands handed over, the call, what comes back looked at and taken."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import replace
from typing import Any

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.evaluate.product import ScaleWords, Singles
from accprobe.gemm.failures import one_sentence
from accprobe.gemm.handover import Handover, Received
from accprobe.gemm.layout import layout_of
from accprobe.gemm.repeatability import first_operands
from accprobe.gemm.spec import BLOCK, Spec
from accprobe.isa.formats import FORMATS, Bits, Format

_SCALES = ("scale of a", "scale of b")

Multiply = Callable[..., Any]
"""f(a, b) -> d, or f(a, b, scale_a, scale_b) -> d, of a library's arrays."""


class CallableAdapter:
    """A `BlackBox`: one function asked about one spec.

    name: what messages call it. by_columns: b [K, N] is contiguous along K, as `torch._scaled_mm` demands it. file: the user's,
    whose lines messages name. before: results of the calls that open it, of `first_operands`.
    """

    def __init__(
        self, spec: Spec, function: Multiply, handover: Handover, name: str, by_columns: bool = False, file: str = ""
    ) -> None:
        self.spec, self.name, self.handover = spec, name, handover
        self._function, self._by_columns, self._file = function, by_columns, file
        self._given: tuple[Any, ...] = ()
        self._calls = 0
        self.before: list[Bits] = []

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        self.hand(a, b, scales)
        d = self._taken(self.call())
        self._calls += 1
        if self._calls & (self._calls - 1) == 0:
            self._check_unchanged(a, b, scales)
        return d

    def _check_unchanged(self, a: Bits, b: Bits, scales: ScaleWords | None) -> None:
        """Raise AccprobeError where the call changed an operand: in calls 1, 2, 4, 8 and so on, as reading back takes time."""
        spec, f32 = self.spec, FORMATS["f32"]
        handed: list[tuple[str, Format, Bits]] = [("a", spec.a, a), ("b", spec.b, b.T)]
        if spec.scale is not None:
            handed += [(name, f32, words.view(np.uint32)) for name, words in zip(_SCALES, self._scales(scales), strict=True)]
        for (name, fmt, patterns), given in zip(handed, self._given, strict=True):
            with self._one_sentence("has operands that cannot be read back:"):
                changed = self.handover.patterns(given, fmt) != patterns
            if changed.any():
                raise AccprobeError(
                    f"{self.name} changes its operand {name} in place, in {np.count_nonzero(changed):,} of {changed.size:,}"
                    f" elements: let it work on a copy of {name}, or call it through a function that copies {name}"
                )

    def hand(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> None:
        """a [M, K] and b [N, K] become the operands of the calls to come; scales that are not given are 1."""
        spec = self.spec
        self._given = ()
        with self._one_sentence("could not receive its operands:"):
            given = [self.handover.operand("a", a, spec.a), self.handover.operand("b", b.T, spec.b, self._by_columns)]
            if spec.scale is not None:
                given += map(self.handover.scale, _SCALES, self._scales(scales))
        self._given = tuple(given)

    def _scales(self, scales: ScaleWords | None) -> tuple[Singles, Singles]:
        """As the function takes them."""
        words = scales or ones(self.spec)
        return words.a, words.b[:, ::BLOCK] if self.spec.scale == "128x128" else words.b

    def call(self) -> Any:
        """Once more, with the operands that it was handed. Raises AccprobeError where it raises.

        What it prints goes to standard error: standard output has the report.
        """
        with self._one_sentence("raises"), np.errstate(all="ignore"), redirect_stdout(sys.stderr):
            return self._function(*self._given)

    def _one_sentence(self, what: str) -> AbstractContextManager[None]:
        return one_sentence(f"{self.name} {what}", self.handover.device, self._file)

    def _taken(self, result: Any) -> Bits:
        found, spec = self._received(result), self.spec
        if found.shape != (spec.m, spec.n):
            shape = (spec.m, spec.n)
            turned = " (transposed?)" if found.shape == shape[::-1] else ""
            told = f"{self.name} gives an array of shape {found.shape}{turned}"
            raise AccprobeError(f"{told}: a product of {spec.shape} has {shape}")
        if found.fmt is not spec.out:
            told = f"{found.type} is {found.fmt}: give --out {found.fmt}" if found.fmt else "no format that is known here"
            raise AccprobeError(f"{self.name} gives an array of {found.type}, and {spec.out} was asked for; {told}")
        with self._one_sentence(f"fails on {self.handover.device}:"):  # of a kernel that failed after it was launched
            return self.handover.patterns(result, spec.out)

    def _received(self, result: Any) -> Received:
        with self._one_sentence("gives what cannot be read:"):
            found = self.handover.received(result)
        if found is None:
            kind = "nothing" if result is None else f"a {type(result).__name__}"
            raise AccprobeError(f"{self.name} gives {kind}, which is no array of {self.handover.arrays}: see --arrays")
        return found

    def take_result_format(self) -> None:
        """Call it with `first_operands`; the format of the result becomes the spec's.

        Raises AccprobeError where that is no array of numbers.
        """
        self.hand(*first_operands(self.spec))
        result = self.call()
        found = self._received(result)
        if found.fmt is None:
            raise AccprobeError(f"{self.name} gives an array of {found.type}, which is no format that is known here")
        self.spec = replace(self.spec, out=found.fmt)
        self.before.append(self._taken(result))

    def check(self) -> None:
        """Call it with `first_operands`. Raises AccprobeError where it raises, gives another shape or type, or NaN."""
        d = self.product(*first_operands(self.spec))
        if self.spec.out.is_float and (wrong := np.argwhere(self.spec.out.fields(d).is_nan)).size:
            row, column = wrong[0]
            raise AccprobeError(
                f"{self.name} gives NaN for random numbers, {len(wrong)} of {d.size} (first at row {row}, column {column}):"
                " this is no product of two matrices"
            )
        self.before.append(d)


def of_ones(spec: Spec) -> tuple[Bits, Bits]:
    """A [M, K], where it is asked, and B [N, K]."""
    first, second = (1 if fmt.is_integer else fmt.encode(False, 1, 0) for fmt in (spec.a, spec.b))
    return layout_of(spec).a(np.full((spec.m, spec.k), first, spec.a.dtype)), np.full((spec.n, spec.k), second, spec.b.dtype)


def ones(spec: Spec) -> ScaleWords:
    """Scales of 1."""
    blocks = -(-spec.k // BLOCK)
    rows, columns = {"tensor": ((1, 1), (1, 1)), "row": ((spec.m, 1), (1, spec.n))}.get(
        spec.scale or "", ((spec.m, blocks), (blocks, spec.n))
    )
    return ScaleWords(np.ones(rows, np.float32), np.ones(columns, np.float32))

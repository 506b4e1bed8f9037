"""A row of the report for a swept configuration of a Triton GEMM."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from accprobe.build.lowerings import OpcodeSource
from accprobe.records.claims import StrictRecord
from accprobe.records.findings import Bound

OperandSet = Literal["normal", "full-width"]
"""Operand distributions of a sweep."""


class EffectiveBits(StrictRecord):
    """Fraction bits of a partial sum: `exact`, or `at_least` where the operands need no more."""

    value: int
    bound: Bound


class Prediction(StrictRecord):
    """The results of a model for the same operands, on a sample of the elements.

    differ: elements, of all masks together, with other bits than the device's.
    """

    source: str
    elements: int
    differ: int
    relative_error: float
    effective_bits: EffectiveBits | None = None


class SweepRecord(StrictRecord):
    """One configuration of the kernel on one set of operands.

    masks: (masked low bits, changed elements of the M × N). control: the same for exact sums of the same operands, on
    `control_elements` elements. errors: |C - exact| / |exact| with each mask, Frobenius norms; relative_error: without a mask.
    reason: why nothing was measured, or a restriction.
    """

    dtype: str
    operands: OperandSet
    block_k: int
    num_warps: int
    block_m: int
    block_n: int
    m: int
    n: int
    k: int
    promote_every: int | None = None
    reason: str = ""
    triton: str = ""
    num_stages: int | None = None
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    opcodes: tuple[str, ...] = ()
    lowering: tuple[tuple[str, int], ...] = ()
    opcode_source: OpcodeSource | None = None
    cubin_sha256: str | None = None
    effective_bits: EffectiveBits | None = None
    relative_error: float | None = None
    tflops: float | None = None
    masks: tuple[tuple[int, int], ...] = ()
    errors: tuple[float, ...] = ()
    control: tuple[tuple[int, int], ...] = ()
    control_elements: int | None = None
    prediction: Prediction | None = None
    compile_seconds: float | None = None
    seconds: float | None = None

    @property
    def measured(self) -> bool:
        return self.relative_error is not None

    @property
    def key(self) -> tuple[object, ...]:
        """Return what identifies the record: of two with one key, the newer one counts."""
        shape = (self.dtype, self.operands, self.block_k, self.num_warps, self.block_m, self.block_n, self.m, self.n, self.k)
        return (*shape, self.promote_every)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.measured and not self.reason:
            raise ValueError("reason: nothing was measured, and there is no reason")
        return self

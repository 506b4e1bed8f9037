"""A row of the report for a swept configuration of a Triton GEMM."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from accprobe.build.lowerings import OpcodeSource
from accprobe.records.claims import StrictRecord
from accprobe.records.findings import Bound

OperandSet = Literal["normal", "full-width", "uniform"]
"""Operand distributions of a sweep: of floats `normal` and `full-width`; of integers, in older reports, `uniform`."""


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


OverflowRule = Literal["wrap", "saturate", "neither"]


class Overflow(StrictRecord):
    """The range of 32-bit integer sums.

    largest, smallest: the outermost sums with a correct result. rule: what explains all others.
    """

    largest: int
    smallest: int
    rule: OverflowRule


class Profile(StrictRecord):
    """Executions of matrix opcodes in one launch for M = N = K = size.

    executed: counted by the profiler. expected: occurrences of the opcode in the cubin, times blocks along K, programs and
    warps.
    """

    size: int
    executed: tuple[tuple[str, int], ...]
    expected: tuple[tuple[str, int], ...]


class SweepRecord(StrictRecord):
    """One configuration of the kernel on one set of operands.

    masks: (masked low bits, changed elements of the M × N). control: the same for exact sums of the same operands, on
    `control_elements` elements. errors: |C - exact| / |exact| with each mask, Frobenius norms; relative_error: without a mask.
    reason: why nothing was measured, or a restriction. unit_overflow: of integer sums that stay in the matrix unit's
    accumulator from block to block; add_overflow: of ordinary additions of the blocks' integer sums; both in older reports.
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
    profile: Profile | None = None
    effective_bits: EffectiveBits | None = None
    relative_error: float | None = None
    tflops: float | None = None
    masks: tuple[tuple[int, int], ...] = ()
    errors: tuple[float, ...] = ()
    control: tuple[tuple[int, int], ...] = ()
    control_elements: int | None = None
    prediction: Prediction | None = None
    unit_overflow: Overflow | None = None
    add_overflow: Overflow | None = None
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

"""An assertion on a product's result: each element must be as close to the exact sum as the named arithmetic allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from accprobe.budget.accumulation import of_named
from accprobe.budget.error_check import FALSE_ALARMS, Emulated, Mismatch, Tolerance
from accprobe.budget.mutants import Operation
from accprobe.callables.arrays import library_of
from accprobe.callables.operands import scale_words
from accprobe.callables.spec import BLOCK, SCALE_KINDS, Spec
from accprobe.errors import AccprobeError
from accprobe.evaluate.product import ScaleWords
from accprobe.isa import formats
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import Scales


def assert_matmul_close(
    got: Any,
    a: Any,
    b: Any,
    *,
    like: str,
    promote_every: int | None = None,
    split_k: int | None = None,
    out: str | None = None,
    scales: tuple[Any, Any] | None = None,
    false_alarms: float = FALSE_ALARMS,
) -> None:
    """Assert that got [M, N] is within the error bound of this arithmetic from the exact product of a [M, K] and b [K, N].

    like: "h200:wgmma.m64n8k32.f32.e4m3.e4m3", an opcode such as "QGMMA", or "products-h200:" and words of a measured product,
    whose promotion and split-K are the defaults of promote_every and split_k. out: format of the results before a conversion to
    the format of `got`, which is the default. scales: of a and b, float32: one each; [M, 1] and [1, N]; or, with
    promote_every=128, [M, K/128] and [K/128, N] or [K/128, N/128]. false_alarms: share of correct elements that may be
    rejected; the bound follows from emulated results (accprobe/budget/error_check.py).
    Arrays are numpy's, with ml_dtypes' small floats, or torch tensors on any device.

    Raises AssertionError with the element, its error in multiples of the bound and the likeliest cause. Raises AccprobeError if
    names, shapes or types do not fit, or if there is no bound: NaN or infinite operands, sums that can overflow.
    """
    __tracebackhide__ = True
    accumulation = of_named(like)
    of_a, of_b = _patterns(a, accumulation.a, "a"), np.ascontiguousarray(_patterns(b, accumulation.b, "b").T)
    if of_a.shape[1] != of_b.shape[1] or not of_a.size or not of_b.size:
        raise AccprobeError(f"a {list(of_a.shape)} and b {list(of_b.shape[::-1])} do not match; expected [M, K] and [K, N]")
    result = _format(got, "got")
    words = _patterns(got, result, "got")
    if words.shape != (len(of_a), len(of_b)):
        raise AccprobeError(f"got has shape {list(words.shape)}; expected {[len(of_a), len(of_b)]}")
    promote_every, split_k = promote_every or accumulation.promote_every, split_k or accumulation.split_k
    spec = Spec(len(of_a), len(of_b), of_a.shape[1], accumulation.a, accumulation.b, result)
    scaling, words_of_scales = _scales(spec, scales, promote_every)
    model = accumulation.model(spec.k, promote_every, split_k, formats.get(out) if out else result, scaling)
    if words_of_scales is not None and model.scales_by_block and len(model.block_of) != words_of_scales.a.shape[1]:
        raise AccprobeError(f"split_k={split_k}: a border between slices lies within a block of {BLOCK} that has one scale")
    if not 0 < false_alarms < 1:
        raise AccprobeError(f"false_alarms={false_alarms}: give a share between 0 and 1")
    probed = Operation(model, of_a, of_b, words_of_scales)
    tolerance = Tolerance.at_rate(Emulated.of(probed), false_alarms)
    unbounded = int(np.count_nonzero(np.isinf(tolerance.bound)))
    if unbounded:
        raise AccprobeError(
            f"{unbounded:,} of {words.size:,} elements have no bound: their operands are NaN or infinite, or sums can overflow"
            f" {model.result} or the accumulator of {accumulation.name}"
        )
    values = result.values(words)
    beyond = tolerance.beyond(values)
    if beyond.any():
        how = f"promotion interval {promote_every}" if promote_every else "never promoted"
        raise AssertionError(
            Mismatch(tolerance, values, beyond).sentence(f"{accumulation.name}, {how}, K = {model.k}, result {model.result}")
        )


def _scales(spec: Spec, scales: tuple[Any, Any] | None, promote_every: int | None) -> tuple[Scales | None, ScaleWords | None]:
    """Return how the scales are applied, which their shapes determine, and the scales. Raises AccprobeError."""
    if scales is None:
        return None, None
    a, b = (_patterns(x, FORMATS["f32"], "a scale").view(np.float32) for x in map(_two_dimensional, scales))
    of = next((each for each in SCALE_KINDS if replace(spec, scale=each).scale_shapes == (a.shape, b.shape)), None)
    if of is None:
        raise AccprobeError(
            f"scales of {list(a.shape)} and {list(b.shape)} are no scales of {spec.m} rows, {spec.n} columns and K = {spec.k}"
        )
    if "x" in of and promote_every != BLOCK:
        raise AccprobeError(f"scales of blocks of {BLOCK} are applied where sums are promoted: give promote_every={BLOCK}")
    return Scales(of), scale_words(replace(spec, scale=of), a, b)


def _two_dimensional(x: Any) -> Any:
    """Return a lone number as a matrix."""
    if isinstance(x, float | int | np.floating):
        return np.array([[x]], np.float32)
    return x.reshape(1, 1) if x.ndim == 0 else x


def _patterns(x: Any, fmt: Format, name: str) -> Bits:
    """Return the bit patterns of a matrix of that format, or of f32 if it is tf32. Raises AccprobeError for others."""
    found = _format(x, name)
    if found is not fmt and not (found is FORMATS["f32"] and fmt is FORMATS["tf32"]):
        raise AccprobeError(f"{name} is {found}, and that arithmetic takes {fmt}: convert it")
    return library_of(x).patterns(x, fmt)


def _format(x: Any, name: str) -> Format:
    received = library_of(x).received(x)
    if received is None or received.fmt is None or received.fmt.is_integer or len(received.shape) != 2:
        given = f"{received.type} {list(received.shape)}" if received else type(x).__name__
        raise AccprobeError(f"{name} is {given}: give a matrix of float numbers, of numpy or torch")
    return received.fmt

"""Recognise results that are rounded twice, or that are clamped or saturate, from single products.

A plan describes one rounding to the format of D. Other conversions are named, and their callable has no plan.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import Singles
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import layout_of
from accprobe.isa.formats import FORMATS, Format
from accprobe.operands.distributions import random_lines

# Formats to which sums may be rounded before they are rounded to D.
FIRST_FORMATS = ("f16", "bf16", "e4m3", "e5m2")
# Share of the results that must agree. Single products in f32 may be rounded either way.
AGREEING = 0.99
# Exponents of f32 products, so that none is subnormal, or infinite before it is converted.
EXPONENTS = (-120, 120)


def find_nan_overflow(subject: RecordedCallable) -> str:
    """Return the reason why no plan describes results that become NaN if D has no infinity, as of ml_dtypes; "" otherwise."""
    spec, layout = subject.spec, layout_of(subject.spec)
    if not spec.out.is_float or spec.out.infinity is not None:
        return ""
    a, b = layout.blank()
    a[:, 0], b[:, 0] = layout.power(spec.out.max_exponent + 1)
    if not np.isnan(spec.out.values(subject.product(a, b, keep=False))).any():
        return ""
    most = f"±{spec.out.largest_value:g}"
    return f"results beyond {most} become NaN; clamp them to {most}, or return bf16 (--out bf16)"


def find_conversion(subject: RecordedCallable, seed: int) -> str:
    """Return how single products become results, "" if one rounding explains them or nothing does."""
    spec, rng = subject.spec, np.random.default_rng((seed, 0xC0))
    if not spec.out.is_float or spec.out.ml_dtype is None or spec.scale is not None or spec.a_exponent is not None:
        return ""
    a, b = layout_of(spec).blank()
    for fmt, operand in ((spec.a, a), (spec.b, b)):
        operand[:, :1] = random_lines(fmt, (len(operand), 1), "normal", rng)
        operand[::2, :1] = random_lines(fmt, operand[::2, :1].shape, "wide", rng)
    d = spec.out.values(subject.product(a, b, keep=False))
    with np.errstate(all="ignore"):
        exact = np.outer(spec.a.values(a[:, 0]), spec.b.values(b[:, 0]))
        there = (np.abs(exact) > 2.0 ** EXPONENTS[0]) & (np.abs(exact) < 2.0 ** EXPONENTS[1])
        products, d = exact[there].astype(np.float32), d[there]

        def explains(values: Singles) -> bool:
            """Round as a plan does: a format without infinity saturates."""
            largest = np.float32(np.inf if spec.out.infinity is not None else spec.out.largest_value)
            expected = _rounded(np.clip(values, -largest, largest), spec.out)
            return bool(((d == expected) | np.isnan(d) & np.isnan(expected)).mean() >= AGREEING)

        if not len(d) or explains(products):
            return ""
        return next((words for words, values in _conversions(products, d, spec.out) if explains(values)), "")


def _conversions(products: Singles, d: Floats, out: Format) -> Iterator[tuple[str, Singles]]:
    for name in FIRST_FORMATS:
        first = FORMATS[name]
        most = np.float32(first.largest_value)
        words = f"results are rounded to {name}, then to {out}"
        if first is not out:
            yield words, _rounded(products, first)
            yield f"{words}, and saturate at ±{most:g}", _rounded(np.clip(products, -most, most), first)
    largest = np.float32(np.max(np.abs(d), where=np.isfinite(d), initial=0))
    yield f"results beyond ±{largest:g} become ±{largest:g}: a clamp", np.clip(products, -largest, largest)


def _rounded(values: Singles, fmt: Format) -> Singles:
    return values.astype(fmt.ml_dtype).astype(np.float32)

"""Scales that are applied to the operands, before they are multiplied: each scaled one is rounded to some format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.product import ScaleWords, is_multiply_add, product
from accprobe.gemm.blackbox import WholeCall
from accprobe.gemm.pairs import Ints
from accprobe.gemm.plans import ProductPlan
from accprobe.gemm.spec import BLOCK
from accprobe.gemm.verification import of_lines
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import ProductModel, multiply_add

SCALED_FORMATS = ("f32", "bf16", "f16")
"""Formats that scaled operands are rounded to."""

SIDE, MOST_EXPLAINED = 64, 4
"""Rows, and columns, of whole products that are explained, and how many of them are."""

MOST_ERROR = 2.0**-4
"""Of the largest result of a call, by how much one may differ from the prediction of a plan that is worth suggesting."""


class ScaledCall(NamedTuple):
    """Some rows and columns of a scaled product: a [rows, K], b [columns, K], their scales and what came back."""

    a: Bits
    b: Bits
    scales: ScaleWords
    d: Bits


def applied_before(model: ProductModel, calls: Sequence[ScaledCall]) -> str:
    """Name how scales are applied before the product, where that explains every result. "" where it does not.

    model: of the product where every scale is 1.
    """
    for name in SCALED_FORMATS:
        fmt = FORMATS[name]
        for plain in _of_format(model, fmt):
            if all(np.array_equal(product(plain, *_scaled(call, model, fmt)), call.d) for call in calls):
                return f"the scales are applied to A and B before the product, which is of their values rounded to {name}"
    return ""


def explain_calls(plan: ProductPlan, calls: Sequence[WholeCall], rows: Ints, columns: Ints) -> str:
    """The same of whole products that a plan with scales does not explain: a narrow D shows the difference in but a few."""
    rows, columns = rows[:SIDE], columns[:SIDE]
    some = [
        ScaledCall(x.a[rows], x.b[columns], of_lines(x.scales, rows, columns), x.d[np.ix_(rows, columns)])
        for x in calls[:MOST_EXPLAINED]
        if x.scales is not None
    ]
    return applied_before(replace(plan, scales=None).model(), some) if some and not plan.unordered else ""


def is_far_off(model: ProductModel, calls: Sequence[ScaledCall]) -> bool:
    """Whether some result differs from the model's by much more than roundings."""
    return any(_error(model, call) > MOST_ERROR for call in calls)


def _of_format(model: ProductModel, fmt: Format) -> Iterator[ProductModel]:
    """The model without scales for operands of another format; multiply-adds of both kinds, alike for exact products."""
    plain = replace(model, a=fmt, b=fmt, scales=None)
    steps = [multiply_add(), multiply_add(product_bits=23)] if is_multiply_add(model) else [model.step]
    yield from (replace(plain, step=step) for step in steps)


def _scaled(call: ScaledCall, model: ProductModel, fmt: Format) -> tuple[Bits, Bits]:
    k = call.a.shape[1]
    assert fmt.ml_dtype is not None
    words = []
    for operand, patterns, scales in ((model.a, call.a, call.scales.a), (model.b, call.b, call.scales.b.T)):
        each = np.repeat(scales, BLOCK, axis=1)[:, :k] if scales.shape[1] > 1 else scales
        with np.errstate(all="ignore"):
            values = operand.values(patterns).astype(np.float32) * each.astype(np.float32)
            words.append(values.astype(fmt.ml_dtype).view(fmt.dtype))
    return words[0], words[1]


def _error(model: ProductModel, call: ScaledCall) -> float:
    """The largest difference of a finite result from the model's, relative to the largest of them."""
    got, expected = (model.result.values(d) for d in (call.d, product(model, call.a, call.b, scales=call.scales)))
    finite = np.isfinite(got) & np.isfinite(expected)
    return float(np.max(abs(got - expected)[finite], initial=0) / max(np.max(abs(got)[finite], initial=0), 2.0**-126))

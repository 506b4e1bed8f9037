"""The exact sum that a product's result is compared with, in float64, and how far it may itself be off."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accprobe.evaluate.decoding import values_of
from accprobe.evaluate.error_free import Floats, two_product, two_sum
from accprobe.evaluate.product import ScaleWords, rounded_words
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import NO_K, ProductModel

F64 = FORMATS["f64"]

ULP = 2.0**-F64.mantissa_bits


class Exact(NamedTuple):
    """sums [M, N], no further from the exact ones than off; sizes: the sums of |a·b|, about."""

    sums: Floats
    off: Floats
    sizes: Floats


def exact_product(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Exact:
    """Of a [M, K], b [N, K], bit patterns, as their formats have them, times both scales.

    Products of all formats but f64 are exact in float64; those are added with the errors of each sum and product.
    """
    x, y = (_values(fmt, words, model) for fmt, words in ((model.a, a), (model.b, b)))
    with np.errstate(all="ignore"):
        if F64 in (model.a, model.b):
            sums, rest = _compensated(x, y)
            sizes = np.abs(x) @ np.abs(y).T
            return Exact(sums, np.abs(sums) * ULP + sizes * (model.k * ULP) ** 2 + rest, sizes)
        if scales is not None and model.scales is not None:
            x, y = x * by_k(model, scales.a.astype(np.float64)), y * by_k(model, scales.b.T.astype(np.float64))
        sizes = np.abs(x) @ np.abs(y).T
        return Exact(x @ y.T, sizes * ((model.k + 4) * ULP), sizes)


def by_k(model: ProductModel, scales: Floats) -> Floats:
    """Scales [lines, blocks], or one a line, for each k."""
    if not model.scales_inside:
        return scales
    found = np.ones((len(scales), model.k))
    for chain, block in model.block_of.items():
        found[:, chain.ks()[chain.ks() != NO_K]] = scales[:, [block]]
    return found


def _values(fmt: Format, words: Bits, model: ProductModel) -> Floats:
    return values_of(rounded_words(fmt, words, model.operand_rounding), fmt, "kept")


def _compensated(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """After Ogita, Rump and Oishi, "Accurate sum and dot product" (2005); and what underflows."""
    total, rest = np.zeros((len(x), len(y))), np.zeros((len(x), len(y)))
    for k in range(x.shape[1]):
        product, off = two_product(*np.broadcast_arrays(x[:, [k]], y[None, :, k]))
        total, error = two_sum(total, product)
        rest += error + off
    return total + rest, np.full_like(total, x.shape[1] * 2.0**-1000)

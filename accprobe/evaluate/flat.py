"""A `DotModel` as arrays of numbers, which compiled code walks: one record a fused sum, children before parents.

Rules are their place in the `Literal` that names them (`model`). Bit patterns of 64 bits stand in int64, their sign bit as
its sign.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import (
    AlignmentRounding,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    IntegerOverflow,
    Overflow,
    ProductExponent,
    Rounding,
    Subnormals,
    UnderflowSign,
    ZeroSign,
    ZeroTerms,
)

Numbers = NDArray[np.int64]

FORMAT = np.dtype(
    [
        (name, np.int64)
        for name in (
            "bits",
            "signed",
            "mantissa",
            "ignored",
            "biased_mask",
            "bias",
            "min_exponent",
            "max_exponent",
            "largest",
            "has_infinity",
            "infinity",
            "sign_bit",
            "sign_shift",
            "flushed",
        )
    ]
)
"""largest: the largest finite magnitude without the ignored bits. flushed: subnormals are read as zero."""

NODE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "kind",
            "first_product",
            "end_products",
            "first_other",
            "end_others",
            "result_bits",
            "result_rounding",
            "alignment_bits",
            "alignment_rounding",
            "product_exponent",
            "has_floor",
            "min_exponent",
            "zeros_aligned",
            "ieee_zero",
            "positive_underflow",
            "overflows_to_largest",
            "flushes_results",
            "nan",
            "payload",
            "saturates",
        )
    ]
)
"""payload: the letters of nan_payload as digits, 1 to 3, the first one highest; 0: dropped."""

ALIGNED, EXACT, INTEGER = range(3)
A, B, OTHERS = range(3)
"""Places in `Flat.formats`; of term i that is no product, OTHERS + i."""


class Flat(NamedTuple):
    """nodes: of NODE; products, others: what the nodes' ranges index; formats: of FORMAT.

    Terms that are no products are numbered: i is the result of node i, and the last one is C.
    """

    nodes: NDArray[np.void]
    products: Numbers
    others: Numbers
    formats: NDArray[np.void]


def flatten(model: DotModel, inst: Instruction) -> Flat:
    """The model of that instruction as arrays."""
    nodes: list[dict[str, int]] = []
    products: list[int] = []
    others: list[int] = []
    formats = [_format(fmt, model.subnormal_operands) for fmt in (inst.a, inst.b)]
    addend = sum(1 for _ in model.root.nodes())

    def add(node: FusedSum) -> int:
        terms = [add(child) for child in node.children] + [addend] * node.has_addend
        ranges = {"first_product": len(products), "first_other": len(others)}
        products.extend(node.products)
        others.extend(terms)
        ranges |= {"end_products": len(products), "end_others": len(others)}
        formats.append(_format(node.arithmetic.result, "kept"))
        if isinstance(node.arithmetic, IntegerArithmetic):
            overflow = get_args(IntegerOverflow).index(node.arithmetic.overflow)
            nodes.append(ranges | {"kind": INTEGER, "saturates": overflow})
        else:
            nodes.append(ranges | _float_fields(node.arithmetic))
        return len(nodes) - 1

    add(model.root)
    formats.append(_format(inst.c, model.subnormal_addend))
    return Flat(_records(NODE, nodes), np.array(products, np.int64), np.array(others, np.int64), _records(FORMAT, formats))


def _records(dtype: np.dtype[np.void], rows: list[dict[str, int]]) -> NDArray[np.void]:
    return np.array([tuple(row.get(name, 0) for name in dtype.names or ()) for row in rows], dtype)


@lru_cache(maxsize=4096)
def _float_fields(arithmetic: FloatArithmetic) -> dict[str, int]:
    payload = "" if arithmetic.nan_payload == "dropped" else arithmetic.nan_payload
    return {
        "kind": EXACT if arithmetic.alignment_bits is None else ALIGNED,
        "result_bits": arithmetic.result_bits,
        "result_rounding": get_args(Rounding).index(arithmetic.result_rounding),
        "alignment_bits": arithmetic.alignment_bits or 0,
        "alignment_rounding": get_args(AlignmentRounding).index(arithmetic.alignment_rounding),
        "product_exponent": get_args(ProductExponent).index(arithmetic.product_exponent),
        "has_floor": int(arithmetic.min_exponent is not None),
        "min_exponent": arithmetic.min_exponent or 0,
        "zeros_aligned": get_args(ZeroTerms).index(arithmetic.zero_terms),
        "ieee_zero": get_args(ZeroSign).index(arithmetic.zero_sign),
        "positive_underflow": get_args(UnderflowSign).index(arithmetic.underflow_sign),
        "overflows_to_largest": get_args(Overflow).index(arithmetic.overflow),
        "flushes_results": get_args(Subnormals).index(arithmetic.subnormal_results),
        "nan": _signed(arithmetic.nan),
        "payload": int("0" + "".join(str(" abc".index(letter)) for letter in payload.split())),
    }


@cache
def _format(fmt: Format, subnormals: Subnormals) -> dict[str, int]:
    row = {"bits": fmt.bits, "signed": int(fmt.kind == "signed"), "largest": fmt.largest >> fmt.ignored_low_bits}
    if fmt.is_float:
        row |= {
            "mantissa": fmt.mantissa_bits,
            "ignored": fmt.ignored_low_bits,
            "biased_mask": (1 << fmt.exponent_bits) - 1,
            "bias": fmt.bias,
            "min_exponent": fmt.min_exponent,
            "max_exponent": fmt.max_exponent,
            "has_infinity": int(fmt.infinity is not None),
            "infinity": fmt.infinity or 0,
            "sign_bit": _signed(fmt.sign_bit),
            "sign_shift": fmt.sign_bit.bit_length() - 1,
            "flushed": int(subnormals == "flushed"),
        }
    return row


def _signed(pattern: int) -> int:
    return pattern - (1 << 64) if pattern >> 63 else pattern

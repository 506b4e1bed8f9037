"""One step of a chain for compiled code: a model as records of numbers, if compiled code supports it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import NOTHING
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import with_values
from accprobe.model.product import addition, multiply_add
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum

# Columns that are computed together.
LANES = 64

# Number of each rounding to an integer, of results and of aligned terms, in compiled code.
WHOLE_BY = {
    "RZ": 0,
    "truncate": 0,
    "RNE": 1,
    "nearest": 1,
    "RU": 2,
    "ceiling": 2,
    "RD": 3,
    "floor": 3,
    "RNA": 4,
    "nearest away": 4,
    "sticky": 5,
    "away": 6,
}

# One fused sum. lowest: the smallest exponent in the alignment, or NOTHING. zero: added to sums, +0 makes zeros
# positive, -0 keeps their signs. Sums larger than `most` or smaller than `least` are doubtful.
NODE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "end_products",
            "end_others",
            "exact",
            "by_product",
            "lowest",
            "alignment_bits",
            "alignment_rounding",
            "result_bits",
            "result_rounding",
            "min_exponent",
            "underflow_is_positive",
            "doubts_zeros",
        )
    ]
    + [(name, np.float64) for name in ("zero", "least", "most")]
)


@dataclass(frozen=True, eq=False)
class CompiledStep:
    """One step for compiled code.

    order: its products, sum by sum. sums: arithmetic of the sums that add products. ends: where each sum's products end in
    `order`. nodes, others: see `lanes.sums_in_turn`. fused: whether the multiply-adds of float32 or float64 are fused, None
    if the step is no chain of them.
    """

    model: DotModel
    order: NDArray[np.int64]
    sums: tuple[FloatArithmetic, ...]
    ends: NDArray[np.int64]
    nodes: NDArray[np.void]
    others: NDArray[np.int64]
    fused: bool | None

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of the values that are summed."""
        return np.dtype(np.float64 if self.fused is None else self.sums[0].result.ml_dtype)

    @cached_property
    def in_order(self) -> bool:
        return bool((np.diff(self.order) > 0).all())

    @cached_property
    def least_addend(self) -> float:
        """Smaller C are read as zero."""
        flushed = self.model.subnormal_addend == "flushed"
        return 2.0**self.model.root.arithmetic.result.min_exponent if flushed else 0.0


@lru_cache(maxsize=256)
def step_of(model: DotModel, inst: Instruction) -> CompiledStep | None:
    """Return the compiled step of a chain of the model; None if only numpy computes it."""
    if inst.c is not inst.d:
        return None
    fused = _fused(model, inst)
    nodes = list(model.root.nodes())
    if fused is None and not all(_is_known(node, inst) for node in nodes):
        return None
    index = {id(node): i for i, node in enumerate(nodes)}
    records, others, products = [], [], 0
    for node in nodes:
        others += [index[id(child)] for child in node.children] + [len(nodes)] * node.has_addend
        products += len(node.products)
        records.append(_record(node, products, len(others)))
    adding = [node for node in nodes if node.products]
    return CompiledStep(
        model,
        np.array([k for node in adding for k in node.products]),
        tuple(node.arithmetic for node in adding if isinstance(node.arithmetic, FloatArithmetic)),
        np.cumsum([len(node.products) for node in adding]),
        np.array(records, NODE),
        np.array(others, np.int64),
        fused,
    )


def _fused(model: DotModel, inst: Instruction) -> bool | None:
    """Return whether the multiply-adds are fused, if a step is a chain of ordinary ones."""
    fused, plain = model != multiply_add(fused=False), model.root.arithmetic
    if not isinstance(plain, FloatArithmetic) or plain.result.name not in ("f32", "f64"):
        return None
    ordinary = with_values(addition(plain.result), {"nan": plain.nan, "nan_payload": plain.nan_payload})
    alone = all(node.arithmetic == ordinary and len(node.products) == 1 and len(node.terms) == 2 for node in model.root.nodes())
    narrow = all(x.is_float and x.mantissa_bits <= plain.result.mantissa_bits for x in (inst.a, inst.b))
    whole = model.subnormal_addend == "kept"
    return fused if narrow and whole and (alone or not fused) else None


def _is_known(node: FusedSum, inst: Instruction) -> bool:
    arithmetic = node.arithmetic
    if not isinstance(arithmetic, FloatArithmetic):
        return False
    if not all(fmt.is_float and fmt.bits <= 32 for fmt in (inst.a, inst.b, arithmetic.result)):  # float64 holds their products
        return False
    return arithmetic.scaled_products is None and (arithmetic.alignment_bits is not None or len(node.terms) <= 2)


def _record(node: FusedSum, products: int, others: int) -> tuple[float, ...]:
    arithmetic = node.arithmetic
    assert isinstance(arithmetic, FloatArithmetic)
    fmt, bits = arithmetic.result, arithmetic.result_bits
    exact, ieee = arithmetic.alignment_bits is None, arithmetic.zero_sign == "ieee"
    values = {
        "end_products": products,
        "end_others": others,
        "exact": exact,
        "by_product": arithmetic.product_exponent == "normalised product",
        "lowest": NOTHING if arithmetic.min_exponent is None else arithmetic.min_exponent,
        "alignment_bits": arithmetic.alignment_bits or 0,
        "alignment_rounding": WHOLE_BY[arithmetic.alignment_rounding],
        "result_bits": bits,
        "result_rounding": WHOLE_BY[arithmetic.result_rounding],
        "min_exponent": fmt.min_exponent,
        "underflow_is_positive": arithmetic.underflow_sign == "positive",
        "doubts_zeros": ieee and not exact,
        "zero": -0.0 if ieee else 0.0,
        "least": 2.0**fmt.min_exponent if arithmetic.subnormal_results == "flushed" else 0.0,
        "most": (2.0 - 2.0**-bits) * 2.0**fmt.max_exponent,
    }
    return tuple(values[name] for name in NODE.names or ())

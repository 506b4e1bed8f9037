"""Whole products of integers that wrap around.

Their bits do not depend on the order of addition, so one exact product of float64 matrices computes them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Bits, Format
from accprobe.model.product import NO_K, Merged, Node, ProductModel
from accprobe.model.tree import Arithmetic, IntegerArithmetic

Integers = NDArray[np.int32]
# Multiplies each row of x [..., M, K] by each row of y [..., N, K]; exact, or modulo 2^32.
Multiplied = Callable[[Integers, Integers], NDArray[np.integer]]

# Sums of fewer bits are exact in float64, in any order.
_EXACT_BITS = 53


def is_wrapped(model: ProductModel) -> bool:
    """Return whether all sums are integers modulo 2^32, and float64 holds the exact ones."""
    if not (model.a.is_integer and model.b.is_integer and all(map(_wraps, (*model.step.arithmetics, *_additions(model.tree))))):
        return False
    terms = int(_times(model).sum())
    return model.a.bits + model.b.bits + terms.bit_length() < _EXACT_BITS


def integer_product(model: ProductModel, a: Bits, b: Bits, multiply: Multiplied | None = None) -> Bits:
    """Return the results of `product` for a wrapped model: [..., M, N] bit patterns."""
    times = _times(model)
    x, y = _integers(model.a, a), _integers(model.b, b)
    if (times != 1).any():
        x *= times
    return (multiply or _by_numpy)(x, y).astype(model.result.dtype)


def by_torch(device: str) -> Multiplied:
    """Return the multiplication by torch on "cpu" or "cuda:N". Raises ImportError without torch."""
    import torch

    def multiply(x: Integers, y: Integers) -> NDArray[np.integer]:
        left, right = (torch.from_numpy(lines).to(device).to(torch.float64) for lines in (x, y))
        found: NDArray[np.int32] = (left @ right.mT).to(torch.int64).to(torch.int32).cpu().numpy()
        return found

    return multiply


def _by_numpy(x: Integers, y: Integers) -> NDArray[np.integer]:
    return (x.astype(np.float64) @ y.astype(np.float64).swapaxes(-1, -2)).astype(np.int64)


def _integers(fmt: Format, patterns: Bits) -> Integers:
    if fmt.bits < fmt.storage_bits or fmt.ml_dtype is None:
        return fmt.integers(patterns).astype(np.int32)
    return patterns.view(fmt.ml_dtype).astype(np.int32)


def _wraps(arithmetic: Arithmetic) -> bool:
    if not isinstance(arithmetic, IntegerArithmetic):
        return False
    return arithmetic == IntegerArithmetic(arithmetic.result, "wrap") and arithmetic.result.bits == 32


def _additions(node: Node) -> list[Arithmetic]:
    return [node.arithmetic, *(x for part in node.parts for x in _additions(part))] if isinstance(node, Merged) else []


def _times(model: ProductModel) -> Integers:
    """Return how often the model counts each k, [K]."""
    ks = np.concatenate([chain.ks() for chain in model.chains()])
    return np.bincount(ks[ks != NO_K], minlength=model.k).astype(np.int32)

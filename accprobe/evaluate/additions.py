"""Whole products with sums that need no steps: trees of exact float products, and integers that wrap around.

A tree is a list of additions, each done for all outputs together. An element of a reduction is multiplied by a power of two,
which is exact unless it overflows or underflows. Each sum is then one addition of float32 or float64 numbers, which numpy and
compiled code round alike.

The bits of integer sums modulo 2^32 do not depend on the order of addition, so one exact product of float64 matrices computes
them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate import tiles
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import NO_K, Chain, Node, ProductModel, addition, folded, merged_in, multiply_add
from accprobe.model.tree import IntegerArithmetic

_Numbers = NDArray[np.floating]
_Ints = NDArray[np.int64]

# Values that numpy adds together, and a GPU; estimated seconds per addition in numpy.
TOGETHER, ON_GPU, OF_AN_ADDITION = 1 << 22, 1 << 27, 1e-8
# Largest number of successive additions for which a GPU saves time: each is a few launches.
IN_TURN = 256
# Fewest outputs of a job, unless there are fewer in all.
LEAST_OUTPUTS = 64


class AdditionList:
    """Additions of K values: values[first[i]] += values[second[i]], in turn. The sum is the value at `root`.

    Slot K holds zero: a chain starts from it, so a first term -0 becomes +0.
    """

    def __init__(self, model: ProductModel, fmt: Format) -> None:
        pairs: list[tuple[int, int]] = []
        self.k, self.fmt = model.k, fmt
        self.root = _add(model.tree, model.k, pairs)
        self.first, self.second = (np.array(each, np.uint32) for each in zip(*pairs, strict=True))

    @cached_property
    def _levels(self) -> list[tuple[_Ints, _Ints]]:
        """Return the additions in groups that do not depend on one another, in turn."""
        depth, levels = np.zeros(self.k + 1, np.int64), np.empty(len(self.first), np.int64)
        for i, (x, y) in enumerate(zip(self.first.tolist(), self.second.tolist(), strict=True)):
            levels[i] = depth[x] = max(depth[x], depth[y]) + 1
        order = np.argsort(levels, kind="stable")
        borders = np.flatnonzero(np.diff(levels[order])) + 1
        first, second = (np.split(each[order].astype(np.int64), borders) for each in (self.first, self.second))
        return list(zip(first, second, strict=True))

    def sum_windows(self, values: _Numbers, starts: _Ints, gpu: str | None = None) -> _Numbers:
        """Return sums [n] of values[start : start + K] for each start [n]. gpu: "cuda:N", on which torch adds (see IN_TURN)."""
        if gpu is not None and len(self._levels) <= IN_TURN:
            return self._by_levels(values, starts, ON_GPU, gpu)
        if tiles.pays(len(starts) * self.k * OF_AN_ADDITION):
            from accprobe.evaluate.lanes import window_sums

            sums = np.empty(len(starts), values.dtype)

            def compiled(low: int, high: int) -> None:
                window_sums(self.first, self.second, self.root, self.k, values, starts[low:high], sums[low:high])

            parts = max(1, min(8 * tiles.cores(), len(starts) // LEAST_OUTPUTS))
            borders = [len(starts) * i // parts for i in range(parts + 1)]
            tiles.share(compiled, list(pairwise(borders)))
            return sums
        return self._by_levels(values, starts, TOGETHER)

    def _by_levels(self, values: _Numbers, starts: _Ints, together: int, gpu: str | None = None) -> _Numbers:
        """Return the sums in blocks of values, by numpy or by torch; cupy would flush subnormal numbers."""
        put = _placed_on(gpu)
        rows, sums = max(1, together // self.k), np.empty(len(starts), values.dtype)
        levels = [(put(first), put(second)) for first, second in self._levels]
        every, there = put(np.arange(self.k + 1)[:, None]), put(np.append(values, values.dtype.type(0)))
        for low in range(0, len(starts), rows):
            places = put(starts[low : low + rows]) + every
            places[-1] = len(values)  # the slot of zero
            slots = there[places]
            with np.errstate(all="ignore"):
                for first, second in levels:
                    slots[first] += slots[second]
            total = slots[self.root]
            sums[low : low + rows] = total if gpu is None else total.cpu().numpy()
        return sums

    def patterns(self, sums: _Numbers) -> Bits:
        """Return the patterns of sums, one for all NaNs."""
        fmt = self.fmt
        found: Bits = np.where(np.isnan(sums), fmt.dtype.type(fmt.sign_bit - 1), sums.view(fmt.dtype))
        return found


def _add(node: Node, zero: int, pairs: list[tuple[int, int]]) -> int:
    """Append the additions of a node and return the slot of its sum."""

    def add(x: int, y: int) -> int:
        pairs.append((x, y))
        return x

    if isinstance(node, Chain):
        first, *others = node.taken.tolist()
        add(first, zero)
        for k in others:
            add(first, k)
        return int(first)
    return folded(node.nested, [_add(part, zero, pairs) for part in node.parts], add)


@lru_cache(maxsize=64)
def addition_list(model: ProductModel) -> AdditionList | None:
    """Return the additions of an ordered, unscaled model that adds single products, each once, in f32 or f64; or None."""
    arithmetic = model.step.root.arithmetic
    fmt = FORMATS.get(arithmetic.result.name)
    if fmt is None or fmt.name not in ("f32", "f64") or model.scales is not None or not model.is_ordered:
        return None
    if model.step not in (multiply_add(fmt), multiply_add(fmt, fused=False)) or not model.a.is_float:
        return None
    if any(x.mantissa_bits > fmt.mantissa_bits or x.ignored_low_bits for x in (model.a, model.b)):
        return None
    if any(node.arithmetic != addition(fmt) or node.kept is not None for node in merged_in(model.tree)):
        return None
    ks = np.concatenate([chain.taken for chain in model.chains()])
    return AdditionList(model, fmt) if len(ks) == len(np.unique(ks)) else None


def exact_products(model: ProductModel, fmt: Format, a: Bits, b: Bits) -> _Numbers | None:
    """Return the products [..., N, K] of equal rows a [..., M, K] with b [..., N, K] in `fmt`.

    None if rows of a differ, an element of a has fraction bits, or a product is not exact.
    """
    first = a[..., :1, :]
    if (first & model.a.dtype.type((1 << model.a.mantissa_bits) - 1)).any() or (a != first).any():
        return None
    x, y = _numbers(model.a, first, fmt), _numbers(model.b, b, fmt)
    if (x == 1).all():
        return y
    with np.errstate(all="ignore"):
        products: _Numbers = x * y
        exact = bool(((products / x == y) | (x == 0) | ~np.isfinite(y)).all())
    return products if exact else None


def _numbers(own: Format, words: Bits, fmt: Format) -> _Numbers:
    """Return the numbers of patterns in the type of `fmt`."""
    values: Any = words.view(own.ml_dtype or own.dtype) if own.bits == own.storage_bits else own.values(words)
    found: _Numbers = values.astype(fmt.ml_dtype, copy=False)
    return found


Integers = NDArray[np.int32]

# Sums of fewer bits are exact in float64, in any order.
_EXACT_BITS = 53


def is_wrapped(model: ProductModel) -> bool:
    """Return whether all sums are integers modulo 2^32, and float64 holds the exact ones."""
    sums = (*model.step.arithmetics, *(node.arithmetic for node in merged_in(model.tree)))
    wraps = (
        isinstance(x, IntegerArithmetic) and x == IntegerArithmetic(x.result, "wrap") and x.result.bits == 32 for x in sums
    )
    if not (model.a.is_integer and model.b.is_integer and all(wraps)):
        return False
    terms = int(_times(model).sum())
    return model.a.bits + model.b.bits + terms.bit_length() < _EXACT_BITS


def integer_product(model: ProductModel, a: Bits, b: Bits) -> Bits:
    """Return the results of `product` for a wrapped model: [..., M, N] bit patterns."""
    times = _times(model)
    x, y = _integers(model.a, a), _integers(model.b, b)
    if (times != 1).any():
        x *= times
    sums = x.astype(np.float64) @ y.astype(np.float64).swapaxes(-1, -2)
    return sums.astype(np.int64).astype(model.result.dtype)


def _placed_on(gpu: str | None) -> Callable[[NDArray[Any]], Any]:
    """Return a function that copies an array of numpy to a tensor on "cuda:N", or leaves it as it is without a GPU."""
    if gpu is None:
        return lambda x: x
    import torch

    return lambda x: torch.from_numpy(x).to(gpu)


def _integers(fmt: Format, patterns: Bits) -> Integers:
    if fmt.bits < fmt.storage_bits or fmt.ml_dtype is None:
        return fmt.integers(patterns).astype(np.int32)
    return patterns.view(fmt.ml_dtype).astype(np.int32)


def _times(model: ProductModel) -> Integers:
    """Return how often the model counts each k, [K]."""
    ks = np.concatenate([chain.ks() for chain in model.chains()])
    return np.bincount(ks[ks != NO_K], minlength=model.k).astype(np.int32)

"""Requests of an instruction with a sparse A, and the dense requests of the products that are stored.

Callers make dense requests of K / 2 products. They are laid out here. Each row gets codes of metadata. B gets numbers at the
positions that these leave out, which must have no effect. The layout of a row follows from its own bits, so the same request is
always laid out alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.isa.sparsity import Places, Sparsity
from accprobe.operands.request import Request

LAYOUTS = 1 << 10  # Ways to lay a row out: codes of metadata, and numbers that are left out.


@dataclass(frozen=True, eq=False)
class Layouts:
    """metadata: [LAYOUTS, K / group]. stored: places of the stored products, [LAYOUTS, K / 2]. b: [LAYOUTS, K]; `laid_out`
    overwrites the numbers at the stored places. left_out: [LAYOUTS, K], the index in `classes` of each element of b, -1 for a
    stored product.
    """

    metadata: Bits
    stored: Places
    b: Bits
    left_out: NDArray[np.int8]
    classes: tuple[str, ...]


def stored_products(inst: Instruction, request: Request) -> Request:
    """Return the dense request that is equivalent to a request of `inst`; the request itself if A is dense."""
    if inst.sparsity is None or request.metadata is None:
        return request
    return replace(request, b=np.take_along_axis(request.b, inst.sparsity.stored(request.metadata), 1), metadata=None)


def defined(inst: Instruction, request: Request) -> NDArray[np.bool_]:
    """Return a mask [N] of the dot products that PTX defines: those with valid metadata; all of them if A is dense."""
    if inst.sparsity is None or request.metadata is None:
        return np.ones(len(request), bool)
    meant: NDArray[np.bool_] = np.asarray(np.isin(request.metadata, inst.sparsity.codes).all(axis=1))
    return meant


def laid_out(inst: Instruction, dense: Request, which: NDArray[np.intp] | None = None) -> Request:
    """Return a request of `inst` that is equivalent to the dense one; the dense one itself if A is dense.

    which: layouts, [N]; by default each row's own.
    """
    if not inst.sparse:
        return dense
    every = layouts(inst)
    chosen = own_layouts(dense) if which is None else which
    b = every.b[chosen]
    np.put_along_axis(b, every.stored[chosen], dense.b, 1)
    return replace(dense, b=b, metadata=every.metadata[chosen])


def laid_out_like(inst: Instruction, one: Request, dense: Request) -> Request:
    """Return dense requests with the metadata of one sparse request, and with its elements of B that are left out."""
    if inst.sparsity is None or one.metadata is None:
        return dense
    rows = [0] * len(dense)
    b, metadata = one.b[rows].copy(), one.metadata[rows]
    np.put_along_axis(b, inst.sparsity.stored(metadata), dense.b, 1)
    return replace(dense, b=b, metadata=metadata)


def own_layouts(dense: Request) -> NDArray[np.intp]:
    """Return the layout of each row, [N], which depends only on its bits."""
    mixed = np.zeros(len(dense), np.uint64)
    for x in (dense.a, dense.b, dense.c):
        words = _words(x)
        odd = np.random.default_rng(words.shape[1]).integers(1 << 62, 1 << 63, words.shape[1], np.uint64) | np.uint64(1)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + (words * odd).sum(1, dtype=np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(44)).astype(np.intp) % LAYOUTS


def _words(x: Bits) -> NDArray[np.uint64]:
    """Return the rows as 64-bit words: their bytes if these are a multiple of 8, else one word for each element."""
    rows = np.ascontiguousarray(x).reshape(len(x), -1)
    return rows.view(np.uint64) if rows.shape[1] * rows.itemsize % 8 == 0 and len(rows) else rows.astype(np.uint64)


def layouts(inst: Instruction) -> Layouts:
    """Return the layouts of the instruction's K and formats."""
    assert inst.sparsity is not None
    return _layouts(inst.sparsity, inst.k, inst.b)


@lru_cache(maxsize=32)
def _layouts(sparsity: Sparsity, k: int, b: Format) -> Layouts:
    """Draw layouts; every code of each group and every class at each place occur many times."""
    rng = np.random.default_rng([k, sparsity.group, b.bits])
    codes = np.array(sparsity.codes, np.uint8)
    metadata = codes[rng.integers(0, len(codes), (LAYOUTS, k // sparsity.group))]
    stored = sparsity.stored(metadata)
    patterns = left_out_patterns(b)
    every = np.concatenate([np.array(each, b.dtype) for each in patterns.values()])
    classes = np.concatenate([np.full(len(each), i, np.int8) for i, each in enumerate(patterns.values())])
    any_class = rng.integers(0, len(every), (LAYOUTS, k))
    normal = rng.choice(np.flatnonzero(classes == list(patterns).index("normal")), (LAYOUTS, k))
    share = rng.choice([0.0, 0.1, 0.5, 1.0], (LAYOUTS, 1))
    drawn = np.where(rng.random((LAYOUTS, k)) < share, any_class, normal)
    left_out = classes[drawn]
    np.put_along_axis(left_out, stored, np.int8(-1), 1)
    return Layouts(metadata, stored, every[drawn], left_out, tuple(patterns))


def left_out_patterns(fmt: Format) -> dict[str, list[int]]:
    """Return patterns of each class of numbers that is left out; those of floats with both signs."""
    rng = np.random.default_rng(fmt.bits)
    if fmt.is_integer:
        ends = {
            "zero": [0] * 16,
            "smallest": [fmt.largest + 1 if fmt.kind == "signed" else 1] * 16,
            "largest": [fmt.largest] * 16,
        }
        return ends | {"normal": rng.integers(0, 1 << fmt.bits, 64).tolist()}
    low = fmt.ignored_low_bits
    one = 1 << (fmt.mantissa_bits + low)
    found = {
        "zero": [0] * 8,
        "subnormal": (rng.integers(1, 1 << fmt.mantissa_bits, 8) << low).tolist(),
        "normal": rng.integers(one, fmt.largest, 96).tolist(),
        "largest": [fmt.largest] * 8,
    }
    if fmt.infinity is not None:
        found["infinity"] = [fmt.infinity] * 8
        found["NaN"] = [fmt.infinity | 1 << low, fmt.infinity | one >> 1, fmt.infinity | (one - 1)] * 3
    elif fmt.specials == "nan only":
        found["NaN"] = [fmt.largest + 1] * 8
    return {name: [x | sign for x in patterns for sign in (0, fmt.sign_bit)] for name, patterns in found.items()}

"""Planted products: named ones, ones drawn by seed, and operands for both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from planted_products import BLOCK, Merge, Partial, Planted, Scales
from planted_sums import TYPES, Array

HOPPER = Planted()
"""The f16 and bf16 instructions of sm_90: 16 products per fused sum, 25 fraction bits, f32 RZ."""

AMPERE = replace(HOPPER, a="f16", b="f16", products_per_sum=8, alignment_bits=24)
TF32 = replace(HOPPER, a="tf32", b="tf32", products_per_sum=8)
FP8 = Planted(a="e4m3", b="e4m3", products_per_sum=32, alignment_bits=13, result_bits=13)
FMAS = Planted(a="f32", b="f32", products_per_sum=1, alignment_bits=None, sum_rounding="RNE")
BLOCKS = replace(FP8, n=64, k=640, promote_every=128, scales="128x128", out="bf16")

NAMED: dict[str, Planted] = {
    "chain of 8": AMPERE,
    "chain of 16": replace(HOPPER, k=1000),
    "chain of 32": replace(FP8, k=256),
    "chain of 8, tf32": TF32,
    "chain of 8, tf32 of f32 RNE": replace(TF32, operand_rounding="RNE"),
    "chain of FMAs": FMAS,
    "chain of multiply-adds, descending": replace(FMAS, k=96, descending=True),
    "exact sums of 16": replace(HOPPER, alignment_bits=None, sum_rounding="RNE"),
    "promoted every 64": replace(FP8, promote_every=64, out="bf16"),
    "promoted every 96": replace(FP8, promote_every=96, b="e5m2"),
    "promoted every 128": replace(FP8, k=400, promote_every=128),
    "2 uneven slices, partials bf16": replace(HOPPER, k=640, slices=(384, 256), partial_format="bf16"),
    "3 even slices, backward": replace(HOPPER, k=192, slices=(64,) * 3, merge="backward"),
    "3 uneven slices, serial in bf16": replace(HOPPER, k=640, slices=(256, 256, 128), merge="serial", partial_format="bf16"),
    "5 even slices, unordered": replace(HOPPER, k=640, slices=(128,) * 5, merge="unordered"),
    "5 even slices, unordered, tensor scale": replace(HOPPER, k=640, slices=(128,) * 5, merge="unordered", scales="tensor"),
    "4 uneven slices, unordered, row scales": replace(
        HOPPER, k=512, slices=(144, 144, 144, 80), merge="unordered", scales="row"
    ),
    "5 uneven slices, tree in bf16": replace(HOPPER, slices=(128, 128, 128, 64, 64), merge="tree", partial_format="bf16"),
    "2 slices, promoted every 128": replace(FP8, k=1024, slices=(512, 512), promote_every=128),
    "3 slices of chunks, backward in bf16": replace(
        HOPPER, k=384, slices=(128,) * 3, promote_every=64, merge="backward", partial_format="bf16"
    ),
    "first slice of two chunks, in bf16": replace(
        HOPPER, k=512, slices=(256, 128, 128), promote_every=128, partial_format="bf16"
    ),
    "4 interleaved slices": replace(HOPPER, k=1024, slices=(256,) * 4, interleave=64),
    "results bf16, RZ": replace(HOPPER, out="bf16", result_rounding="RZ"),
    "results f16, RZ": replace(AMPERE, k=256, out="f16", result_rounding="RZ"),
    "sums rounded to nearest": replace(HOPPER, alignment_bits=27, sum_rounding="RNE"),
    "tensor scales": replace(FP8, k=256, scales="tensor", out="bf16"),
    "row scales": replace(FP8, scales="row", promote_every=128),
    "block scales": BLOCKS,
    "block scales, one block": replace(BLOCKS, k=128),
    "block scales, 2 uneven slices": replace(BLOCKS, slices=(384, 256), out="f32"),
    "dropped tail": replace(AMPERE, m=16, n=8, k=552, slices=(280, 272), dropped_tail=40),
    "dropped tail of one chain": replace(HOPPER, k=520, dropped_tail=8),
    "doubled k": replace(HOPPER, k=384, slices=(128,) * 3, doubled_k=255),
    "int8": Planted(a="s8", b="s8", out="s32"),
    "int8, dropped tail": Planted(a="s8", b="s8", out="s32", k=552, dropped_tail=40),
}


def drawn(seed: int) -> Planted:
    """Draw a plan without faults, each feature of which is observable."""
    rng = np.random.default_rng([seed, 15])

    def odds(p: float) -> bool:
        return bool(rng.random() < p)

    m, n = (int(x) for x in rng.integers(16, 65, 2))
    if odds(0.04):
        return Planted("s8", "s8", m, n, int(rng.integers(256, 1281)), out="s32")
    plan = replace(_drawn_sums(rng), m=m, n=n, seed=seed)
    if plan.a in ("e4m3", "e5m2") and odds(0.2):
        return _in_blocks(rng, plan)
    step = max(plan.products_per_sum, 16)
    k = int(rng.integers(256 // step, 1280 // step + 1)) * step
    if odds(0.25):
        k = min(1280, k + int(rng.integers(1, step)))
    count = int(rng.integers(2, 8)) if odds(0.6) else 1
    slices, interleave = _drawn_slices(rng, k, count, step)
    count = max(1, len(slices))
    longest = max(slices, default=k)
    steps = [every for every in (64, 96, 128, 256) if every < longest]
    names = ("f32", "bf16", "f16") if plan.a not in ("bf16", "f32", "tf32") else ("f32", "bf16")
    partial: Partial = "f32" if count == 1 else rng.choice(names).item()
    merge: Merge = rng.choice(_merges(count, partial)).item()
    scales: Scales | None = rng.choice(["tensor", "row"]).item() if odds(0.2) else None
    return replace(
        plan,
        k=k,
        slices=slices,
        interleave=interleave,
        partial_format=partial,
        merge=merge,
        scales=scales,
        promote_every=int(rng.choice(steps)) if steps and odds(0.4) else None,
    )


def _drawn_sums(rng: np.random.Generator) -> Planted:
    """Draw formats, inner sums and the rounding of results."""
    pairs = ["e4m3 e4m3", "e4m3 e5m2", "e5m2 e4m3", "e5m2 e5m2", "bf16 bf16", "f16 f16", "tf32 tf32", "f32 f32"]
    a, b = rng.choice(pairs).item().split()
    out = rng.choice(["f32", "f32", "bf16", "f16"] if a not in ("bf16", "f32", "tf32") else ["f32", "bf16"]).item()
    chain = replace(FMAS, a=a, b=b, out=out, result_rounding="RZ" if out != "f32" and rng.random() < 0.3 else "RNE")
    if a == "f32" or rng.random() < 0.15:
        return chain
    result_bits = int(rng.choice([23, 23, 23, 13, int(rng.integers(10, 23))]))
    return replace(
        chain,
        products_per_sum=int(rng.choice([8, 16, 32])),
        alignment_bits=None if rng.random() < 0.1 else int(rng.integers(result_bits, 28)),
        result_bits=result_bits,
        sum_rounding="RNE" if rng.random() < 0.3 else "RZ",
    )


def _in_blocks(rng: np.random.Generator, plan: Planted) -> Planted:
    k = int(rng.integers(256, 1281))
    whole = k // BLOCK
    slices = (whole // 2 * BLOCK, k - whole // 2 * BLOCK) if rng.random() < 0.3 else ()
    return replace(plan, k=k, slices=slices, promote_every=BLOCK, scales="128x128")


def _drawn_slices(rng: np.random.Generator, k: int, count: int, step: int) -> tuple[tuple[int, ...], int | None]:
    """Draw the sizes of slices, multiples of step except the last, and the block of interleaved slices."""
    if count == 1:
        return (), None
    if rng.random() < 0.15:
        number = np.arange(k) // step % count
        return tuple(int(size) for size in np.bincount(number)), step
    if rng.random() < 0.5:
        size = -(-k // (count * step)) * step
        borders = np.arange(size, k, size)
    else:
        borders = np.sort(rng.choice(np.arange(1, -(-k // step)), count - 1, replace=False)) * step
    return tuple(int(size) for size in np.diff([0, *borders, k])), None


def _merges(slices: int, partial: Partial) -> list[Merge]:
    """Return the distinct orders: two slices have one sum; the tree of three and serial in f32 are forward."""
    if slices < 3:
        return ["forward"]
    tree: list[Merge] = ["tree"] if slices > 3 else []
    serial: list[Merge] = ["serial"] if partial != "f32" else []
    return ["forward", "backward", "unordered", *tree, *serial]


def operands(plan: Planted, seed: int) -> tuple[Array, ...]:
    """Draw normal a [M, K] and b [K, N] (s8: uniform), and scales between 1/2 and 2 if the plan has them."""
    rng = np.random.default_rng([seed, 16])
    m, n, k = plan.shape
    blocks = -(-k // BLOCK)
    shapes: dict[str | None, list[tuple[int, ...]]] = {
        None: [],
        "tensor": [(1, 1), (1, 1)],
        "row": [(m, 1), (1, n)],
        "128x128": [(m, blocks), (blocks, -(-n // BLOCK))],
    }
    scales = [np.asarray(2 ** rng.uniform(-1, 1, shape), np.float32) for shape in shapes[plan.scales]]
    if plan.scales == "128x128":
        scales[1] = np.repeat(scales[1], BLOCK, axis=1)[:, :n]
    return _operand(rng, plan.a, (m, k)), _operand(rng, plan.b, (k, n)), *scales


def _operand(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> Array:
    if kind == "s8":
        return rng.integers(-128, 128, shape, np.int8)
    return rng.standard_normal(shape).astype(TYPES[kind].dtype)

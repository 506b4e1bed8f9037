"""The tree of K drawn as strips, K from left to right: the result, slices, their chunks, and the sums of one chunk, enlarged.

Boxes of one level take turns in colour. Where a level has more than can be told apart, its first and last are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from accprobe.model.product import Chain, Merged, Node, ProductModel, chains_of
from accprobe.model.tree import Arithmetic, FloatArithmetic
from accprobe.render.svg import box, path, picture, text_element

WIDTH, HEIGHT, PITCH, MARGIN, ABOVE = 720, 24, 58, 8, 16
"""Pixels: of the strip, of a box, from one level to the next, around, of the words above a level."""

LETTER = 6.6
"""Pixels of a letter, about."""

NARROWEST = 5
"""Pixels of a box that is still seen as one."""

Stretch = tuple[int, int]
"""The first product and the one after the last."""


class Level(NamedTuple):
    """Boxes of one level: for each the runs of k that it takes; words above them and in each that has the room."""

    words: str
    parts: tuple[tuple[Stretch, ...], ...]
    names: tuple[str, ...]


def product_picture(model: ProductModel, proved: bool = True) -> str:
    """The drawing as SVG; what nobody proved has a ~ before each level's words, as its findings have."""
    drawn = list(levels_drawn(model))
    inner = _sums(model)
    if not proved:
        *drawn, inner = (level._replace(words=f"~{level.words}") for level in (*drawn, inner))
    shapes = [shape for i, level in enumerate(drawn) for shape in _shapes(level, i * PITCH, 0, model.k)]
    low, high = min(start for runs in inner.parts for start, _ in runs), max(stop for runs in inner.parts for _, stop in runs)
    y, last = len(drawn) * PITCH, (len(drawn) - 1) * PITCH + ABOVE + HEIGHT + MARGIN
    ends = [(MARGIN + at * WIDTH / model.k, MARGIN + to) for at, to in ((low, 0), (high, WIDTH))]
    shapes += [path([("M", x, last), ("L", to, y + ABOVE + MARGIN)], "tick") for x, to in ends]
    shapes += _shapes(inner, y, low, high - low)
    label = "Order of K. " + "; ".join(level.words for level in (*drawn, inner))
    return picture(WIDTH + 2 * MARGIN, y + PITCH, label, shapes)


def levels_drawn(model: ProductModel) -> Iterator[Level]:
    """From the result down to the chains."""
    scaled = "scaled, then " if model.scales is not None and not model.scales.inside else ""
    yield Level(f"result: {scaled}{model.result_rounding} to {model.result}", (((0, model.k),),), (f"K = {model.k:,}",))
    above: Sequence[Node] = [model.tree]
    while any(isinstance(node, Merged) for node in above):
        first = next(node for node in above if isinstance(node, Merged))
        below = [part for node in above for part in (node.parts if isinstance(node, Merged) else (node,))]
        parts = tuple(_runs(node) for node in below)
        yield Level(f"{_count(parts)}, {_merged(first)}", parts, tuple(map(_name, parts)))
        above = below
    if isinstance(model.tree, Chain):
        parts = (_runs(model.tree),)
        yield Level("one chain", parts, tuple(map(_name, parts)))


def _sums(model: ProductModel) -> Level:
    """The fused sums of the first chain, as many as are seen."""
    chain = next(model.chains())
    width = model.step.products
    ks = chain.ks()
    seen = ks[: width * max(1, WIDTH // (NARROWEST * 4))]
    parts = tuple(
        _as_runs(sum_) for i in range(0, len(seen), width) if (sum_ := seen[i : i + width][seen[i : i + width] >= 0]).size
    )
    more = f", the first {len(parts)} of {-(-len(ks) // width)}" if len(seen) < len(ks) else f", {len(parts)} of them"
    what = f"sums of {width} products" if width > 1 else "one product after the other"
    where = " of the first part" if isinstance(model.tree, Merged) else ""
    return Level(f"{what}{where}{more}; {_rounded(model.step.root.arithmetic)}", parts, tuple(map(_name, parts)))


def _rounded(arithmetic: Arithmetic) -> str:
    if isinstance(arithmetic, FloatArithmetic):
        return f"{arithmetic.result_bits} bits, {arithmetic.result_rounding}"
    return f"exact in {arithmetic.result}"


def _merged(node: Merged) -> str:
    order = node.order if isinstance(node.order, str) else "in the order of the tree"
    kept = f"each rounded to {node.kept}, " if node.kept else ""
    return f"{kept}added {order} in {node.arithmetic.result}"


def _count(parts: Sequence[Sequence[Stretch]]) -> str:
    sizes = [sum(stop - start for start, stop in runs) for runs in parts]
    if len(set(sizes)) == 1:
        return f"{len(parts)} of {sizes[0]:,} products"
    if len(sizes) == 2:
        return f"{sizes[0]:,} and {sizes[1]:,} products"
    if len(set(sizes[:-1])) == 1:
        return f"{len(parts) - 1} of {sizes[0]:,} products and one of {sizes[-1]:,}"
    return f"{len(parts)} of {min(sizes):,} to {max(sizes):,} products"


def _name(runs: Sequence[Stretch]) -> str:
    start, stop = runs[0][0], runs[-1][1]
    return f"{start:,}-{stop - 1:,}" if len(runs) == 1 else ""


def _runs(node: Node) -> tuple[Stretch, ...]:
    every = np.concatenate([chain.ks() for chain in chains_of(node)])
    return _as_runs(np.unique(every[every >= 0]))


def _as_runs(ks: np.typing.NDArray[np.intp]) -> tuple[Stretch, ...]:
    ks = np.sort(ks)
    borders = [0, *(np.flatnonzero(np.diff(ks) > 1) + 1).tolist(), len(ks)]
    return tuple((int(ks[low]), int(ks[high - 1]) + 1) for low, high in pairwise(borders))


def _shapes(level: Level, y: float, low: int, span: int) -> Iterator[str]:
    yield text_element(MARGIN, y + ABOVE + MARGIN - 5, level.words, class_="words")
    unit = WIDTH / span
    whole = len(level.parts) * NARROWEST <= WIDTH * 2 or span <= WIDTH
    for i, (runs, name) in enumerate(zip(level.parts, level.names, strict=True)):
        if not whole and 0 < i < len(level.parts) - 1:
            continue
        for start, stop in runs:
            x, width = MARGIN + (start - low) * unit, (stop - start) * unit
            yield box(x, y + ABOVE + MARGIN, width, HEIGHT, "part odd" if i % 2 else "part")
            if len(name) * LETTER + 4 <= width:
                yield text_element(x + width / 2, y + ABOVE + MARGIN + 16, name, text_anchor="middle", class_="on-bits")

"""The summation tree drawn: leaves on the left, each fused sum a circle that takes what stands left of it, the result right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from accprobe.model.tree import DotModel, FusedSum
from accprobe.render.content.patterns import number_ranges
from accprobe.render.pictures.svg import box, element, path, picture, text_element

LEAF_HEIGHT, PITCH = 22, 30
STEP, RADIUS, MARGIN, ARROW = 62, 14, 8, 34
LETTER = 7.4
"""Pixels of a letter, about."""
LONGEST_LEAF = 60
"""Characters of a leaf; a longer one is cut, the text beside the drawing has all."""


class _Spot(NamedTuple):
    """The middle of something's right end, and how many sums lie left of it."""

    x: float
    y: float
    height: int


def tree_picture(model: DotModel) -> str:
    """The drawing as SVG. Where sums differ in arithmetic, the number in a circle is that of the arithmetic."""
    drawing = _Drawing(model)
    end = drawing.sum_(model.root)
    drawing.result(end)
    label = f"Summation tree {model.order}"
    return picture(end.x + ARROW + 24, drawing.rows * PITCH + MARGIN, label, drawing.shapes)


class _Drawing:
    def __init__(self, model: DotModel) -> None:
        self._model = model
        leaves = (words for node in model.root.nodes() for words in _leaves(node))
        self._leaf_width = 16 + LETTER * max(len(words[:LONGEST_LEAF]) for words in leaves)
        self.rows = 0
        self.shapes: list[str] = []

    def sum_(self, node: FusedSum) -> _Spot:
        """Draw a sum and all that it takes."""
        taken = [*map(self.sum_, node.children), *map(self._leaf, _leaves(node))]
        height = 1 + max(spot.height for spot in taken)
        x, y = MARGIN + self._leaf_width + height * STEP, sum(spot.y for spot in taken) / len(taken)
        for spot in taken:
            bend = x - STEP / 2
            self.shapes.append(path([("M", spot.x, spot.y), ("L", bend, spot.y), ("L", x - RADIUS, y)], "edge"))
        self.shapes.append(element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=RADIUS, class_="sum"))
        several = len(self._model.arithmetics) > 1
        mark = f"@{self._model.arithmetics.index(node.arithmetic)}" if several else "Σ"
        self.shapes.append(text_element(x, y + 5, mark, text_anchor="middle"))
        return _Spot(x + RADIUS, y, height)

    def result(self, end: _Spot) -> None:
        """Draw D after the last sum."""
        self.shapes.append(path([("M", end.x, end.y), ("L", end.x + ARROW, end.y)], "edge"))
        self.shapes.append(text_element(end.x + ARROW + 6, end.y + 5, "D"))

    def _leaf(self, words: str) -> _Spot:
        y = MARGIN + self.rows * PITCH + LEAF_HEIGHT / 2
        self.rows += 1
        cut = words if len(words) <= LONGEST_LEAF else f"{words[: LONGEST_LEAF - 1]}…"
        self.shapes.append(box(MARGIN, y - LEAF_HEIGHT / 2, self._leaf_width, LEAF_HEIGHT, "leaf"))
        self.shapes.append(text_element(MARGIN + 8, y + 5, cut))
        return _Spot(MARGIN + self._leaf_width, y, 0)


def _leaves(node: FusedSum) -> Iterator[str]:
    """What a sum takes beside other sums: C, and all its products as one leaf."""
    if node.has_addend:
        yield "C"
    if node.products:
        many = f" ({len(node.products)})" if len(node.products) > 1 else ""
        yield f"A×B k {', '.join(number_ranges(sorted(node.products)))}{many}"

"""An instruction drawn: its summation tree, and where each bit of a fused sum goes.

The tree has its leaves on the left; a circle is a fused sum of what stands left of it. Of the bits, the column of 2^0 is that
of the largest term's exponent; what stands right of the alignment window is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from accprobe.isa.instructions import Instruction
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic
from accprobe.render.subjects.patterns import number_ranges
from accprobe.render.svg import box, element, path, picture, text_element

NAME_WIDTH, BITS_WIDTH, ROW, HEIGHT, MARGIN = 178, 640, 40, 20, 8
WIDEST_BIT = 18
LETTER = 6.6
"""Pixels of a letter, about."""
PLACE = 24
"""Pixels that the number of a place takes, with a gap."""
NARROW_BIT, OCTET = 8, 8
"""Bits narrower than so many pixels are ticked in eights."""
LEAF_HEIGHT, PITCH = 22, 30
STEP, RADIUS, ARROW = 62, 14, 34
LEAF_LETTER = 7.4
"""Pixels of a letter, about."""
LONGEST_LEAF = 60
"""Characters of a leaf; a longer one is cut, the text beside the drawing has all."""


class BitRun(NamedTuple):
    """Neighbouring bits: the place of the first and of the last, as powers of two, and what they are."""

    first: int
    last: int
    class_: str
    words: str


class BitsLine(NamedTuple):
    """One line of the picture."""

    name: str
    runs: tuple[BitRun, ...]


def bits_picture(inst: Instruction, node: FusedSum) -> str:
    """The drawing of one sum as SVG."""
    drawn = list(lines(inst, node))
    high = max(run.first for line in drawn for run in line.runs)
    low = min(run.last for line in drawn for run in line.runs)
    bit = min(WIDEST_BIT, BITS_WIDTH / (high - low + 1))
    width = NAME_WIDTH + bit * (high - low + 1) + 2 * MARGIN + PLACE
    shapes = [shape for i, line in enumerate(drawn) for shape in _shapes(line, i * ROW + MARGIN, high, bit)]
    label = "; ".join(f"{line.name}: {', '.join(run.words for run in line.runs)}" for line in drawn)
    return picture(width, len(drawn) * ROW + MARGIN, f"Where each bit goes. {label}", shapes)


def lines(inst: Instruction, node: FusedSum) -> Iterator[BitsLine]:
    """What is drawn: the terms that the sum takes, how they are aligned, what is left."""
    if isinstance(node.arithmetic, IntegerArithmetic):
        yield from _integer(inst, node.arithmetic)
    else:
        yield from _float(inst, node, node.arithmetic)


def _float(inst: Instruction, node: FusedSum, arithmetic: FloatArithmetic) -> Iterator[BitsLine]:
    lowest = 0
    if node.products:
        fraction = inst.a.mantissa_bits + inst.b.mantissa_bits
        lowest = -fraction
        below = BitRun(-1, -fraction, "kept", f"{fraction} fraction bits")
        yield BitsLine("a product A × B", (BitRun(1, 0, "whole", "1-3"), below))
    if node.has_addend:
        lowest = min(lowest, -inst.c.mantissa_bits)
        yield BitsLine("C", _significand(inst.c.mantissa_bits, f"{inst.c.mantissa_bits} of {inst.c}"))
    for child in node.children[:1]:
        bits = _result_bits(child.arithmetic)
        lowest = min(lowest, -bits)
        yield BitsLine("the sum before", _significand(bits, f"{bits} fraction bits"))
    carries = len(node.terms).bit_length()
    top = BitRun(carries, 0, "whole", "carries")
    window = arithmetic.alignment_bits
    if window is None:
        low = min(lowest, -arithmetic.result.mantissa_bits) - 6
        yield BitsLine("aligned to the largest", (top, BitRun(-1, low, "kept", "exact: every bit is kept")))
    else:
        low = min(lowest, -window) - 6
        cut = BitRun(-window - 1, low, "lost", arithmetic.alignment_rounding)
        yield BitsLine("aligned to the largest", (top, BitRun(-1, -window, "kept", f"F = {window} bits"), cut))
    kept, most = arithmetic.result_bits, arithmetic.result.mantissa_bits
    runs = list(_significand(kept, f"{kept} bits"))
    if most > kept:
        runs.append(BitRun(-kept - 1, -most, "lost", f"0 in {arithmetic.result}"))
    yield BitsLine(f"result {arithmetic.result}, {arithmetic.result_rounding}", tuple(runs))


def _significand(fraction: int, words: str) -> tuple[BitRun, ...]:
    return BitRun(0, 0, "whole", "1"), BitRun(-1, -fraction, "kept", words)


def _result_bits(arithmetic: Arithmetic) -> int:
    return arithmetic.result_bits if isinstance(arithmetic, FloatArithmetic) else 0


def _integer(inst: Instruction, arithmetic: IntegerArithmetic) -> Iterator[BitsLine]:
    product = inst.a.bits + inst.b.bits
    yield BitsLine("a product A × B", (BitRun(product - 1, 0, "kept", f"{product} bits"),))
    says = "wraps modulo 2^32" if arithmetic.overflow == "wrap" else "saturates"
    bits = arithmetic.result.bits
    yield BitsLine(f"sum and result {arithmetic.result}", (BitRun(bits - 1, 0, "kept", f"{bits} bits, {says}"),))


def _shapes(line: BitsLine, y: float, high: int, bit: float) -> Iterator[str]:
    yield text_element(MARGIN, y + 15, line.name)
    numbered = 0.0
    for run in line.runs:
        x, count = NAME_WIDTH + MARGIN + (high - run.first) * bit, run.first - run.last + 1
        yield box(x, y, count * bit, HEIGHT, run.class_)
        between = range(1, count) if bit >= NARROW_BIT else range(OCTET, count, OCTET)
        if between:
            ticks = ((step, x + i * bit, y + at) for i in between for step, at in (("M", HEIGHT - 4), ("L", HEIGHT)))
            yield path(ticks, "tick")
        if len(run.words) * LETTER <= count * bit:
            yield text_element(x + count * bit / 2, y + 14, run.words, text_anchor="middle", class_="on-bits")
        ends = {run.first: x + bit / 2, run.last: x + (count - 0.5) * bit}
        for place, at in ends.items():
            if count * bit > 2 * PLACE and at - numbered >= PLACE:
                yield text_element(at, y + HEIGHT + 11, str(place), text_anchor="middle", class_="place")
                numbered = at


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
        self._leaf_width = 16 + LEAF_LETTER * max(len(words[:LONGEST_LEAF]) for words in leaves)
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

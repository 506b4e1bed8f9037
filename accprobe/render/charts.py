"""Curves over two axes, as SVG: a title, what is counted above the axis, a legend below. Looks are classes of `chart.css`.

Curves differ in colour (Okabe & Ito's, which colour-blind readers tell apart), in marker and in dash.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accprobe.render.svg import element, path, picture, text_element

WIDTH = 400
LEFT, RIGHT, PLOT = 46, 12, 190
BELOW = 40
"""Numbers and name of the axis, between the plot and the legend."""
LINE = 17
"""Height of a line of the legend."""
LONGEST = 44
"""Characters of a line of the legend or of the title."""
LABEL_GAP = 26
"""Pixels between two numbers of the horizontal axis, at least."""
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "down")
LOOKS = len(MARKERS)
"""Curves that look different from one another."""

_EXPONENTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Axis(NamedTuple):
    """ticks: numbers with their words. low, high: what is drawn, both positive where it is logarithmic."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """How far along the axis a number stands, from 0 to 1."""
        low, high, at = (math.log(x) if self.logarithmic else x for x in (self.low, self.high, value))
        return (at - low) / (high - low)


class Curve(NamedTuple):
    """points: x and y. look: "s0" to "s5" with markers, "q0" to "q4" from few to many, without; dotted: beside another curve.

    label: in the legend, unless empty. tips: words for each point, where a pointer rests on it.
    """

    points: tuple[tuple[float, float], ...]
    label: str
    look: str
    dotted: bool = False
    tips: tuple[str, ...] = ()


class Chart(NamedTuple):
    """One coordinate system. counted: what the vertical axis has; across: what the horizontal one."""

    title: str
    counted: str
    across: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]

    @property
    def legend(self) -> list[tuple[Curve, str]]:
        """The lines of the legend, each with its curve where that begins."""
        return [(curve, line) for curve in self.curves for line in textwrap.wrap(curve.label, LONGEST)]

    @property
    def heading(self) -> list[str]:
        """The lines of the title."""
        return textwrap.wrap(self.title, LONGEST)

    @property
    def bottom(self) -> float:
        """Where the horizontal axis lies, from the top."""
        return LINE * (len(self.heading) + 1) + 10 + PLOT

    @property
    def height(self) -> float:
        return self.bottom + BELOW + LINE * len(self.legend)


def decades(values: Sequence[float]) -> Axis:
    """A logarithmic axis from one power of ten to another."""
    low = math.floor(math.log10(min(values)))
    high = max(math.ceil(math.log10(max(values))), low + 1)
    return Axis(
        10.0**low, 10.0**high, tuple((10.0**at, f"10{str(at).translate(_EXPONENTS)}") for at in range(low, high + 1)), True
    )


def doublings(values: Sequence[int]) -> Axis:
    """A logarithmic axis with just these numbers; room for their words is kept."""
    numbers = sorted(set(values))
    low, high = (numbers[0], numbers[-1]) if len(numbers) > 1 else (numbers[0] / 2, numbers[0] * 2)
    axis = Axis(low / 1.15, high * 1.15, (), True)
    told: list[tuple[float, str]] = []
    for number in numbers:
        before = axis.share(told[-1][0]) if told else -1.0
        if (axis.share(number) - before) * (WIDTH - LEFT - RIGHT) >= LABEL_GAP:
            told.append((number, str(number)))
    return axis._replace(ticks=tuple(told))


def upwards(most: float, least: float = 0.0) -> Axis:
    """A linear axis from `least` on with at most six round numbers."""
    rough = (most - least) / 5 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= rough)
    count = math.ceil((most - least) / step - 1e-9) or 1
    return Axis(least, least + step * count, tuple((least + step * i, f"{least + step * i:g}") for i in range(count + 1)))


def chart_picture(chart: Chart) -> str:
    """The drawing as SVG."""
    ends = (
        f"{curve.label} from {curve.points[0][1]:.3g} to {curve.points[-1][1]:.3g}" for curve in chart.curves if curve.label
    )
    label = f"{chart.title}: {chart.counted} against {chart.across}; {'; '.join(ends)}"
    return picture(WIDTH, chart.height, label, _shapes(chart), class_="chart")


def _shapes(chart: Chart) -> Iterator[str]:
    bottom = chart.bottom
    for i, line in enumerate(chart.heading):
        yield text_element(0, 14 + LINE * i, line, class_="title")
    yield text_element(0, 14 + LINE * len(chart.heading), chart.counted, class_="aside")
    for value, words in chart.y.ticks:
        y = bottom - PLOT * chart.y.share(value)
        yield path([("M", LEFT, y), ("L", WIDTH - RIGHT, y)], "axis" if y == bottom else "grid")
        yield text_element(LEFT - 6, y + 4, words, class_="aside", text_anchor="end")
    for value, words in chart.x.ticks:
        x = _across(chart, value)
        yield path([("M", x, bottom), ("L", x, bottom + 4)], "axis")
        yield text_element(x, bottom + 17, words, class_="aside", text_anchor="middle")
    yield text_element(LEFT + (WIDTH - LEFT - RIGHT) / 2, bottom + 32, chart.across, class_="aside", text_anchor="middle")
    for curve in chart.curves:
        yield from _curve(chart, curve)
    previous = None
    for i, (curve, line) in enumerate(chart.legend):
        y = bottom + BELOW + LINE * (i + 0.5)
        if curve is not previous:
            yield path([("M", LEFT, y), ("L", LEFT + 26, y)], _class(curve))
            yield from _marker(curve, LEFT + 13, y)
        previous = curve
        yield text_element(LEFT + 34, y + 4, line)


def _curve(chart: Chart, curve: Curve) -> Iterator[str]:
    places = [(_across(chart, x), chart.bottom - PLOT * chart.y.share(y)) for x, y in curve.points]
    yield path([("L" if i else "M", x, y) for i, (x, y) in enumerate(places)], _class(curve))
    for i, (x, y) in enumerate(places):
        yield from _marker(curve, x, y, curve.tips[i] if curve.tips else "")


def _class(curve: Curve) -> str:
    return f"curve {curve.look}{' dotted' * curve.dotted}"


def _across(chart: Chart, value: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * chart.x.share(value)


_OUTLINES = {
    "square": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
    "triangle": ((0, -5.5), (5, 4), (-5, 4)),
    "diamond": ((0, -5.8), (5.2, 0), (0, 5.8), (-5.2, 0)),
    "cross": ((-5, -2), (-2, -2), (-2, -5), (2, -5), (2, -2), (5, -2), (5, 2), (2, 2), (2, 5), (-2, 5), (-2, 2), (-5, 2)),
    "down": ((0, 5.5), (5, -4), (-5, -4)),
}


def _marker(curve: Curve, x: float, y: float, tip: str = "") -> Iterator[str]:
    """Nothing for curves that go from few to many: those have too many points."""
    if not curve.look.startswith("s"):
        return
    name = MARKERS[int(curve.look[1:])]
    inside = element("title", tip) if tip else ""
    if name == "circle":
        yield element("circle", inside, cx=f"{x:.1f}", cy=f"{y:.1f}", r=4.5, class_=f"marker {curve.look}")
    else:
        d = "".join(f"{'L' if i else 'M'}{x + dx:.1f} {y + dy:.1f}" for i, (dx, dy) in enumerate(_OUTLINES[name]))
        yield element("path", inside, d=f"{d}Z", class_=f"marker {curve.look}")

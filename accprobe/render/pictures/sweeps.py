"""Figures of sweeps, as SVG text or image files. Needs matplotlib."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from accprobe.build import install
from accprobe.errors import AccprobeError, ToolMissing
from accprobe.report.sweeps import SweepRecord
from accprobe.sass import opcodes
from accprobe.sweep.operands import FLOAT_SETS

SUFFIXES = (".svg", ".png")

_LONG = re.compile(r"\d+\.\d{3,}")
"""Coordinates finer than a hundredth of a point."""

_OUTSIDE = re.compile(r'<metadata>.*?</metadata>| xmlns(?::\w+)?="[^"]*"|<style.*?</style>', re.DOTALL)
_REFERENCE = re.compile(r'(?:url\(|href=")#(\w+)')
_ID = re.compile(r' id="([\w.]+)"')
_STYLE = re.compile(r' style="([^"]*)"')
_FONT = re.compile(r"(?:(bold) )?([\d.]+)px .*")

_MARKERS = ("o-", "s--", "^:", "D-.")
"""By the number of warps; colours tell operand types apart."""


def check_suffix(path: Path) -> None:
    """Raises AccprobeError where the file's name does not say what to draw, ToolMissing without matplotlib."""
    if path.suffix.lower() not in SUFFIXES:
        raise AccprobeError(f"{path} cannot be drawn: give a name that ends in {' or '.join(SUFFIXES)}")
    _figure(1, 1)


def save(records: Sequence[SweepRecord], path: Path, simulated: bool = False) -> None:
    """Writes the figure of these sweeps. Raises AccprobeError where there is nothing to draw."""
    figure = masks_and_cost(records, simulated)
    try:
        figure.savefig(path, dpi=150)
    except OSError as e:
        raise AccprobeError(f"{path} cannot be written: {e.strerror}") from None


def svg(figure: Any, name: str) -> str:
    """The figure as an SVG element for a page, where it is called `name`: text stays text, nothing is named that is elsewhere,
    and the same figure gives the same bytes.
    """
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "accprobe"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    text = _LONG.sub(lambda number: f"{float(number[0]):.2f}", _OUTSIDE.sub("", text[text.index("<svg") :]))
    text = _STYLE.sub(_attributes, text.replace("xlink:href", "href"))
    used = set(_REFERENCE.findall(text))
    text = _ID.sub(lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", text)
    text = _REFERENCE.sub(lambda found: found[0].replace("#", f"#{name}-"), text)
    label = f"Sweep of {name}: elements changed and error against masked bits; error and speed against block-K"
    plain = 'class="plot" font-family="sans-serif" stroke-linejoin="round" stroke-linecap="butt"'
    return text.replace("<svg", f'<svg role="img" aria-label="{label}" {plain}', 1)


def _attributes(style: re.Match[str]) -> str:
    """A style as attributes: a page whose policy allows no other style than its own ignores styles of elements."""
    found = ""
    for name, _, value in (each.partition(":") for each in style[1].split(";") if each.strip()):
        if font := _FONT.fullmatch(value.strip()):
            weight = ' font-weight="bold"' if font[1] else ""
            found += f' font-size="{font[2]}"{weight}'
        else:
            found += f' {name.strip()}="{value.strip()}"'
    return found


def by_type(records: Sequence[SweepRecord], simulated: bool = False) -> dict[str, Any]:
    """A figure for each operand type that has something to draw."""
    drawn = [each for each in records if each.masks]
    types = dict.fromkeys(each.dtype for each in drawn)
    return {name: masks_and_cost([each for each in drawn if each.dtype == name], simulated) for name in types}


def masks_and_cost(records: Sequence[SweepRecord], simulated: bool = False) -> Any:
    """A line for each operand type and warps, for each operand set: what the masks change, beside what they change of exact
    sums, and the error; one curve a block-K. Below: error and speed against block-K. simulated: written above it all.
    """
    drawn = sorted((each for each in records if each.masks), key=_order)
    if not drawn:
        raise AccprobeError("there is no sweep of floating-point operands to draw")
    kinds = [kind for kind in FLOAT_SETS if any(each.operands == kind for each in drawn)]
    groups = [list(group) for _, group in groupby(drawn, _group)]
    figure = _figure(len(groups) + 1, 2 * len(kinds))
    grid = figure.subplots(len(groups) + 1, 2 * len(kinds), squeeze=False)
    for line, group in zip(grid, groups, strict=False):
        for i, kind in enumerate(kinds):
            if same := [each for each in group if each.operands == kind]:
                _changed(line[2 * i], same)
                _error(line[2 * i + 1], same)
            else:
                line[2 * i].set_axis_off()
                line[2 * i + 1].set_axis_off()
    error, speed, *rest = grid[-1]
    _cost(error, drawn, "relative_error", "relative error without a mask")
    _cost(speed, drawn, "tflops", "TFLOP/s without a mask")
    for axes in rest:
        axes.set_axis_off()
    (rest or [error])[0].legend(*error.get_legend_handles_labels(), fontsize="small", frameon=False, loc="upper left")
    if simulated:
        figure.suptitle("Simulated: published models evaluated, nothing was measured", color="firebrick", fontweight="bold")
    return figure


def _figure(rows: int, columns: int) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise ToolMissing(f"matplotlib is not installed, and figures are drawn with it: {install.PLOTS}") from e
    return Figure(figsize=(5.2 * columns, 3.3 * rows), layout="constrained")


def _order(record: SweepRecord) -> tuple[object, ...]:
    return (*_group(record), record.block_k)


def _group(record: SweepRecord) -> tuple[object, ...]:
    """What the curves of one pair of axes have in common, but for the operand set."""
    size = (record.m, record.n, record.k, record.block_m, record.block_n)
    return record.dtype, record.num_warps, record.promote_every or 0, record.rounded, size


def _name(record: SweepRecord) -> str:
    ran = ", ".join(dict.fromkeys(map(opcodes.stem, record.opcodes))) or "FFMA"
    promoted = f", promoted every {record.promote_every}" if record.promote_every else ""
    return f"{record.dtype}, {record.num_warps} warps ({ran}){promoted}{', rounded' if record.rounded else ''}"


def _title(record: SweepRecord) -> str:
    return f"{_name(record)}: {record.operands}"


def _colours(group: Sequence[SweepRecord]) -> list[Any]:
    """From light to dark as block-K grows."""
    from matplotlib import colormaps

    return [colormaps["viridis_r"](0.15 + 0.85 * i / max(len(group) - 1, 1)) for i in range(len(group))]


def _changed(axes: Any, group: Sequence[SweepRecord]) -> None:
    for record, colour in zip(group, _colours(group), strict=True):
        cuts, counts = zip(*record.masks, strict=True)
        elements = record.m * record.n
        axes.plot(cuts, [100 * count / elements for count in counts], color=colour, label=f"block-K {record.block_k}")
        exact = [100 * count / (record.control_elements or 1) for _, count in record.control]
        axes.plot(cuts, exact, color=colour, linewidth=1, linestyle=":")
    axes.plot([], [], color="grey", linewidth=1, linestyle=":", label="exact sums")
    axes.set(title=_title(group[0]), xlabel="low bits masked", ylabel="elements changed, %", ylim=(-3, 103))
    _finish(axes)


def _error(axes: Any, group: Sequence[SweepRecord]) -> None:
    for record, colour in zip(group, _colours(group), strict=True):
        axes.plot(range(len(record.errors)), record.errors, color=colour, label=f"block-K {record.block_k}")
    axes.set(title=_title(group[0]), xlabel="low bits masked", ylabel="relative error")
    _log(axes, [error for record in group for error in record.errors])
    _bare(axes)


def _cost(axes: Any, drawn: Sequence[SweepRecord], field: str, label: str) -> None:
    """One curve for each operand type and warps, on normal operands where they were swept."""
    normal = [each for each in drawn if each.operands == "normal"] or list(drawn)
    points = [each for each in normal if getattr(each, field) is not None]
    types = list(dict.fromkeys(each.dtype for each in drawn))
    for _, group in groupby(points, _group):
        curve = list(group)
        first = curve[0]
        style = _MARKERS[first.num_warps.bit_length() % len(_MARKERS)]
        sizes, values = [each.block_k for each in curve], [getattr(each, field) for each in curve]
        axes.plot(sizes, values, style, color=f"C{types.index(first.dtype)}", markersize=4, label=_name(first))
    ticks = sorted({each.block_k for each in drawn})
    axes.set(xlabel="block-K", ylabel=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, list(map(str, ticks)))
    if field == "relative_error":
        _log(axes, [each.relative_error or 0.0 for each in points])
    _bare(axes)
    if not points:
        axes.text(0.5, 0.5, "not measured: simulated", transform=axes.transAxes, ha="center", color="grey")


def _log(axes: Any, values: Sequence[float]) -> None:
    """Logarithmic where there is anything to show so: exact results have no error at all."""
    smallest = min((value for value in values if value > 0), default=None)
    if smallest is not None:
        axes.set_yscale("symlog", linthresh=smallest) if min(values) == 0 else axes.set_yscale("log")


def _bare(axes: Any) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _finish(axes: Any) -> None:
    _bare(axes)
    axes.legend(fontsize="small", frameon=False)

"""Sweeps as series, configurations that gave the same numbers, and their charts.

Error and speed against block-K: a chart an operand type. What each mask changes: a chart a series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from accprobe.build import atomic
from accprobe.errors import AccprobeError
from accprobe.render.charts import LOOKS, WIDTH, Axis, Chart, Curve, chart_picture, decades, doublings, upwards
from accprobe.render.svg import element, text_element
from accprobe.report.sweeps import OperandSet, SweepRecord
from accprobe.sass import opcodes
from accprobe.sweep.operands import FLOAT_SETS

SUFFIX = ".svg"
COLUMNS = 3
"""Charts beside one another in a file."""
GAP, MARGIN = 28, 20
SIMULATED = "Simulated: published models evaluated, nothing was measured"
SHADES = 5
"""From the smallest block-K to the largest."""


Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Series:
    """Records of one operand type and problem which agree in every error and every mask: other units, warps, promotions."""

    records: tuple[SweepRecord, ...]

    @property
    def normal_operands(self) -> OperandSet:
        """Normal ones, others where those were not swept."""
        swept = [each.operands for each in self.records]
        return "normal" if "normal" in swept else swept[0]

    @property
    def normal(self) -> dict[int, SweepRecord]:
        """By block-K the first record of these."""
        return self.of(self.normal_operands)

    def of(self, operands: OperandSet) -> dict[int, SweepRecord]:
        """By block-K the first record of these operands."""
        found: dict[int, SweepRecord] = {}
        for each in sorted(self.records, key=lambda each: each.block_k):
            if each.operands == operands:
                found.setdefault(each.block_k, each)
        return found

    @property
    def label(self) -> str:
        """ "QGMMA, 4 or 8 warps, promoted every 128"; "HMMA, 2 warps; HGMMA, 4 or 8 warps"."""
        units: dict[str, dict[int, None]] = {}
        for each in self.records:
            units.setdefault(unit(each), {})[each.num_warps] = None
        ran = "; ".join(f"{name}, {either(warps)} warps" for name, warps in units.items())
        every = dict.fromkeys(each.promote_every for each in self.records)
        promoted = either([size for size in every if size])
        if not promoted:
            return ran
        return f"{ran}, promoted or not" if None in every else f"{ran}, promoted every {promoted}"


def unit(record: SweepRecord) -> str:
    """What ran: "QGMMA"; without a matrix instruction "FFMA"."""
    return " + ".join(dict.fromkeys(map(opcodes.stem, record.opcodes))) or "FFMA"


def by_type(records: Iterable[SweepRecord]) -> dict[str, list[Series]]:
    """The series of what was measured, by operand type; where several problems were swept, of each by itself."""
    swept = [each for each in records if each.measured]
    several = len({_problem(each) for each in swept}) > 1
    found: dict[str, list[SweepRecord]] = {}
    for each in swept:
        found.setdefault(f"{each.dtype}, {_problem(each)}" if several else each.dtype, []).append(each)
    return {name: list(_series(group)) for name, group in found.items()}


def _series(records: Sequence[SweepRecord]) -> Iterator[Series]:
    """Those that agree wherever both were swept are one; the more was swept of one, the sooner others join it."""
    configured: dict[tuple[object, ...], list[SweepRecord]] = {}
    for each in records:
        configured.setdefault((unit(each), each.num_warps, each.promote_every), []).append(each)
    joined: list[list[SweepRecord]] = []
    for some in configured.values():
        same = next((others for others in joined if _agree(some, others)), None)
        if same is None:
            joined.append(list(some))
        else:
            same += some
    return (Series(tuple(every)) for every in joined)


def _agree(some: Sequence[SweepRecord], others: Sequence[SweepRecord]) -> bool:
    """Whether all that was swept of `some` was swept of the others, and came out the same."""
    known = {(each.operands, each.block_k): (each.relative_error, each.masks) for each in others}
    return all(known.get((each.operands, each.block_k)) == (each.relative_error, each.masks) for each in some)


def _problem(record: SweepRecord) -> str:
    return f"m {record.m}, n {record.n}, k {record.k}, blocks of {record.block_m} × {record.block_n}"


def either(numbers: Iterable[int]) -> str:
    """ "2", "2 or 4", "2, 4 or 8"."""
    *some, last = map(str, numbers) if numbers else [""]
    return f"{', '.join(some)} or {last}" if some else last


class Charts(NamedTuple):
    """What is drawn of some sweeps: of the few that everybody looks at, and of the many that masks make."""

    error: list[Chart]
    speed: list[Chart]
    masks: list[Chart]


def charts(records: Sequence[SweepRecord]) -> Charts:
    """All that there is to draw; errors, and speeds, have one scale for all types."""
    found = by_type(records)
    masks = [chart for name, series in found.items() for one in series for chart in _masks(name, one)]
    return Charts(_error(found), _speed(found), masks)


def check_suffix(path: Path) -> None:
    """Raises AccprobeError where the file's name does not say that it is a drawing."""
    if path.suffix.lower() != SUFFIX:
        raise AccprobeError(f"{path} cannot be drawn: give a name that ends in {SUFFIX}")


def save(records: Sequence[SweepRecord], path: Path, simulated: bool = False) -> None:
    """Write all charts of these sweeps as one drawing. Raises AccprobeError where there is nothing to draw."""
    found = charts(records)
    if not found.error and not found.masks:
        raise AccprobeError("there is no sweep of floating-point operands to draw")
    try:
        atomic.save(path, sheet(found, simulated).encode())
    except OSError as e:
        raise AccprobeError(f"{path} cannot be written: {e.strerror}") from None


def sheet(found: Charts, simulated: bool = False) -> str:
    """All charts as one SVG file, whole in itself. simulated: written above them."""
    columns = min(COLUMNS, max(map(len, found)))
    rows = [part[i : i + columns] for part in found for i in range(0, len(part), columns)]
    y = MARGIN + (30 if simulated else 0)
    width = 2 * MARGIN + columns * WIDTH + (columns - 1) * GAP
    shapes = [text_element(MARGIN, MARGIN + 12, SIMULATED, class_="warning")] if simulated else []
    for row in rows:
        for i, chart in enumerate(row):
            shapes.append(element("g", chart_picture(chart), transform=f"translate({MARGIN + i * (WIDTH + GAP)} {y})"))
        y += int(max(chart.height for chart in row)) + GAP
    style = element("style", files("accprobe.render").joinpath("templates", "chart.css").read_text("utf-8"))
    inside = style + element("rect", width="100%", height="100%", class_="paper") + "".join(shapes)
    size = {"width": width, "height": y, "viewBox": f"0 0 {width} {y}"}
    return element("svg", inside, xmlns="http://www.w3.org/2000/svg", class_="chart", **size) + "\n"


def _error(found: dict[str, list[Series]]) -> list[Chart]:
    return _against_block_k(found, "relative error", lambda records: records[0].relative_error or None, decades)


def _speed(found: dict[str, list[Series]]) -> list[Chart]:
    def fastest(records: Sequence[SweepRecord]) -> float | None:
        return max((each.tflops for each in records if each.tflops is not None), default=None)

    return _against_block_k(
        found, "TFLOP/s, of whatever number of warps is fastest", fastest, lambda every: upwards(max(every))
    )


def _against_block_k(
    found: dict[str, list[Series]],
    counted: str,
    value: Callable[[Sequence[SweepRecord]], float | None],
    scale: Callable[[Sequence[float]], Axis],
) -> list[Chart]:
    """One chart a type, one curve a series. value: of a series at one block-K, None where there is nothing to draw."""
    drawn = {
        name: [curve for i, one in enumerate(series) if (curve := _curve(one, i, value))] for name, series in found.items()
    }
    values = [y for curves in drawn.values() for curve in curves for _, y in curve.points]
    if not values:
        return []
    x = doublings([int(x) for curves in drawn.values() for curve in curves for x, _ in curve.points])
    return [Chart(name, counted, "block-K", x, scale(values), tuple(curves)) for name, curves in drawn.items() if curves]


def _curve(series: Series, index: int, value: Callable[[Sequence[SweepRecord]], float | None]) -> Curve | None:
    points = []
    for block_k, first in series.normal.items():
        alike = [each for each in series.records if each.block_k == block_k and each.operands == first.operands]
        if (found := value(alike)) is not None:
            points.append((block_k, found))
    tips = tuple(f"block-K {x}: {y:.3g}" for x, y in points)
    return Curve(tuple(points), series.label, f"s{index % LOOKS}", tips=tips) if points else None


def _masks(name: str, series: Series) -> Iterator[Chart]:
    """What the masks change of sums of each operand set, beside what they change of exact sums; the error that they make."""
    title = f"{name}: {series.label}"
    for kind in FLOAT_SETS:
        if of_kind := [each for each in series.of(kind).values() if each.masks]:
            unit = [_shares(each.masks, each.m * each.n) for each in of_kind]
            exact = [_shares(each.control, each.control_elements or 1) for each in of_kind]
            dotted = [
                curve._replace(label="dotted: exact sums" * (not i), dotted=True)
                for i, curve in enumerate(_family(of_kind, exact))
            ]
            curves = (*_family(of_kind, unit), *dotted)
            yield Chart(title, f"elements changed, %; {kind} operands", "low bits masked", _cuts(of_kind), upwards(100), curves)
    normal = [each for each in series.normal.values() if any(each.errors)]
    if normal:
        errors = [tuple((float(cut), error) for cut, error in enumerate(each.errors) if error) for each in normal]
        scale = decades([error for points in errors for _, error in points])
        curves = tuple(_family(normal, errors))
        yield Chart(title, f"relative error; {normal[0].operands} operands", "low bits masked", _cuts(normal), scale, curves)


def _family(records: Sequence[SweepRecord], points: Sequence[Points]) -> list[Curve]:
    """From the smallest block-K to the largest, those that lie on one another as one curve."""
    alike: dict[Points, list[int]] = {}
    for i, each in enumerate(points):
        if each:
            alike.setdefault(each, []).append(i)
    last = max(len(records) - 1, 1)
    return [
        Curve(each, f"block-K {', '.join(str(records[i].block_k) for i in those)}", f"q{those[-1] * (SHADES - 1) // last}")
        for each, those in alike.items()
    ]


def _cuts(records: Sequence[SweepRecord]) -> Axis:
    most = max(cut for each in records for cut, _ in each.masks)
    return Axis(0, most, tuple((cut, str(cut)) for cut in range(0, most + 1, 4)))


def _shares(counts: Sequence[tuple[int, int]], of: int) -> Points:
    return tuple((cut, 100 * count / of) for cut, count in counts)

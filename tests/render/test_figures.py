"""The charts of sweeps: from the report of the H200."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from accprobe.errors import AccprobeError
from accprobe.render.charts import Axis, Chart, Curve, chart_picture, decades, doublings, upwards
from accprobe.render.subjects import sweep_series as figures
from accprobe.render.subjects.sweep_series import by_type
from accprobe.report.report import Report
from accprobe.report.sweeps import SweepRecord

H200 = Report.load("h200").sweeps
LETTER = 7.2
"""Pixels of a letter of the widest fonts, at 12 pixels."""


def few(dtype: str = "e4m3") -> list[SweepRecord]:
    """Element-K 32 and 512, 2 and 4 warps, never promoted."""
    every = (each for each in H200 if each.dtype == dtype and each.promote_every is None)
    return [each for each in every if each.num_warps < 8 and each.block_k in (32, 512)]


def test_configurations_that_agree_in_every_number_are_one_series() -> None:
    found = by_type(H200)
    assert [one.label for one in found["e4m3"]] == [
        "HMMA, 2 warps, promoted or not",
        "QGMMA, 4 or 8 warps",
        "QGMMA, 4 or 8 warps, promoted every 32",
        "QGMMA, 4 or 8 warps, promoted every 128",
    ]
    assert [one.label for one in found["f16"]] == ["HMMA, 2 warps; HGMMA, 4 or 8 warps"]


def test_series_differ_where_one_mask_does() -> None:
    mine, other = (next(each for each in few("f16") if each.num_warps == warps) for warps in (2, 4))
    assert len(by_type([mine, other])["f16"]) == 1
    changed = other.model_copy(update={"masks": ((0, 0), *((cut, count + 1) for cut, count in other.masks[1:]))})
    assert len(by_type([mine, changed])["f16"]) == 2


def test_problems_of_other_sizes_are_charts_of_their_own() -> None:
    one = few()[0]
    titles = [chart.title for chart in figures.charts([one, one.model_copy(update={"m": 64})]).error]
    assert [title.split(",")[1] for title in titles] == [" m 2048", " m 64"]


def test_error_has_a_chart_a_type_and_a_curve_a_series() -> None:
    error = figures.charts(H200).error
    assert [chart.title for chart in error] == ["e4m3", "e5m2", "f16", "bf16", "tf32", "f32"]
    assert len({(chart.x, chart.y) for chart in error}) == 1
    looks = [curve.look for curve in error[0].curves]
    assert len(looks) == len(set(looks)) == 4
    unit = next(curve for curve in error[0].curves if curve.label == "QGMMA, 4 or 8 warps")
    assert [x for x, _ in unit.points] == [32, 64, 128, 256, 512]
    assert unit.points[-1][1] == pytest.approx(3.39e-4, rel=0.01)
    assert unit.tips[2] == "block-K 128: 0.000126"


def test_speed_is_that_of_the_fastest_number_of_warps() -> None:
    (speed,) = (chart for chart in figures.charts(few("f16")).speed if chart.title == "f16")
    fastest = max(each.tflops or 0 for each in few("f16") if (each.block_k, each.operands) == (32, "normal"))
    assert speed.curves[0].points[0] == (32, fastest)


def test_masks_have_a_curve_a_block_k_and_its_control() -> None:
    changed, full, error = figures.charts([each for each in few() if each.num_warps == 4]).masks
    assert changed.title == "e4m3: QGMMA, 4 warps"
    assert [(curve.label, curve.dotted) for curve in changed.curves] == [
        ("block-K 32", False),
        ("block-K 512", False),
        ("dotted: exact sums", True),
        ("", True),
    ]
    assert [round(y) for _, y in changed.curves[0].points][:11] == [0] * 11
    assert changed.curves[0].points[23] == (23, pytest.approx(100, abs=0.01))
    assert full.counted == "elements changed, %; full-width operands"
    assert error.counted == "relative error; normal operands"


def test_curves_that_lie_on_one_another_are_one() -> None:
    _, full, _ = figures.charts([each for each in few() if each.num_warps == 2]).masks
    assert [curve.label for curve in full.curves] == ["block-K 32, 512", "dotted: exact sums"]


@pytest.mark.parametrize("chart", [chart for part in figures.charts(H200) for chart in part], ids=lambda chart: chart.title)
def test_nothing_is_clipped_and_no_numbers_overlap(chart: Chart) -> None:
    root = ET.fromstring(chart_picture(chart))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    places: dict[str, list[tuple[float, float]]] = {}
    for text in root.iter("text"):
        x, y, words = float(text.attrib["x"]), float(text.attrib["y"]), text.text or ""
        before = {"middle": 0.5, "end": 1.0}.get(text.get("text-anchor", ""), 0.0) * len(words) * LETTER
        assert x - before >= 0
        assert x - before + len(words) * LETTER <= width, words
        assert 0 < y < height
        places.setdefault(text.attrib["y"], []).append((x - before, x - before + len(words) * LETTER))
    for spans in places.values():
        for (_, end), (start, _) in zip(sorted(spans), sorted(spans)[1:], strict=False):
            assert end <= start


def test_a_long_title_and_label_go_on_below() -> None:
    axis = upwards(1)
    words = "a word " * 20
    chart = Chart(words, "y", "x", axis, axis, (Curve(((0, 0), (1, 1)), words, "s0"),))
    test_nothing_is_clipped_and_no_numbers_overlap(chart)
    assert ET.fromstring(chart_picture(chart)).findtext("text") != words


@pytest.mark.parametrize(
    ("axis", "low", "high", "words"),
    [
        (decades([2e-8, 3.4e-4]), 1e-8, 1e-3, ["10⁻⁸", "10⁻⁷", "10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³"]),
        (decades([1e-3]), 1e-3, 1e-2, ["10⁻³", "10⁻²"]),
        (upwards(638), 0, 800, ["0", "200", "400", "600", "800"]),
        (upwards(0), 0, 1, ["0", "1"]),
    ],
)
def test_axes_end_at_round_numbers(axis: Axis, low: float, high: float, words: list[str]) -> None:
    assert (axis.low, axis.high) == (pytest.approx(low), pytest.approx(high))
    assert [word for _, word in axis.ticks] == words


def test_block_ks_that_stand_close_are_not_all_numbered() -> None:
    assert [word for _, word in doublings([32, 64, 128]).ticks] == ["32", "64", "128"]
    assert [word for _, word in doublings([32, 33, 512]).ticks] == ["32", "512"]
    assert doublings([64]).share(64) == pytest.approx(0.5)


def test_file_is_whole_and_the_same_every_time_and_says_what_is_simulated(tmp_path: Path) -> None:
    path, again = tmp_path / "sweep.svg", tmp_path / "again.SVG"
    for each in (path, again):
        figures.check_suffix(each)
        figures.save(few(), each, simulated=True)
    text = path.read_text("utf-8")
    assert text == again.read_text("utf-8")
    ET.fromstring(text)
    assert figures.SIMULATED in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import", text)
    figures.save(few(), path)
    assert figures.SIMULATED not in path.read_text("utf-8")


def test_file_that_cannot_be_drawn_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(AccprobeError, match=r"give a name that ends in \.svg"):
        figures.check_suffix(tmp_path / "sweep.png")
    with pytest.raises(AccprobeError, match="cannot be written"):
        figures.save(few(), tmp_path / "nowhere" / "sweep.svg")


def test_integers_have_speeds_alone_to_draw(tmp_path: Path) -> None:
    integers = [each for each in H200 if each.dtype == "int8"]
    error, speed, masks = figures.charts(integers)
    assert (error, len(speed), masks) == ([], 1, [])
    with pytest.raises(AccprobeError, match="no sweep of floating-point operands"):
        figures.save(integers, tmp_path / "sweep.svg")

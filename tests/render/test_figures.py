"""Figures of sweeps: from the report of the H200."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accprobe.errors import AccprobeError
from accprobe.render.pictures import sweeps as figures
from accprobe.report.report import Report
from accprobe.report.sweeps import SweepRecord

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def few() -> list[SweepRecord]:
    """e4m3 with 2 and 4 warps at block-K 32 and 512, both operand sets."""
    every = (each for each in Report.load("h200").sweeps if each.dtype == "e4m3" and each.promote_every is None)
    return [each for each in every if each.num_warps < 8 and each.block_k in (32, 512)]


def test_a_curve_a_block_k_and_its_control(few: list[SweepRecord]) -> None:
    axes = figures.masks_and_cost(few).axes
    assert len(axes) == 12  # for each number of warps, on each operand set, two; below, error and speed, and the legend's place
    changed, error, *_ = axes[4:]
    assert changed.get_title() == "e4m3, 4 warps (QGMMA): normal"
    labels = [text.get_text() for text in changed.get_legend().get_texts()]
    assert labels == ["block-K 32", "block-K 512", "exact sums"]
    assert len(changed.lines) == 5  # two curves, each with its control, and the legend's dotted line
    assert len(error.lines) == 2
    shown = [round(y) for y in changed.lines[0].get_ydata()]
    assert shown[:11] == [0] * 11
    assert shown[23] == 100
    cost, speed, *_ = axes[8:]
    assert len(cost.lines) == len(speed.lines) == 2
    assert all(len(line.get_xdata()) == 2 for line in cost.lines)


def test_svg_is_the_same_every_time_and_says_what_is_simulated(few: list[SweepRecord]) -> None:
    text, again = (figures.svg(figures.by_type(few[:1], simulated=True)["e4m3"], "e4m3") for _ in range(2))
    assert text == again
    assert text.startswith("<svg")
    assert "Simulated: published models evaluated" in text
    assert "http" not in text
    assert "style" not in text
    assert all(name.startswith("e4m3-") for name in re.findall(r' id="([^"]*)"', text))
    assert set(re.findall(r"#(e4m3-\w+)", text)) == set(re.findall(r' id="([^"]*)"', text))
    assert "Simulated" not in figures.svg(figures.by_type(few[:1])["e4m3"], "e4m3")


def test_files_by_their_names(few: list[SweepRecord], tmp_path: Path) -> None:
    figures.save(few[:1], tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(AccprobeError, match=r"give a name that ends in \.svg or \.png"):
        figures.check_suffix(tmp_path / "sweep.gif")
    with pytest.raises(AccprobeError, match="cannot be written"):
        figures.save(few[:1], tmp_path / "nowhere" / "sweep.png")


def test_integers_have_nothing_to_draw() -> None:
    integers = [each for each in Report.load("h200").sweeps if each.dtype == "int8"]
    with pytest.raises(AccprobeError, match="no sweep of floating-point operands"):
        figures.masks_and_cost(integers)
    assert figures.by_type(integers) == {}

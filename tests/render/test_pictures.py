"""The drawings: they have the model's numbers, and every term of the sum."""

import re
import xml.etree.ElementTree as ET

import pytest

from accprobe.model.published import CHIPS, known_models
from accprobe.model.tree import DotModel
from accprobe.render.subjects.instruction_pictures import BitsLine, bits_picture, lines, tree_picture
from accprobe.render.svg import text_element
from accprobe.report.report import Report
from accprobe.report.rows import Row

ROWS = {row.name: row for row in Report.load("h200").measured}
WGMMA = ROWS["wgmma.m64n8k32.f32.e4m3.e4m3"]
FP8_MMA = ROWS["mma.sync.m16n8k32.f32.e4m3.e4m3.f32"]


def model(row: Row) -> DotModel:
    assert row.model is not None
    return row.model


def drawn(row: Row) -> dict[str, BitsLine]:
    return {line.name: line for line in lines(row.instruction, model(row).root)}


def width(line: BitsLine, class_: str) -> int:
    """Bits of a line that are so."""
    return sum(run.first - run.last + 1 for run in line.runs if run.class_ == class_)


def test_fp8_of_hopper_loses_ten_bits_of_f32() -> None:
    found = drawn(WGMMA)
    assert width(found["a product A × B"], "kept") == 2 * 3
    assert width(found["C"], "kept") == 23
    assert width(found["aligned to the largest"], "kept") == 13
    assert found["aligned to the largest"].runs[-1].words == "truncate"
    assert (width(found["result f32, RZ"], "kept"), width(found["result f32, RZ"], "lost")) == (13, 10)


def test_separate_add_takes_the_sum_before_and_c_and_loses_nothing() -> None:
    found = drawn(FP8_MMA)
    assert "a product A × B" not in found
    assert {"C", "the sum before", "result f32, RNE"} <= set(found)
    assert not any(width(line, "lost") for line in found.values())


def test_integer_says_what_becomes_of_an_overflow() -> None:
    for name, words in (("", "wraps modulo 2^32"), (".satfinite", "saturates")):
        found = drawn(ROWS[f"wgmma.m64n8k32{name}.s32.s8.s8"])
        assert words in found["sum and result s32"].runs[0].words


@pytest.mark.parametrize("chip", CHIPS)
def test_every_model_can_be_drawn(chip: str) -> None:
    for inst, known in known_models(chip).items():
        pictures = [tree_picture(known.model), *(bits_picture(inst, node) for node in known.model.root.nodes())]
        for picture in pictures:
            root = ET.fromstring(picture)
            _, _, width, height = map(float, root.attrib["viewBox"].split())
            assert 0 < width < 1500
            for place in root.iter():
                assert -1 <= float(place.get("x", 0)) <= width
                assert -1 <= float(place.get("y", 0)) <= height


@pytest.mark.parametrize("row", [WGMMA, FP8_MMA, ROWS["mma.sync.m16n8k16.f64.f64.f64.f64"]], ids=lambda row: row.name)
def test_tree_has_every_sum_and_every_product(row: Row) -> None:
    root = ET.fromstring(tree_picture(model(row)))
    words = [element.text or "" for element in root.iter("text")]
    assert len(list(root.iter("circle"))) == len(list(model(row).root.nodes()))
    assert words.count("C") == 1
    products: set[int] = set()
    for leaf in (word for word in words if word.startswith("A×B k ")):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?(?=,| \(|$)", leaf.removeprefix("A×B k ")):
            products |= set(range(int(first), int(last or first) + 1))
    assert products == set(range(row.instruction.k))
    assert root.attrib["aria-label"] == f"Summation tree {model(row).order}"


def test_words_are_escaped() -> None:
    assert text_element(0, 0, "<b>&") == '<text x="0" y="0">&lt;b&gt;&amp;</text>'

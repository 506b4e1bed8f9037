"""Text of a report, a binary or a profiler does not control the terminal and is no markup; long texts are printed once."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from commands import invoke
from fakes import fake_report, float_row

from accprobe.audit import kernels as witness
from accprobe.cli.output import print_message
from accprobe.errors import AccprobeError, plain
from accprobe.render.document import Code, Column, Element, Heading, List, Paragraph, Phrase, Section, fact_grid, table
from accprobe.render.html import html_page
from accprobe.render.markdown import markdown_text
from accprobe.render.terminal import screen_lines
from accprobe.report.report import Report
from accprobe.sass import reading
from accprobe.sass.binaries import Piece

HOSTILE = "\x1b]0;owned\x07\x1b[2Jk\x08\r\x9b31mer\x7fnel\u202ecod\u2066"
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_what_steers_is_shown_as_a_picture() -> None:
    assert plain(HOSTILE) == "␛]0;owned␇␛[2Jk␈␍\ufffd31mer␡nel\ufffdcod\ufffd"
    assert plain("k\tn\nä × ⊗ ≥ …") == "k\tn\nä × ⊗ ≥ …"


def test_every_control_character_is_one() -> None:
    everything = "".join(map(chr, range(0x3000)))
    left = [c for c in plain(everything) if unicodedata.category(c) == "Cc" or unicodedata.bidirectional(c) in BIDI]
    assert left == ["\t", "\n"]


BIDI = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report with such characters wherever it has text."""
    row = float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA.64x8x32.F32.E4M3.E4M3": 1})
    row["reason"], row["status"] = HOSTILE, "unverified"
    row["evidence"] = {f"carries{HOSTILE}": row["evidence"]["alignment_bits"]}
    row["lowering"], row["opcodes"] = [[f"HMMA.{HOSTILE}", 1]], [f"HMMA.{HOSTILE}"]
    for finding in row["findings"].values():
        finding["note"] = HOSTILE
    made = fake_report(row)
    device = made.device.model_copy(update={"name": HOSTILE, "facts": {HOSTILE: HOSTILE}})
    path = tmp_path / "hostile.json"
    made.model_copy(update={"device": device, "environment": {HOSTILE: HOSTILE}}).save(path)
    return path


def test_no_text_of_a_report_is_longer_than_a_line(tmp_path: Path) -> None:
    """What looks like more of accprobe's own lines is shown within the line that it is in."""
    lines = "k\r\n\nwgmma.m64n8k32.f32.e4m3.e4m3  confirmed\t\x1b\\n"
    row = float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA": 1}, status="unverified", reason=lines)
    row["findings"]["carries"] = {"value": lines, "bound": "undetermined", "candidates": [lines], "note": lines}
    row["alternatives"] = {"tested": 1, "surviving": [lines]}
    made = fake_report(row, environment={lines: lines}, tool={"version": lines})
    device = made.device.model_copy(update={"name": lines, "facts": {lines: lines}})
    path = tmp_path / "r.json"
    made.model_copy(update={"device": device}).save(path)
    assert Report.load(path).device.name == "k␍␊␊wgmma.m64n8k32.f32.e4m3.e4m3  confirmed␉␛\\n"
    for arguments in (["show", str(path)], ["show", str(path), "*"], ["diff", str(path), "h200"]):
        for form in ("terminal", "markdown"):
            shown = invoke(*arguments, "--format", form, columns=10000).stdout
            assert "k␍␊␊wgmma" in shown
            assert not [line for line in shown.splitlines() if line.startswith("wgmma.m64n8k32.f32.e4m3.e4m3  confirmed")]
            assert "\t" not in shown


@pytest.mark.parametrize("form", ["terminal", "markdown", "html", "json", "csv"])
@pytest.mark.parametrize("command", ["show r", "show r *", "diff r h200"])
def test_reports(report: Path, form: str, command: str) -> None:
    form = "json" if (form, "diff" in command) == ("csv", True) else form
    result = invoke(*command.replace(" r", f" {report}").split(), "--format", form, columns=160)
    assert (result.exit_code, result.stderr) == (int("diff" in command), "")
    assert "owned" in result.stdout
    assert STEERS.search(result.stdout) is None


@pytest.mark.parametrize("form", ["terminal", "json"])
def test_kernels(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    name = HOSTILE.replace("\r", "")
    text = [f".text.{name}:\n", "        /*0000*/                   HMMA.16816.F32 R4, R4, R8, R4 ;\n"]

    def read(piece: Piece) -> tuple[list[witness.Kernel], dict[str, int], str]:
        (function,) = reading.parse(text)
        return [witness.witness(function, HOSTILE)], {"sm_90a": 1}, HOSTILE

    monkeypatch.setattr(witness, "_read", read)
    monkeypatch.setattr(
        "accprobe.sass.binaries.find",
        lambda *_: iter([witness.binaries.DeviceCode(Path("k"), HOSTILE, pieces=[Piece(Path("k"), HOSTILE, "cubin", 0, 1)])]),
    )
    result = invoke("sass", "k", "--jobs", "1", "--format", form, "--forbid", "HMMA")
    assert result.exit_code == 1
    assert "HMMA.16816.F32" in result.stdout
    assert "owned" in result.stdout
    assert "owned" in result.stderr
    assert STEERS.search(result.stdout) is None
    assert STEERS.search(result.stderr) is None


def test_errors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    print_message(HOSTILE)
    assert STEERS.search(capsys.readouterr().err) is None

    def fails(*_: object) -> None:
        raise AccprobeError(HOSTILE)

    monkeypatch.setattr("accprobe.report.report.Report.load", fails)
    result = invoke("show", "x")
    assert (result.exit_code, STEERS.search(result.stderr)) == (2, None)
    assert "owned" in result.stderr


def test_colours_of_accprobe_itself_stay() -> None:
    (found,) = screen_lines([Paragraph(Phrase(f"x{HOSTILE}", "bad"))], 400)
    assert (found.spans[0].start, found.spans[0].end) == (0, len(found))
    assert STEERS.search(found.plain) is None
    assert "owned" in found.plain


EVIL = "<script>a|b</script>`x`_*\n| c |\n# d"
ALL: list[Element] = [
    Heading(EVIL, 1),
    Paragraph(Phrase(EVIL, "bad"), boxed=True),
    List((EVIL, List((EVIL,))), "!"),
    table((EVIL, "b"), ((EVIL, Phrase(EVIL, code=True)), (EVIL, "x"))),
    fact_grid([(EVIL, EVIL)]),
    Code((EVIL,)),
    Section(EVIL, lambda: [Paragraph(EVIL)], anchor="s"),
]


def test_nothing_of_a_text_is_markup() -> None:
    page = html_page(EVIL, ALL)
    assert page.count("<script>") == 1
    assert page.count("&lt;script&gt;") == 15
    text = re.sub(r"`[^`\n]*`", "", markdown_text(ALL[:-2]))
    assert not re.search(r"(?<!\\)<script|^# d", text, re.MULTILINE)
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1


def test_a_long_text_of_neighbouring_rows_is_printed_once() -> None:
    long = "a cause that takes several lines of its column"
    rows = (("p", long), ("q", long), ("r", "short"), ("s", "short"), ("t", long))
    text = "\n".join(line.plain for line in screen_lines([table(("row", Column("cause", once=True)), rows)], 32))
    assert (text.count("a cause"), text.count("as above"), text.count("short")) == (2, 1, 2)

import re

import pytest
from click.testing import CliRunner
from fakes import fake_report, float_row

from accprobe.audit.atlas import Atlas
from accprobe.audit.kernels import Kernel, Reading
from accprobe.cli import main
from accprobe.render.markdown import kernels_markdown, lowerings_markdown, report_markdown
from accprobe.report.report import Report

WGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments, "--format", "markdown"])
    assert result.exit_code in (0, 1)
    assert result.stderr == ""
    return result.stdout


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def tables(text: str) -> list[list[list[str]]]:
    return [
        [cells(line) for line in block.splitlines()] for block in text.split("\n\n") if block.startswith("|") and "\n" in block
    ]


@pytest.mark.parametrize(
    "arguments", [("show", "h200"), ("show", "h200", WGMMA), ("diff", "h200", "sim:b200"), ("diff", "sim:a100", "sim:h100")]
)
def test_every_table_is_rectangular(arguments: tuple[str, ...]) -> None:
    found = tables(shown(*arguments))
    assert found
    for header, rule, *rows in found:
        assert rows
        assert set(rule) == {"---"}
        assert {len(row) for row in rows} == {len(header)}


def test_table_has_the_values_of_the_report() -> None:
    table, sweeps = tables(shown("show", "h200"))
    assert sweeps[0][:2] == ["operand type", "bits kept"]
    assert ["e4m3", "QGMMA 13 (e8m13), HMMA 23 (f32)"] in [line[:2] for line in sweeps]
    _, *every = tables(shown("show", "h200", "--sweeps"))
    assert all(each[0][:4] == ["operand type", "warps", "block-K", "ran as"] for each in every)
    row = next(row for row in table if row[0] == "`wgmma.m64n{8,256}k32.f32.{e4m3,e5m2}.{e4m3,e5m2}{,.rs}`")
    assert row[1:5] == ["QGMMA", "13 (e8m13)", "13", "truncate"]
    assert row[-1] == "confirmed"


def test_all_has_each_instruction() -> None:
    table, *_ = tables(shown("show", "h200", "--all"))
    assert len(table) == 2 + len(Report.load("h200").measured)


def test_one_instruction_has_its_evidence() -> None:
    text = shown("show", "h200", WGMMA)
    assert text.startswith(f"## `{WGMMA}`: confirmed\n")
    assert "    k 0: 0x48 (4) × 0x40 (2); k 31: 0xf8 (-2^8) × 0x78 (2^8); C 0x47800000 (2^16) → 0x41000000 (2^3)\n" in text


def test_bars_and_line_ends_of_a_report_split_no_table() -> None:
    device = {"kind": "cuda", "name": "a | b\n\n| c | d |\n# e", "architecture": "sm_90a"}
    row = float_row(WGMMA, 13, {"QGMMA|X`": 1})
    text = report_markdown(fake_report(row, device=device))
    (table,) = tables(text)
    assert len({len(row) for row in table}) == 1
    assert "\n# e" not in text


def test_what_is_not_confirmed_is_told_with_its_reason() -> None:
    row = float_row(WGMMA, 13, {"QGMMA": 1}, status="inferred", reason="3 differ")
    assert f"- inferred: 3 differ: {WGMMA}\n" in report_markdown(fake_report(row))


def test_names_that_others_wrote_split_no_table_of_kernels_or_lowerings() -> None:
    evil = "a|b`_*<img>\n| c |"
    kernel = Kernel(evil, evil, evil, (("QGMMA.64x8x32|X", 2),))
    (table,) = tables(kernels_markdown([kernel], Reading(problems=[evil])))
    assert {len(row) for row in table} == {6}
    text = lowerings_markdown(Atlas(evil, evil, (evil,), {evil: {((evil, 1),): (evil,)}}, (evil,)))
    (table,) = tables(text)
    assert {len(row) for row in table} == {3}
    assert "<img>" not in re.sub(r"\\<img\\>", "", text)

"""`accprobe show` and `accprobe diff`: screens, files, standard input, products."""

from __future__ import annotations

import json
import os
import re
from functools import partial
from pathlib import Path

import golden
import pytest
from click.testing import Result
from commands import invoke
from fakes import fake_report, report_data
from product_rows import OF_A, product_report

from accprobe.report.report import Report


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fake_report().save(tmp_path / "r.json")
    return tmp_path / "r.json"


def show(*arguments: str, **env: str) -> Result:
    return invoke("show", *arguments, columns=100, env=env)


def test_a_glob_that_matches_several_is_a_table_and_one_that_matches_one_is_that_one_in_full(path: Path) -> None:
    table = show(str(path), "wgmma*").stdout
    assert "2 of 2 instructions confirmed" in " ".join(table.split())
    assert "k 0: " not in table
    assert len(re.findall(r"^wgmma\S+ +QGMMA", show(str(path), "wgmma*", "--all").stdout, re.MULTILINE)) == 2
    one = show(str(path), "wgmma*.rs")
    assert one.stdout.startswith("wgmma.m64n8k32.f32.e4m3.e4m3.rs  confirmed: QGMMA, 13 (e8m13) effective bits, RZ\n")
    assert "k 0: 0x38 (1) × 0x38 (1)" in one.stdout
    several = show(str(path), "wgmma*", "--format", "markdown").stdout
    assert "| wgmma" in several.replace("`", "")


def test_json_is_the_report_again(path: Path) -> None:
    assert show(str(path), "--format", "json").stdout == path.read_text()
    assert show(str(path), "-o", "-").stdout == path.read_text()
    assert show(str(path), "-o", "-", "--format", "markdown").stdout.startswith("## ")
    one = Report.model_validate_json(show(str(path), "wgmma*.rs", "--format", "json").stdout)
    assert [row.name for row in one.instructions] == ["wgmma.m64n8k32.f32.e4m3.e4m3.rs"]


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        (("-o", "x.html"), "<!doctype html>"),
        (("-o", "x.md"), "## "),
        (("-o", "x"), '{\n "schema"'),
        (("-o", "x", "--format", "markdown"), "## "),
        (("-o", "x.2026", "--format", "html"), "<!doctype html>"),
    ],
)
def test_the_file_is_in_the_format_that_its_name_has(
    path: Path, options: tuple[str, ...], begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    result = show(str(path), *options)
    assert (result.exit_code, result.stdout) == (0, show(str(path)).stdout)
    assert Path(options[1]).read_text().startswith(begins)


def test_colours_go_to_terminals_only_and_never_with_no_color(path: Path) -> None:
    assert "\x1b[" not in show(str(path)).stdout
    assert "\x1b[" in show(str(path), FORCE_COLOR="1").stdout
    assert "\x1b[3" not in show(str(path), FORCE_COLOR="1", NO_COLOR="1").stdout


def test_of_an_n_that_was_not_measured_the_nearest_is_shown_and_named() -> None:
    result = show("h200", "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3", "--format", "json")
    assert [row.name for row in Report.model_validate_json(result.stdout).claims] == ["wgmma.m64n8k32.f32.e4m3.e4m3"]
    assert result.stderr == (
        "accprobe: h200 has wgmma.m64n16k32.f32.e4m3.e4m3 at n = 8 and 256, not at 16: using the nearest, "
        "wgmma.m64n8k32.f32.e4m3.e4m3\n"
    )


def test_standard_input_is_a_report(path: Path) -> None:
    shown = invoke("show", "-", stdin=path.read_bytes(), columns=100)
    assert shown.exit_code == 0
    assert shown.stdout == show(str(path)).stdout
    nothing = invoke("show", "-", stdin=b"{}")
    assert (
        nothing.stderr == "accprobe: standard input: it is not a report of schema 5, which this accprobe reads: give a"
        " report that accprobe wrote, such as with `accprobe run -o FILE`\n"
    )


@pytest.mark.parametrize("command", [["show"], ["diff", "h200"], ["check", "--require", "*: effective_bits > 1"]], ids=str)
def test_what_never_ends_is_no_report(command: list[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for endless in ("/dev/zero", str(tmp_path / "pipe")):
        result = invoke(*command, endless)
        reason = f"accprobe: {endless} is not a regular file; redirect a pipe to standard input and give -\n"
        assert (result.exit_code, result.stderr) == (2, reason)


def test_more_than_any_report_has_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accprobe.report.report.MOST_BYTES", 1 << 10)
    result = show(str(path))
    assert (result.exit_code, result.stderr) == (2, f"accprobe: {path} is not a report: it has more than 0 MiB\n")


def test_a_file_with_a_recorded_name_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    path.rename("h200")
    recorded = show("h200")
    assert "NVIDIA H200" in recorded.stdout
    assert recorded.stderr == "accprobe: h200 is the recorded report; ./h200 is the file of that name\n"
    file = show("./h200")
    assert "NVIDIA H200" not in file.stdout
    assert (file.exit_code, file.stderr) == (0, "")


run = partial(invoke, columns=100)


@pytest.fixture
def products_path(tmp_path: Path) -> str:
    product_report(*report_data()["claims"], *OF_A).save(tmp_path / "r.json")
    return str(tmp_path / "r.json")


@pytest.mark.parametrize("name", golden.SCREENS)
def test_screen_is_as_recorded(name: str, tmp_path: Path) -> None:
    shown = golden.printed(name, tmp_path)
    assert shown == golden.file(name).read_text(encoding="utf-8"), "look at it, then: python tests/support/golden.py"
    assert all(len(line) <= golden.WIDTH for line in shown.splitlines())


def test_products_stand_after_instructions_and_instructions_alone_without_them(products_path: str) -> None:
    shown = run("show", products_path).stdout
    assert 0 < shown.index("wgmma.m64n8k32") < shown.index("4 of 5 products confirmed") < shown.index("DROPPED PRODUCTS")
    one = run("show", products_path, "wgmma*")
    assert one.exit_code == 0
    assert "torch:" not in one.stdout


def test_products_of_a_callable_are_told_where_none_has_the_shape() -> None:
    result = run("show", "products-h200", "torch:_int_mm 513x512x512 s8")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "accprobe: products-h200 has no product 'torch:_int_mm 513x512x512 s8'; `accprobe show products-h200 'torch:_int_mm'`"
        " lists all of that name; did you mean torch:_int_mm 512x512x512 s8 -> s32 or torch:_int_mm 256x256x4096 s8 -> s32?\n"
    )
    assert run("show", "products-h200", "torch:_int_mm 512x512x512 s8 -> s32").exit_code == 0


WGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"


diff = partial(invoke, "diff", columns=160)


def test_json_has_every_pair_with_both_values() -> None:
    data = json.loads(diff("h200", "sim:b200", "--format", "json").stdout)
    assert data["headline"].startswith("Hopper → Blackwell")
    assert sum(data["counts"].values()) == len(data["pairs"])
    assert all(pair["marks"] == ["B simulated"] for pair in data["pairs"])
    pair = next(pair for pair in data["pairs"] if pair["a"] == WGMMA)
    assert (pair["by"], pair["b"], pair["verdict"]) == ("role", "tcgen05.m128n16k32.kind::f8f6f4.f32.e4m3.e4m3", "changed")
    (bits,) = (field for field in pair["fields"] if field["field"] == "effective_bits")
    assert (bits["a"]["value"], bits["b"]["value"]) == (13, 23)
    assert "promoting" in bits["means"]
    assert {pair["verdict"] for pair in data["pairs"]} == {"changed", "only in A", "only in B", "undecided", "same"}


def test_standard_input_is_one_of_the_two() -> None:
    text = Report.load("h200").dumps()
    assert invoke("diff", "-", "h200", stdin=text).exit_code == 0
    twice = invoke("diff", "-", "-", stdin=text)
    assert (twice.exit_code, twice.stderr) == (2, "accprobe: A and B are both standard input: give one of them as a file\n")

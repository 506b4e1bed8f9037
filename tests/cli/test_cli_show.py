import os
import re
from pathlib import Path

import pytest
from click.testing import Result
from commands import invoke
from fakes import fake_report

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
    assert re.search(r"^wgmma\.m64n8k32\.f32\.e4m3\.e4m3\{,\.rs\} +QGMMA ", table, re.MULTILINE)
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
    assert (result.exit_code, result.stdout) == (0, show(str(path), *options[2:]).stdout)
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

import re
import shlex
import tomllib
from pathlib import Path
from typing import get_args

import click
import pytest
import readme_blocks
from click.testing import CliRunner

import accprobe
from accprobe.build import kernels
from accprobe.cli import main
from accprobe.compare.diff import Verdict
from accprobe.compare.possible import OPERATORS
from accprobe.isa.instructions import catalog
from accprobe.render.terminal import HEADERS
from accprobe.report.report import SCHEMA, Report, Row
from accprobe.report.words import register

README = readme_blocks.README.read_text(encoding="utf-8")
REPORT = Report.load("h200")
ROWS = {row.name: row for row in REPORT.instructions}
WGMMA = ROWS["wgmma.m64n8k32.f32.e4m3.e4m3"]


def section(heading: str) -> str:
    return README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def bits(row: Row, feature: str) -> int:
    found = row.findings[feature].value
    assert isinstance(found, int)
    return found


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


SHELL = [command for line in "".join(blocks("sh")).splitlines() for command in line.split(" && ")]
COMMANDS = [command for command in SHELL if command.startswith("accprobe ")]


@pytest.mark.parametrize("line", COMMANDS)
def test_command_parses(line: str) -> None:
    name, *arguments = shlex.split(line.partition(" > ")[0], comments=True)[1:]
    command = main.commands[name]
    with click.Context(main, info_name="accprobe") as parent:
        command.make_context(name, arguments, parent=parent)


def test_set_up_is_two_commands() -> None:
    shell = blocks("sh")
    assert "python3 -m pip install -e . && accprobe run\n" in shell
    assert 'python3 -m pip install -e ".[test]" && python3 -m pytest\n' in shell


def test_library_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for example, printed in zip(blocks("python"), ("13 [c 0-31]\n0\n", "0x40407000\n", "65536.0 65784.0\n"), strict=True):
        exec(compile(example, "README.md", "exec"), {})
        assert capsys.readouterr().out == printed
        assert all(f"`{line}`" in section("Library") for line in printed.split("\n")[:-1])


def test_every_command_of_the_readme_and_of_the_package_is_the_same() -> None:
    assert {line.split()[1] for line in COMMANDS} == set(main.commands)


def test_schema_and_keys_are_the_report_s() -> None:
    assert f"schema {SCHEMA}" in README
    lines = [line for line in section("The report").partition("`--format` of")[0].splitlines() if line.startswith("| `")]
    keys = set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in lines)))
    assert keys <= set(Row.model_fields)


def test_version_is_typed_once() -> None:
    assert accprobe.__version__ not in README


def test_blocks_are_as_their_sources_have_them() -> None:
    assert sorted(readme_blocks.names(README)) == sorted(readme_blocks.BLOCKS)
    assert readme_blocks.written(README) == README, "write them again: python tests/support/readme_blocks.py"


def test_table_of_findings_has_every_row_once_and_all_are_confirmed() -> None:
    lines = [line.split(" | ") for line in readme_blocks.found().splitlines()[2:]]
    assert sum(int(line[3]) for line in lines) == len(REPORT.measured)
    assert "(unverified)" not in README
    assert "(inferred)" not in README


def test_what_is_said_of_fp8_is_in_the_report() -> None:
    said = " ".join(section("What was found on an H200").split())
    assert "leaves 13 fraction bits" in said or "leave 13 fraction bits" in said
    for row in REPORT.measured:
        inst = row.instruction
        if inst.a.bits != 8 or inst.is_integer:
            continue
        assert row.model is not None
        if inst.family == "wgmma":
            assert row.opcodes[0].startswith("QGMMA")
            assert inst.d.name != "f32" or bits(row, "effective_bits") == 13
            continue
        assert row.findings["add_result_rounding"].value == "RNE"
        outer, inner = row.model.root, row.model.root.children[0]
        assert (outer.products, outer.has_addend) == ((), True)
        assert {k % 4 for k in inner.products} == {2, 3}
        assert {k % 4 for k in inner.children[0].products} == {0, 1}
        assert len(inner.products) == len(inner.children[0].products) == inst.k // 2


def test_what_is_said_of_other_floats_is_in_the_report() -> None:
    assert (
        "aligned to 25 fraction bits; the sum is then cut to the 23 of f32, toward zero, or rounded to\n  the 10 of f16"
        in README
    )
    for row in REPORT.measured:
        inst = row.instruction
        if inst.a.name in ("f16", "bf16", "tf32"):
            assert bits(row, "alignment_bits") == 25
            expected = {"f32": (23, "RZ"), "f16": (10, "RNE")}[inst.d.name]
            assert (row.findings["result_bits"].value, row.findings["result_rounding"].value) == expected


def test_ways_of_counting_are_those_of_the_report() -> None:
    counted = [int(line.split("|")[1]) for line in section("13, 14, 22, 25?").splitlines() if re.match(r"\| \d", line)]
    kept, exponent = bits(WGMMA, "effective_bits"), WGMMA.instruction.d.exponent_bits
    other = bits(ROWS["wgmma.m64n8k16.f32.f16.f16"], "alignment_bits")
    assert counted == [kept, kept + 1, kept + 1 + exponent, other]
    assert register(WGMMA.instruction.d, kept) in section("13, 14, 22, 25?")


def test_detail_is_explained_as_it_is() -> None:
    first, second, third, fourth = (line for line in readme_blocks.detail().splitlines() if line.startswith("    k "))
    assert all("(2^16)" in line or "(2^8) × 0x78 (2^8)" in line for line in (first, second, third, fourth))
    assert "k 0: 0x48 (4) × 0x40 (2)" in first
    assert first.endswith("(2^3)")
    assert "k 0: 0x40 (2) × 0x40 (2)" in second
    assert second.endswith("→ 0x00000000 (0)")
    assert third.endswith("C 0x41000000 (2^3) → 0x47800400 (65544)")
    assert fourth.endswith("C 0x40800000 (4) → 0x47800000 (2^16)")
    assert "13 bits below" in section("One instruction in full")
    assert 16 - 3 == bits(WGMMA, "alignment_bits") == bits(WGMMA, "result_bits")


def test_columns_are_those_of_the_table() -> None:
    told = re.findall(r"^\| ([^|]+) \|", section("How to read the table").partition("| status | means |")[0], re.MULTILINE)
    assert told[:1] == ["column"]
    assert set(told[1:]) == {"instruction", *(header.replace("\n", " ") for header in HEADERS)}


def test_limits_name_what_has_no_probe() -> None:
    for inst in catalog("sm_120a") + catalog("sm_100a"):
        if inst.family == "tcgen05" or inst.sparse or inst.scale is not None or min(inst.a.bits, inst.b.bits) < 8:
            assert kernels.why_no_probe(inst)
    assert {inst.n for inst in catalog("sm_90a") if inst.family == "wgmma"} == {8, 256}


def test_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((readme_blocks.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(re.findall(r'-e "\.\[(\w+)\]"|`"\.\[(\w+)\]"`', README)) <= {
        (extra, "") for extra in project["optional-dependencies"]
    } | {("", extra) for extra in project["optional-dependencies"]}
    assert all(f'".[{extra}]"' in README for extra in project["optional-dependencies"])


def test_comparison_is_the_one_that_it_says_it_is() -> None:
    assert readme_blocks.diff().splitlines()[1] == (
        "Hopper → Blackwell: FP8 accumulator 13 → 23 bits, QGMMA → UTCQMMA (B simulated)"
    )
    told = set(re.findall(r"^\| ([^|]+) \|", section("Two GPUs compared"), re.MULTILINE)) - {"verdict"}
    assert {word for words in told for word in words.split(", ")} == set(get_args(Verdict))


def test_gate_of_a_ci_job_works(tmp_path: Path) -> None:
    (requirements,) = blocks("toml")
    (tmp_path / "require.toml").write_text(requirements, encoding="utf-8")
    arguments = ["check", "h200", "--file", str(tmp_path / "require.toml")]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    (job,) = blocks("yaml")
    for line in re.findall(r"run: accprobe (.+)", job):
        name, *rest = shlex.split(line)
        main.commands[name].make_context(name, rest)
    for operator in OPERATORS:
        assert f"`{operator}`" in section("In CI")


def test_forms_are_those_of_show() -> None:
    (form,) = (option for option in main.commands["show"].params if option.name == "form")
    assert isinstance(form.type, click.Choice)
    told = re.findall(r"^\| `(\w+)` \|", section("The report").partition("`--format` of `show`")[2], re.MULTILINE)
    assert sorted(told) == sorted(form.type.choices)

import re
import shlex
from pathlib import Path

import click
import pytest

import accprobe
from accprobe.cli import main
from accprobe.report import SCHEMA, Row

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


SHELL = [command for line in "".join(blocks("sh")).splitlines() for command in line.split(" && ")]
COMMANDS = [command for command in SHELL if command.startswith("accprobe ")]


@pytest.mark.parametrize("line", COMMANDS)
def test_command_parses(line: str) -> None:
    name, *arguments = shlex.split(line, comments=True)[1:]
    command = main.commands[name]
    with click.Context(main, info_name="accprobe") as parent:
        command.make_context(name, arguments, parent=parent)


def test_set_up_is_two_commands() -> None:
    shell = blocks("sh")
    assert "python3 -m pip install -e . && accprobe run\n" in shell
    assert 'python3 -m pip install -e ".[test]" && python3 -m pytest\n' in shell


def test_library_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("python")
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out == "13 [c 0-31]\n0\n"


def test_every_command_of_the_readme_and_of_the_package_is_the_same() -> None:
    assert {line.split()[1] for line in COMMANDS} == set(main.commands)


def test_schema_and_keys_are_the_report_s() -> None:
    assert f"schema {SCHEMA}" in README
    section = README.partition("## The report")[2].partition("\n## ")[0]
    keys = set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))))
    assert keys <= set(Row.model_fields)


def test_version_is_typed_once() -> None:
    assert accprobe.__version__ not in README

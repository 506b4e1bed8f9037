"""Every page: the things it shows exist, run or parse, links lead somewhere, and measured numbers have a source."""

from __future__ import annotations

import os
import pkgutil
import re
import shlex
import tomllib
from pathlib import Path

import click
import document_blocks
import pytest
from block_forms import ROOT
from commands import invoke
from document_blocks import FENCE, PAGES

from accprobe.cli import main

QUICKSTART = ROOT / "docs" / "quickstart.md"
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])
README = ROOT / "README.md"
ALL = (*PAGES, ROOT / "CONTRIBUTING.md")

every_page = pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(text(page)) if language in languages]


def inline(page: Path) -> list[str]:
    """What sentences and tables that are not generated have in backticks."""
    written = FENCE.sub("", document_blocks.BLOCK.sub("", text(page)))
    return re.findall(r"`([^`]+)`", re.sub(r"(?<!\n)\n(?!\n)", " ", written))


def shell(page: Path) -> list[str]:
    """Commands in blocks, and in sentences."""
    lines = [command for line in "".join(blocks(page, "sh")).splitlines() for command in line.split(" && ")]
    jobs = re.findall(r"run: (.+)", "".join(blocks(page, "yaml")))
    return [*lines, *jobs, *inline(page)]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_command_that_is_shown_exists_with_these_options(page: Path) -> None:
    for line in shell(page):
        words = shlex.split(line.partition(" > ")[0], comments=True) if line.startswith("accprobe ") else []
        if len(words) < 2 or words[1].startswith("-"):
            continue
        _, name, *arguments = words
        assert name in main.commands, line
        if arguments not in ([], ["--help"]):
            with click.Context(main, info_name="accprobe", **main.context_settings) as parent:
                main.commands[name].make_context(name, arguments, parent=parent)


@every_page
def test_option_that_is_named_exists(page: Path) -> None:
    commands = [main, *main.commands.values()]
    commands += [each for group in main.commands.values() if isinstance(group, click.Group) for each in group.commands.values()]
    known = {name for command in commands for option in command.params for name in option.opts}
    named = {word.split()[0].split("=")[0] for word in inline(page) if word.startswith("--")}
    assert named <= known | {"--help"}


@every_page
def test_file_and_name_that_is_mentioned_exists(page: Path) -> None:
    for word in [*inline(page), *shell(page)]:
        for path in re.findall(r"(?:^|\s)((?:accprobe|benchmarks|docs|probes|reports|scripts|tests)/[\w./{}-]*)", word):
            assert "{" in path or (ROOT / path).exists(), path
        if re.fullmatch(r"accprobe(\.\w+)+", word):
            assert pkgutil.resolve_name(word)


@every_page
def test_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", FENCE.sub("", text(page))):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        assert goal.is_file(), target
        assert not anchor or anchor in anchors(goal), target


@every_page
def test_example_runs_and_prints_what_the_page_says(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for match in re.finditer(r"^```python\n(.*?)^```\n\nIt prints ((?:`[^`]+`(?: and )?)+)", text(page), re.M | re.S):
        exec(compile(match[1], page.name, "exec"), {})
        assert capsys.readouterr().out.splitlines() == re.findall(r"`([^`]+)`", match[2])
    assert len(blocks(page, "python")) == len(re.findall(r"^```\n\nIt prints ", text(page), re.M))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_block_is_as_its_source_has_it(page: Path) -> None:
    assert document_blocks.written(text(page)) == text(page), "write it again: python tests/support/document_blocks.py"
    assert text(page).count("<!-- ") == 2 * len(document_blocks.names(text(page)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_numbers_of_a_page_are_those_of_recorded_results(page: Path) -> None:
    assert document_blocks.unknown_numbers(text(page)) == []


def test_every_block_is_on_some_page() -> None:
    used = {name for page in PAGES for name in document_blocks.names(text(page))}
    assert used - {"output", "numbers"} == set(document_blocks.BLOCKS)


def test_first_page_leads_to_every_other() -> None:
    linked = {(ROOT / path).resolve() for path in re.findall(r"\]\(([\w./-]+\.md)", text(README))}
    assert linked == {*ALL, ROOT / "CHANGELOG.md"} - {README}


def test_nothing_installs_accprobe_by_a_name_that_nobody_has_registered() -> None:
    """An extra is a checkout's: "pip install accprobe" would install whatever took the name."""
    texts = [
        *ALL,
        *(path for folder in ("accprobe", "scripts", "benchmarks", "probes") for path in (ROOT / folder).rglob("*.*")),
    ]
    readable = [path for path in texts if path.suffix in (".py", ".md", ".sh", "")]
    wrong = re.compile(r"pip install (?:-\S+ )*['\"]?accprobe")
    assert [path.name for path in readable if wrong.search(path.read_text(encoding="utf-8"))] == []


def test_scripts_can_be_run() -> None:
    scripts = [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]
    assert all(os.access(script, os.X_OK) for script in scripts)


def test_extras_are_those_of_the_package() -> None:
    section = text(QUICKSTART).partition("\n### Extras\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == EXTRAS
    named = re.findall(r'-e "\.\[([\w,]+)\]"', "".join(map(text, ALL)))
    assert {extra for names in named for extra in names.split(",")} <= EXTRAS


@pytest.mark.parametrize("command", main.commands.values(), ids=lambda command: command.name)
def test_help_says_which_extras_a_command_needs(command: click.Command) -> None:
    needs = re.search(r"\n +(Needs: .+?)\n\n", command.help or "", re.DOTALL)
    named = {extra for two in re.findall(r"extra\s(\w+)(?:\sor\s(\w+))?", needs[0]) for extra in two if extra}
    assert named <= EXTRAS
    assert named or "nothing" in needs[0]


def test_gate_of_a_ci_job_works(tmp_path: Path) -> None:
    (tmp_path / "require.txt").write_text(next(text for text in blocks(QUICKSTART, "text") if "effective_bits" in text))
    assert invoke("check", "h200", "--file", str(tmp_path / "require.txt")).exit_code == 0


WALK = re.compile(r"```py\n(# model\.py\n.*?)```\n\n```sh\naccprobe (.*?)\n```\n\n```\n(.*?)```\n", re.DOTALL)


def test_the_walk_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    found = WALK.search(text(ROOT / "docs" / "questions.md"))
    program, command, output = found.groups()
    (tmp_path / "model.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    result = invoke(*command.split())
    assert result.exit_code == 1
    assert [line.rstrip() for line in result.output.splitlines()] == output.splitlines()
    assert invoke(*command.split()[:3], "--batch", "1,8").output.startswith("equal: 3 operations")
    assert invoke(*command.split()[:3], "--batch", "1,80").exit_code == 2  # it has 8 sequences
    fixed = invoke(*command.split(), "--fix", columns=200)
    assert "no change that accprobe tries makes both sides equal" in " ".join(fixed.output.split())

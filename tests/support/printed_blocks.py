"""Blocks of the pages from the output of commands and from the source of the package."""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from block_forms import COLUMNS, ROOT, fenced, filled, paragraphs, printed, tabled
from compiled import triton_dot

from accprobe.cli import main


def triton_cache() -> str:
    """Return the output for a cache of Triton's fp8 GEMMs: promoted, not promoted, and on two warps."""
    kernels = {"promoted": (4, 128), "two_warps": (2, None), "unpromoted": (4, None)}
    with TemporaryDirectory() as empty, chdir(empty):
        for name, (warps, imprecise) in kernels.items():
            folder = Path("cache", name)
            folder.mkdir(parents=True)
            (folder / "gemm.cubin").write_bytes(triton_dot(90, warps, imprecise, loop=True)["cubin"])
        lines = printed("sass", "cache", "--jobs", "1")
    return fenced(lines)


def rooms() -> str:
    """Return the folders of the package by layer, from the contract of import-linter."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["type"] == "layers" and "containers" not in c)
    floors = [[name.strip().removeprefix("accprobe.") for name in layer.split("|")] for layer in layers]
    left, right = max(len(name) for floor in floors for name in floor), COLUMNS - 20
    lines = []
    for floor in floors:
        lines.append("")
        for name in floor:
            texts = textwrap.wrap(_holds(name), right)
            lines += [f"{word:<{left}}  {text}" for word, text in zip([name, *[""] * len(texts)], texts, strict=False)]
    return fenced(lines[1:])


def _holds(name: str) -> str:
    """Return the first sentence of the docstring of a folder, or of a module at the top."""
    path = ROOT / "accprobe" / name
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(re.split(r"\.\s", text + " ")[0].split())


def commands() -> str:
    """Return a table of the options of several commands, then the usage, help text, examples and options of each command."""
    every = [*_with_groups(main.commands)]
    counts = Counter(record for _, command in every for record in map(_without_choices, _records(command)))
    common = [record for record, count in counts.items() if count > 2]
    return tabled(("option", "is"), map(_cells, common)) + "".join(_command(name, command, common) for name, command in every)


def _with_groups(commands: Mapping[str, click.Command], above: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in commands.items():
        yield f"{above}{name}", command
        yield from _with_groups(getattr(command, "commands", {}), f"{above}{name} ")


def _records(command: click.Command) -> list[tuple[str, str]]:
    """Return the name and the help of each option."""
    found = (option.get_help_record(click.Context(command)) for option in command.params)
    return [record for record in found if record and record[1]]


def _without_choices(record: tuple[str, str]) -> tuple[str, str]:
    return ("--format FORMAT", record[1]) if record[0].startswith("--format ") else record


def _cells(record: tuple[str, str]) -> tuple[str, str]:
    option, text = (each.replace("|", "\\|") for each in record)
    return f"`{option}`", text


def _command(name: str, command: click.Command, common: Container[tuple[str, str]]) -> str:
    context = click.Context(command, info_name=f"accprobe {name}")
    help_text, _, examples = (command.help or "").partition("\b\n")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [line.strip() for line in examples.splitlines()[1:] if line.strip()]
    records = _records(command)
    own = [_cells(record) for record in records if _without_choices(record) not in common]
    others = [_in_short(record[0]) for record in records if _without_choices(record) in common]
    said = [each for each in paragraphs(help_text) if each not in ("Needs: nothing.", "Exit status: 0; 2 error.")]
    parts = [
        f"\n## {name}\n\n`accprobe {name} {usage}`\n",
        *(f"\n{filled(paragraph)}" for paragraph in said),
        "".join(["\n```sh\n", *(f"{line}\n" for line in lines), "```\n"]) if lines else "",
        "\n" + tabled(("option", "is"), own) if own else "",
        f"\n{'Also' if own else 'Options:'} {', '.join(others)}.\n" if others else "",
    ]
    return "".join(parts)


def _in_short(option: str) -> str:
    """Return "`-o`", "`--seed`" or "`--format json|html`"."""
    name, _, value = option.partition(" ")
    return f"`{name} {value.strip('[]').removeprefix('terminal|')}`" if name == "--format" else f"`{name.rstrip(',')}`"

"""What the package says of itself: its rooms, its commands."""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from typing import Any

import click
from block_forms import COLUMNS, ROOT, fenced, filled, tabled

from accprobe.cli import main


def rooms() -> str:
    """The rooms of the package as floors of a house, with their modules, from the layers that import-linter holds."""
    contracts = _project()["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["type"] == "layers" and "containers" not in c)
    floors = [[name.strip().removeprefix("accprobe.") for name in layer.split("|")] for layer in layers]
    left, right = max(len(name) for floor in floors for name in floor), COLUMNS - 20
    lines = []
    for floor in floors:
        lines.append("─" * (left + right + 2))
        for name in floor:
            texts = textwrap.wrap(_holds(name), right)
            lines += [f"{word:<{left}}  {text}" for word, text in zip([name, *[""] * len(texts)], texts, strict=False)]
    return fenced([*lines, lines[0]])


def _holds(name: str) -> str:
    """The first sentence of a room's docstring, or of a module's that stands alone."""
    path = ROOT / "accprobe" / name
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    told = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(re.split(r"\.\s", told + " ")[0].split())


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def commands() -> str:
    """Every command as its help has it: a table of all, then usage, text, examples and options of each."""
    table = [(f"[`{name}`](#{name})", paragraphs(command.help or "")[0]) for name, command in main.commands.items()]
    return tabled(("command", "does"), table) + "".join(_section(name, command) for name, command in main.commands.items())


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"accprobe {name}")
    text, _, examples = (command.help or "").partition("\b\n")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [line.strip() for line in examples.splitlines()[1:] if line.strip()]
    records = [record for option in command.params if (record := option.get_help_record(context))]
    options = [(f"`{option}`".replace("|", "\\|"), told.replace("|", "\\|")) for option, told in records]
    parts = [
        f"\n## {name}\n\n`accprobe {name} {usage}`\n",
        *(f"\n{filled(paragraph)}\n" for paragraph in paragraphs(text)),
        "".join(["\n```sh\n", *(f"{line}\n" for line in lines), "```\n"]) if lines else "",
        "\n" + tabled(("option", "is"), options) if options else "",
    ]
    return "".join(parts)


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a help text, each on one line."""
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]

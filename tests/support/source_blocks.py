"""What the package says of itself: its rooms, its commands."""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from collections.abc import Sequence
from typing import Any

import click
from block_forms import COLUMNS, ROOT, fenced, tabled

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
            holds = [
                *textwrap.wrap(_holds(name), right),
                *textwrap.wrap(", ".join(_modules(name)), right, break_on_hyphens=False),
            ]
            lines += [f"{word:<{left}}  {text}" for word, text in zip([name, *[""] * len(holds)], holds, strict=False)]
    return fenced([*lines, lines[0]])


def _holds(name: str) -> str:
    """The first sentence of a room's docstring, or of a module's that stands alone."""
    path = ROOT / "accprobe" / name
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    told = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(re.split(r"\.\s", told + " ")[0].split())


def _modules(name: str) -> list[str]:
    """What a room has inside, folders with a stroke."""
    inside = sorted((ROOT / "accprobe" / name).glob("[a-z]*"))
    return [path.stem + "/" * path.is_dir() for path in inside if path.suffix == ".py" or (path / "__init__.py").exists()]


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def commands() -> str:
    """Of every command what it does, which extras it needs, and its exit status, as its help has them."""
    rows = []
    for name, command in main.commands.items():
        told = paragraphs(command)
        rows.append((f"[`{name}`](#{name})", told[0], *(told_of(told, label) for label in ("Needs", "Exit status"))))
    return tabled(("command", "does", "needs", "exit status"), rows)


def paragraphs(command: click.Command) -> list[str]:
    """The paragraphs of a command's help, each on one line."""
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", command.help or "")]


def told_of(told: Sequence[str], label: str) -> str:
    """The paragraph that begins with a label."""
    return next(text.removeprefix(f"{label}: ").removesuffix(".") for text in told if text.startswith(f"{label}: "))

"""What is said is made without a terminal: rich is imported by terminal renderers alone."""

from __future__ import annotations

import ast
from pathlib import Path

import accprobe

ROOT = Path(accprobe.__file__).parent


def imported(path: Path) -> set[str]:
    """The packages that a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_only_terminal_renderers_import_rich() -> None:
    having = {path.relative_to(ROOT).parent.as_posix() for path in ROOT.rglob("*.py") if "rich" in imported(path)}
    assert having == {"render/terminal"}

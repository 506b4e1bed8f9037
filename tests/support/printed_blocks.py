"""Blocks of the pages from the output of commands and from the source of the package."""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from block_forms import COLUMNS, ROOT, fenced, printed
from compiled import triton_dot

from accprobe.cli import main
from accprobe.isa.architectures import PROCESSORS
from accprobe.report.published import measured_counts


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


def never_ran() -> str:
    """Return the generations of GPUs without a measured instruction, in a sentence."""
    counts = [one for one in measured_counts() if one.target not in PROCESSORS]
    ran = {one.generation for one in counts if one.measured}
    *others, last = dict.fromkeys(one.generation for one in counts if one.generation not in ran)
    return f"accprobe has never run on {', '.join(others)} or {last} GPUs.\n"


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
    """Return the help text of every command."""
    return "".join(f"\n## {name}\n\n{fenced(printed(*name.split(), '--help'))}" for name in _with_groups(main.commands))


def _with_groups(commands: Mapping[str, click.Command], above: str = "") -> Iterator[str]:
    for name, command in commands.items():
        yield f"{above}{name}"
        yield from _with_groups(getattr(command, "commands", {}), f"{above}{name} ")

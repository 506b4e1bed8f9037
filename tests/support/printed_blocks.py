"""What commands print, whole or in part, as pages show it."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from contextlib import chdir
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from block_forms import COLUMNS, fenced, filled
from click.testing import CliRunner
from compiled import triton_dot

from accprobe.cli import main
from accprobe.compare.diff import diff
from accprobe.report.report import Report

ONE = "wgmma.m64n8k32.f32.e4m3.e4m3"
EXCERPT = (
    r"mma\.sync\.m16n8k\S*32\S*\.f32\.\{?e4m3",
    r"wgmma\.\S*k32\.f32\.\{?e4m3",
)
"""The lines of the table that a page shows."""


def shown(*arguments: str) -> list[str]:
    """What `accprobe show` prints."""
    return printed("show", *arguments)


def printed(*arguments: str, status: int = 0) -> list[str]:
    """What a command prints, without spaces at line ends."""
    result = CliRunner(env={"COLUMNS": str(COLUMNS)}).invoke(main, arguments)
    assert result.exit_code == status, result.stderr
    return [line.rstrip() for line in result.stdout.splitlines()]


def excerpt() -> str:
    """The headline of the H200, and some lines of its table."""
    lines = shown("h200")
    rule = next(i for i, line in enumerate(lines) if line.startswith("──"))
    end = next(i for i, line in enumerate(lines) if line.startswith("! "))
    kept = [*range(rule + 1)]
    for row in _entries(lines, rule + 1, end, "  "):
        name = "".join(lines[i].split()[0] for i in row if lines[i].strip()) + " "
        if any(re.match(pattern, name) for pattern in EXCERPT):
            kept += row
    return fenced(gapped(lines, kept))


def detail() -> str:
    """Of one instruction in full: what ran, the tree, and two of its features with what proves them."""
    lines = shown("h200", ONE)
    kept = [0]
    for heading in ("Ran as", "Summation tree", "Verification"):
        kept += _section(lines, heading)
    evidence = _section(lines, "Evidence")
    kept += evidence[:2]
    for feature in ("alignment_bits", "result_bits"):
        start = next(i for i in evidence if lines[i].startswith(feature))
        for entry in _entries(lines, start, len(lines), " " * 6)[:3]:
            kept += entry
    return fenced(gapped(lines, kept))


def gapped(lines: Sequence[str], kept: Container[int]) -> list[str]:
    """The lines kept, with an ellipsis in place of each run of others."""
    chosen: list[str] = []
    for keep, run in groupby(range(len(lines)), kept.__contains__):
        part = [lines[i] for i in run]
        first = next(filter(None, part), "")
        chosen += part if keep else [*[""][: not part[0]], " " * (len(first) - len(first.lstrip())) + "…"]
    return chosen


def _entries(lines: Sequence[str], start: int, end: int, further_in: str) -> list[list[int]]:
    """The lines from start to end, each with those below it that are indented so far."""
    found: list[list[int]] = []
    for i in range(start, end):
        if found and lines[i].startswith(further_in):
            found[-1].append(i)
        else:
            found.append([i])
    return found


def _section(lines: Sequence[str], heading: str) -> range:
    """An empty line, the heading and what is below it."""
    start = next(i for i, line in enumerate(lines) if line.startswith(heading))
    end = next((i for i in range(start, len(lines)) if not lines[i]), len(lines))
    return range(start - 1, end)


def headline() -> str:
    """What a comparison says first."""
    lines = printed("diff", "h200", "sim:b200", status=1)
    return fenced(lines[: lines.index("")])


def products_of_gpus() -> str:
    """What a comparison of their products says first, and the products that changed."""
    lines = printed("diff", "products-h100", "products-h200", status=1)
    table = lines[lines.index("The same product: changed") : lines.index("Every pair")]
    counts = next(line for line in lines if line.startswith("products: "))
    pairs = diff(Report.load("products-h100"), Report.load("products-h200")).products
    ran = [[[kernel.name for kernel in row.kernels] for row in (pair.a, pair.b) if row] for pair in pairs if pair.differences]
    assert all(of_a == of_b for of_a, of_b in ran)
    kernel = ran[0][0][0]
    told = f"The witness saw the same kernels on both, of the first `{kernel}`, launched for another number of slices."
    return fenced([*lines[: lines.index("")], "", *table, counts]) + "\n" + filled(told) + "\n"


def triton_cache() -> str:
    """What is said of a cache with an fp8 GEMM of Triton's, promoted and not, and on two warps."""
    kernels = {"promoted": (4, 128), "two_warps": (2, None), "unpromoted": (4, None)}
    with TemporaryDirectory() as empty, chdir(empty):
        for name, (warps, imprecise) in kernels.items():
            folder = Path("cache", name)
            folder.mkdir(parents=True)
            (folder / "gemm.cubin").write_bytes(triton_dot(90, warps, imprecise, loop=True)["cubin"])
        lines = printed("sass", "cache")
    return fenced(lines)


def kill_table() -> str:
    """The recommended test of a product, and the mistakes that tests detect."""
    command = ("tolerance", "QGMMA", "--k", "7168", "--promote-every", "128", "--out", "bf16")
    return fenced([f"$ accprobe {' '.join(command)}", *printed(*command)])

"""Whole outputs that the tests compare with, and the published schema: `python tests/support/golden.py` writes them again.

Their values come from the recorded reports and the published models; look at the difference before it is committed.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner
from product_rows import OF_A, OF_B, REQUIRED, product_report

from accprobe.cli import main
from accprobe.health.outcome import HEALTH_FILE, health_schema_text
from accprobe.report.report import SCHEMA_FILE, schema_text

FOLDER = Path(__file__).parents[1] / "golden"

DIFFS = {
    "h200-b200": (("h200", "sim:b200"), 1),
    "a100-h100": (("sim:a100", "sim:h100"), 1),
    "h200-h200": (("h200", "h200"), 0),
}
"""By name: the two sides, and the exit status."""

WIDTHS = (80,)


def printed(name: str, width: int) -> str:
    """What the comparison prints on a terminal of that width."""
    sides, status = DIFFS[name]
    result = CliRunner(env={"COLUMNS": str(width)}).invoke(main, ["diff", *sides])
    assert (result.exit_code, result.stderr) == (status, "")
    return "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())


def file(name: str, width: int) -> Path:
    """Where it is recorded."""
    return FOLDER / f"diff-{name}-{width}.txt"


PRODUCTS = {
    "show-one": ("show", "a.json", "torch:mm"),
    "show-some": ("show", "a.json"),
    "diff": ("diff", "a.json", "b.json"),
    "check": ("check", "a.json", *(word for line in REQUIRED for word in ("--require", line))),
}
"""By name: what is run on two reports of products that are made by hand."""


def printed_of_products(name: str, width: int, folder: Path) -> str:
    """What that prints on a terminal of that width, and the exit status in its last line."""
    product_report(*OF_A).save(folder / "a.json")
    device = {"kind": "cuda", "name": "Other GPU", "architecture": "sm_90a"}
    product_report(*OF_B, device=device).save(folder / "b.json")
    words = [str(folder / word) if word.endswith(".json") else word for word in PRODUCTS[name]]
    result = CliRunner(env={"COLUMNS": str(width)}).invoke(main, words)
    assert result.stderr == ""
    return "".join(f"{line.rstrip()}\n" for line in (*result.stdout.splitlines(), f"exit status {result.exit_code}"))


def file_of_products(name: str, width: int) -> Path:
    return FOLDER / f"products-{name}-{width}.txt"


BUDGET = ("budget", "QGMMA", "--k", "256,1024", "--scale", "none,1x128", "--outputs", "256")
"""Small enough to be computed in a test."""


def printed_budget(width: int) -> str:
    """What it prints on a terminal of that width."""
    result = CliRunner(env={"COLUMNS": str(width)}).invoke(main, BUDGET)
    assert result.exit_code == 0
    return "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())


def file_of_budget(width: int) -> Path:
    return FOLDER / f"budget-{width}.txt"


if __name__ == "__main__":
    for width in WIDTHS:
        file_of_budget(width).write_text(printed_budget(width), encoding="utf-8")
    with TemporaryDirectory() as made:
        for name in PRODUCTS:
            for width in WIDTHS:
                file_of_products(name, width).write_text(printed_of_products(name, width, Path(made)), encoding="utf-8")
    for name in DIFFS:
        for width in WIDTHS:
            file(name, width).write_text(printed(name, width), encoding="utf-8")
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    HEALTH_FILE.write_text(health_schema_text(), encoding="utf-8")

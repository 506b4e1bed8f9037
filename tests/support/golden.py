"""Whole outputs that the tests compare with, and the published schema: `python tests/support/golden.py` writes them again.

Their values come from the recorded reports and the published models; look at the difference before it is committed.
"""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from accprobe.cli import main
from accprobe.report import schema

FOLDER = Path(__file__).parents[1] / "golden"

DIFFS = {
    "h200-b200": (("h200", "sim:b200"), 1),
    "a100-h100": (("sim:a100", "sim:h100"), 1),
    "h200-h200": (("h200", "h200"), 0),
}
"""By name: the two sides, and the exit status."""

WIDTHS = (80, 160)


def printed(name: str, width: int) -> str:
    """What the comparison prints on a terminal of that width."""
    sides, status = DIFFS[name]
    result = CliRunner(env={"COLUMNS": str(width)}).invoke(main, ["diff", *sides])
    assert (result.exit_code, result.stderr) == (status, "")
    return "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())


def file(name: str, width: int) -> Path:
    """Where it is recorded."""
    return FOLDER / f"diff-{name}-{width}.txt"


if __name__ == "__main__":
    for name in DIFFS:
        for width in WIDTHS:
            file(name, width).write_text(printed(name, width), encoding="utf-8")
    schema.FILE.write_text(schema.text(), encoding="utf-8")

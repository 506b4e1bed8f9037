"""Recorded results of real matrix units, where this disk has them, and the counts of those that published models explain.

Source: MATLAB-tensor-core. `python tests/support/hardware_vectors.py` writes reports/explained.json again.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from accprobe.cli import main
from accprobe.model.published import EXPLAINED

VECTORS = Path(os.environ.get("ACCPROBE_HARDWARE_VECTORS") or Path(__file__).parents[3] / "shared" / "hardware-vectors")
FOLDERS = [folder for folder in (VECTORS, VECTORS.with_name(f"more-{VECTORS.name}")) if folder.is_dir()]
"""Folders of results: that one, and one beside it with results of more GPUs."""

needs_vectors = pytest.mark.skipif(
    not (VECTORS / "H100").is_dir(), reason="no hardware vectors; ACCPROBE_HARDWARE_VECTORS names their folder"
)

FILE = Path(__file__).parents[2] / "reports" / f"{EXPLAINED}.json"
ORIGIN = "MATLAB-tensor-core"
KEPT = ("gpu", "operand", "result", "name", "without_c", "dots", "mismatches")

Key = tuple[str, str, str]
"""GPU, operands and results of a set, in the words of the files."""


def compared() -> dict[Key, dict[str, Any]]:
    """Return the comparison of every set of results with the models, with the repository and, if known, the commit."""
    found = {}
    for folder in FOLDERS:
        result = CliRunner().invoke(main, ["verify", "sim:all", "--vectors", str(folder), "--format", "json"])
        assert (result.exit_code, result.stderr) == (0, "")
        for one in json.loads(result.stdout)["compared"]:
            found[one["gpu"], one["operand"], one["result"]] = {key: one[key] for key in KEPT} | {"source": _source(folder)}
    return found


def _source(folder: Path) -> str:
    readme = folder / "README.md"
    commit = re.search(r"\bcommit ([0-9a-f]{7,40})\b", readme.read_text(encoding="utf-8")) if readme.is_file() else None
    return f"{ORIGIN} {commit[1]}" if commit else ORIGIN


def recorded() -> dict[Key, dict[str, Any]]:
    """Return the recorded comparisons."""
    sets = json.loads(FILE.read_text(encoding="utf-8"))["compared"]
    return {(one["gpu"], one["operand"], one["result"]): one for one in sets}


if __name__ == "__main__":
    head = {
        "by": "accprobe verify sim:all --vectors DIR --format json",
        "origin": "https://github.com/north-numerical-computing/MATLAB-tensor-core, model_validation (BSD 2-clause)",
        "authors": "F. A. Khattak and M. Mikaitis",
    }
    lines = ",\n".join(f"  {json.dumps(one)}" for one in compared().values())
    FILE.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "compared": [\n{lines}\n ]\n}}\n', encoding="utf-8")

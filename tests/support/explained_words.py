"""What published models explain of recorded results of hardware: `python tests/support/explained_words.py` writes it again.

It stands in `reports/explained.json`, each set of results as `accprobe verify sim:all --vectors DIR --format json` tells it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from hardware_vectors import FOLDERS

from accprobe.cli import main
from accprobe.model.published import EXPLAINED

FILE = Path(__file__).parents[2] / "reports" / f"{EXPLAINED}.json"
ORIGIN = "MATLAB-tensor-core"
KEPT = ("gpu", "operand", "result", "name", "without_c", "dots", "mismatches")

Key = tuple[str, str, str]
"""GPU, operands and results of a set, as the files name them."""


def compared() -> dict[Key, dict[str, Any]]:
    """Every set of results that is here, with the repository and, where the folder's README has it, the commit."""
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
    """What the file has."""
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

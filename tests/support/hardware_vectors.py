"""Recorded results of real matrix units, where this disk has them, and the counts of those that published models explain.

`GPU/FORMAT/a_GPU_FORMAT.txt` and `b_…`: one dot product a line, each value the hexadecimal pattern of a float32;
`c_GPU_fp32.txt`, and `d_GPU_fp32.txt` or `d_GPU_fp16.txt` or both: one value a line, 32 binary digits, again a float32. The
layout does not name the instruction: if several fit, each is tried, and the one that explains most results counts.

Source: F. A. Khattak and M. Mikaitis, https://github.com/north-numerical-computing/MATLAB-tensor-core (BSD 2-clause).
`python tests/support/hardware_vectors.py` writes reports/explained.json again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.families import FAMILIES
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.published import EXPLAINED, known_models
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request

VECTORS = Path(os.environ.get("ACCPROBE_HARDWARE_VECTORS") or Path(__file__).parents[3] / "shared" / "hardware-vectors")
FOLDERS = [folder for folder in (VECTORS, VECTORS.with_name(f"more-{VECTORS.name}")) if folder.is_dir()]
"""Folders of results: that one, and one beside it with results of more GPUs."""

needs_vectors = pytest.mark.skipif(
    not (VECTORS / "H100").is_dir(), reason="no hardware vectors; ACCPROBE_HARDWARE_VECTORS names their folder"
)

FILE = Path(__file__).parents[2] / "reports" / f"{EXPLAINED}.json"
ORIGIN = "MATLAB-tensor-core"
OPERANDS = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2"}
RESULT_FORMATS = {"fp32": "f32", "fp16": "f16"}

Key = tuple[str, str, str]
"""GPU, operands and results of a set, in the words of the files."""

Models = Mapping[Instruction, DotModel]


class Recorded(NamedTuple):
    """One set of results: the GPU, operands and results as the files name them, and their folder."""

    gpu: str
    operand: str
    result: str
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.gpu}/{self.operand} -> {self.result}"

    def patterns(self, letter: str) -> Bits:
        """Return the lines of the file of A, B, C or D, [lines, values]."""
        kind = {"c": "fp32", "d": self.result}.get(letter, self.operand)
        lines = (self.folder / f"{letter}_{self.gpu}_{kind}.txt").read_text(encoding="ascii").splitlines()
        return np.array([[int(word, 16 if letter in "ab" else 2) for word in line.split()] for line in lines], np.uint32)


class Comparison(NamedTuple):
    """A set of results compared with the model of an instruction. without_c: C was zero, although the file has one."""

    inst: Instruction
    without_c: bool
    dots: int
    mismatches: int


def find_vectors(folder: Path) -> list[Recorded]:
    """Return every set of results below a folder, by GPU."""
    paths = sorted(folder.glob("*/*/d_*.txt"))
    return [Recorded(path.parts[-3], path.parts[-2], path.stem.rpartition("_")[2], path.parent) for path in paths]


def published_models(gpu: str) -> Models:
    return {inst: known.model for inst, known in known_models(gpu).items()}


def compare(recorded: Recorded, known: Models) -> list[Comparison]:
    """Return the comparison with each instruction that fits, the one that explains most results first."""
    a, b, c, d = map(recorded.patterns, "abcd")
    found = []
    for inst, without_c in _interpretations(recorded, a.shape[1], known):
        narrow = Request(_narrowed(a, inst.a), _narrowed(b, inst.b), _narrowed(c[:, 0] * (not without_c), inst.c))
        for given, used, fmt in ((a, narrow.a, inst.a), (b, narrow.b, inst.b)):
            assert ((_widened(used, fmt) == given) | np.isnan(given.view(np.float32))).all()
        got = _widened(evaluate(known[inst], inst, narrow), inst.d)
        found.append(Comparison(inst, without_c, len(d), int((got != d[:, 0]).sum())))
    return sorted(found, key=lambda each: each.mismatches)


def _interpretations(recorded: Recorded, k: int, known: Models) -> Iterator[tuple[Instruction, bool]]:
    """Yield the smallest shape of each family; one that adds to D also with C = 0, which the recording may have had.

    Families with the same model count once.
    """
    wanted = (OPERANDS[recorded.operand],) * 2 + (RESULT_FORMATS[recorded.result],) * 2 + (k, False)
    fits = [x for x in known if (x.a.name, x.b.name, x.c.name, x.d.name, x.k, x.a_registers) == wanted]
    seen: set[DotModel] = set()
    for family in FAMILIES:
        for inst in sorted((inst for inst in fits if inst.family is family), key=lambda inst: inst.m * inst.n)[:1]:
            if known[inst] not in seen:
                seen.add(known[inst])
                yield from ((inst, without_c) for without_c in (False, True)[: 1 + family.adds_to_d])


def _narrowed(patterns: Bits, fmt: Format) -> Bits:
    """Round patterns of float32 to a narrower format."""
    if fmt.storage_bits == 32:
        return patterns
    with np.errstate(over="ignore", invalid="ignore"):
        return patterns.view(np.float32).astype(fmt.ml_dtype).view(fmt.dtype)


def _widened(patterns: Bits, fmt: Format) -> Bits:
    return fmt.values(patterns).astype(np.float32).view(np.uint32) if fmt.storage_bits < 32 else patterns


def compared() -> dict[Key, dict[str, Any]]:
    """Return the comparison of every set of results with the models, with the repository and, if known, the commit."""
    found = {}
    for folder in FOLDERS:
        for one in find_vectors(folder):
            inst, *rest = compare(one, published_models(one.gpu))[0]
            values = (*one[:3], inst.name, *rest, _source(folder))
            keys = ("gpu", "operand", "result", "name", *Comparison._fields[1:], "source")
            found[one[:3]] = dict(zip(keys, values, strict=True))
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
        "by": "python tests/support/hardware_vectors.py",
        "origin": "https://github.com/north-numerical-computing/MATLAB-tensor-core, model_validation (BSD 2-clause)",
        "authors": "F. A. Khattak and M. Mikaitis",
    }
    lines = ",\n".join(f"  {json.dumps(one)}" for one in compared().values())
    FILE.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "compared": [\n{lines}\n ]\n}}\n', encoding="utf-8")

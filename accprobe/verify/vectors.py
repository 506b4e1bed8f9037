"""Recorded results of real matrix units, in the layout of MATLAB-tensor-core's `model_validation`, compared with models.

`GPU/FORMAT/a_GPU_FORMAT.txt` and `b_…`: one dot product a line, each value the hexadecimal pattern of a float32;
`c_GPU_fp32.txt`, and `d_GPU_fp32.txt` or `d_GPU_fp16.txt` or both: one value a line, 32 binary digits, again a float32. The
layout does not name the instruction: if several fit, each is tried, and the report shows the one that explains most results.

Source: F. A. Khattak and M. Mikaitis, https://github.com/north-numerical-computing/MATLAB-tensor-core (BSD 2-clause).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from accprobe.errors import UnknownName, VectorsError
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.families import FAMILIES
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.published import chip, known_models
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample
from accprobe.operands.request import Request

OPERANDS = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2"}
RESULT_FORMATS = {"fp32": "f32", "fp16": "f16"}


class Recorded(NamedTuple):
    """One set of results: the GPU, operands and results as the files name them, and their folder."""

    gpu: str
    operand: str
    result: str
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.gpu}/{self.operand} -> {self.result}"

    def file(self, letter: str) -> Path:
        """Return the file of A, B, C or D."""
        kind = {"c": "fp32", "d": self.result}.get(letter, self.operand)
        return self.folder / f"{letter}_{self.gpu}_{kind}.txt"


@dataclass(frozen=True)
class Interpretation:
    """One instruction that may have run, and whether C was zero although the file has one."""

    inst: Instruction
    without_c: bool = False

    def __str__(self) -> str:
        return f"{self.inst.name} with C = 0" if self.without_c else self.inst.name


@dataclass(frozen=True)
class Comparison:
    """One set of results compared with the model of the interpretation that explains most of it.

    others: the other interpretations, each with the number of mismatches of its model.
    """

    recorded: Recorded
    reading: Interpretation
    dots: int
    mismatches: int
    first: Counterexample | None = None
    others: tuple[tuple[Interpretation, int], ...] = ()


Models = Callable[[str], Mapping[Instruction, DotModel]]  # The models of a GPU, by its name. Raises UnknownName.


def published_models(gpu: str) -> Mapping[Instruction, DotModel]:
    """Return the published models of a chip."""
    return {inst: known.model for inst, known in known_models(gpu).items()}


def find_vectors(folder: Path) -> list[Recorded]:
    """Return every set of results below a folder, by GPU. Raises VectorsError if there is none or a file is misnamed."""
    if not folder.is_dir():
        raise VectorsError(f"{folder} is no folder; give one that has GPU/FORMAT/d_GPU_fp32.txt in it")
    found = []
    for path in sorted(folder.glob("*/*/d_*.txt")):
        recorded = Recorded(path.parent.parent.name, path.parent.name, path.stem.rpartition("_")[2], path.parent)
        if path != recorded.file("d") or recorded.operand not in OPERANDS or recorded.result not in RESULT_FORMATS:
            raise VectorsError(f"{path} is not GPU/FORMAT/d_GPU_RESULT.txt with a known format and result")
        found.append(recorded)
    with_results = {recorded.folder for recorded in found}
    if silent := next((path for path in sorted(folder.glob("*/*/a_*.txt")) if path.parent not in with_results), None):
        raise VectorsError(f"{silent.parent} has operands and no results: d_{silent.parent.parent.name}_fp32.txt is missing")
    if not found:
        raise VectorsError(f"{folder} has no results: nothing there is named GPU/FORMAT/d_GPU_fp32.txt")
    return found


def compare(recorded: Recorded, models: Models = published_models) -> Comparison:
    """Compare the results with the models of their GPU.

    Raises UnknownName if there is no such GPU, VectorsError if the files cannot be read or no model fits them.
    """
    (given, d), known = _load(recorded), models(recorded.gpu)
    k, tried = given.a.shape[1], []
    for reading in _interpretations(recorded, k, known):
        operands = _operands(recorded, given, reading)
        got = evaluate(known[reading.inst], reading.inst, operands)
        tried.append((reading, operands, got, np.flatnonzero(_widened(got, reading.inst.d) != d)))
    if not tried:
        raise VectorsError(f"{recorded.folder}: no model of {recorded.gpu} takes {k} products of {recorded.operand}")
    best, operands, got, wrong = min(tried, key=lambda each: len(each[-1]))
    first = None
    if len(wrong):
        first = Counterexample.of(operands, int(wrong[0]), _narrowed(d, best.inst.d), got, recorded.name)
    others = tuple((reading, len(differing)) for reading, *_, differing in tried if reading != best)
    return Comparison(recorded, best, len(d), len(wrong), first, others)


def _interpretations(recorded: Recorded, k: int, known: Mapping[Instruction, DotModel]) -> Iterator[Interpretation]:
    """Yield the smallest shape of each family; one that adds to D also with C = 0, which the recording may have had.

    Families with the same model count once.
    """
    wanted = (OPERANDS[recorded.operand],) * 2 + (RESULT_FORMATS[recorded.result],) * 2 + (k, False)
    fits = [x for x in known if (x.a.name, x.b.name, x.c.name, x.d.name, x.k, x.a_registers) == wanted]
    seen: set[DotModel] = set()
    for family in FAMILIES:
        for inst in sorted((inst for inst in fits if inst.family is family), key=lambda inst: inst.m * inst.n)[:1]:
            if known[inst] in seen:
                continue
            seen.add(known[inst])
            yield Interpretation(inst)
            if family.adds_to_d:
                yield Interpretation(inst, without_c=True)


def same_chip(one: str, other: str) -> bool:
    """Return whether two names are of one chip; False if either is unknown."""
    try:
        return chip(one) is chip(other)
    except UnknownName:
        return False


def _operands(recorded: Recorded, given: Request, reading: Interpretation) -> Request:
    inst = reading.inst
    a, b, c = (_narrowed(x, fmt) for x, fmt in ((given.a, inst.a), (given.b, inst.b), (given.c, inst.c)))
    for letter, narrow, wide, fmt in (("a", a, given.a, inst.a), ("b", b, given.b, inst.b)):
        wrong = np.argwhere((_widened(narrow, fmt) != wide) & ~np.isnan(wide.view(np.float32)))
        if len(wrong):
            line, place = wrong[0]
            raise VectorsError(f"{recorded.file(letter)}:{line + 1}: {wide[line, place]:08x} is not a value of {fmt}")
    return Request(a, b, np.zeros_like(c) if reading.without_c else c)


def _narrowed(patterns: Bits, fmt: Format) -> Bits:
    """Round patterns of float32 to a narrower format."""
    if fmt.storage_bits == 32:
        return patterns
    with np.errstate(over="ignore", invalid="ignore"):
        return patterns.view(np.float32).astype(fmt.ml_dtype).view(fmt.dtype)


def _widened(patterns: Bits, fmt: Format) -> Bits:
    return fmt.values(patterns).astype(np.float32).view(np.uint32) if fmt.storage_bits < 32 else patterns


def _load(recorded: Recorded) -> tuple[Request, Bits]:
    """Return operands and results, all as patterns of float32. Raises VectorsError with the file, and the line at fault."""
    a, b = (_patterns(recorded.file(letter), "hexadecimal", r"[\da-fA-F]{1,8}", 16) for letter in "ab")
    c, d = (_patterns(recorded.file(letter), "binary", "[01]{1,32}", 2)[:, 0] for letter in "cd")
    if a.shape != b.shape or len({len(a), len(c), len(d)}) > 1:
        shapes = ", ".join(f"{x} {'×'.join(map(str, y.shape))}" for x, y in zip("abcd", (a, b, c, d), strict=True))
        raise VectorsError(f"{recorded.folder}: the files have different numbers of values: {shapes}")
    return Request(a, b, c), d


def _patterns(path: Path, kind: str, pattern: str, base: int) -> Bits:
    """Return the lines of a file, [lines, values]."""
    try:
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    except FileNotFoundError:
        raise VectorsError(f"{path} is missing") from None
    except (OSError, UnicodeDecodeError) as e:
        raise VectorsError(f"{path} cannot be read: {e}") from None
    if not lines or not lines[0]:
        raise VectorsError(f"{path} is empty")
    for number, words in enumerate(lines, start=1):
        if wrong := next((word for word in words if not re.fullmatch(pattern, word)), None):
            raise VectorsError(f"{path}:{number}: '{wrong[:40]}' is no {kind} pattern of a float32")
        if len(words) != len(lines[0]):
            raise VectorsError(f"{path}:{number}: {len(words)} values, and {len(lines[0])} on the first line")
    return np.array([[int(word, base) for word in words] for words in lines], np.uint32)

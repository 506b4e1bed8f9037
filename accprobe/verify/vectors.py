"""Recorded results of real matrix units, as MATLAB-tensor-core's `model_validation` lays them out, against models.

`GPU/FORMAT/a_GPU_FORMAT.txt` and `b_…`: one dot product a line, each value the hexadecimal pattern of a float32;
`c_GPU_fp32.txt`, and `d_GPU_fp32.txt` or `d_GPU_fp16.txt` or both: one value a line, 32 binary digits, again a float32. What
the layout does not say is which instruction ran: where several may have, each is tried, and the one that explains most is
told with what the others leave unexplained.

Source: F. A. Khattak and M. Mikaitis, https://github.com/north-numerical-computing/MATLAB-tensor-core (BSD 2-clause).
"""

from __future__ import annotations

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
    """One set of results: of which GPU, operands and results (as the files name them), the files, and K."""

    gpu: str
    operand: str
    result: str
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.gpu}/{self.operand} -> {self.result}"


class Dots(NamedTuple):
    """What was asked and answered, all as patterns of float32: a, b [N, K], c, d [N]."""

    a: Bits
    b: Bits
    c: Bits
    d: Bits


@dataclass(frozen=True)
class Interpretation:
    """One instruction that may have run, and whether C was zero, whatever the file has."""

    inst: Instruction
    without_c: bool = False

    def __str__(self) -> str:
        return f"{self.inst.name} with C = 0" if self.without_c else self.inst.name


@dataclass(frozen=True)
class Comparison:
    """One set of results against the model of the reading that explains most of it.

    others: the other readings, each with the dot products that its model gets wrong.
    """

    recorded: Recorded
    reading: Interpretation
    dots: int
    mismatches: int
    first: Counterexample | None = None
    others: tuple[tuple[Interpretation, int], ...] = ()


Models = Callable[[str], Mapping[Instruction, DotModel]]  # The models of a GPU, by its name. Raises UnknownName.


def published_models(gpu: str) -> Mapping[Instruction, DotModel]:
    """The published models of a chip."""
    return {inst: known.model for inst, known in known_models(gpu).items()}


def find_vectors(folder: Path) -> list[Recorded]:
    """Every set of results below a folder, by GPU. Raises VectorsError where there is none or a file has no place."""
    if not folder.is_dir():
        raise VectorsError(f"{folder} is no folder; give one that has GPU/FORMAT/d_GPU_fp32.txt in it")
    found = []
    for path in sorted(folder.glob("*/*/d_*.txt")):
        gpu, operand, result = path.parent.parent.name, path.parent.name, path.stem.rpartition("_")[2]
        if path.name != f"d_{gpu}_{result}.txt" or operand not in OPERANDS or result not in RESULT_FORMATS:
            raise VectorsError(f"{path} is not GPU/FORMAT/d_GPU_RESULT.txt with a known format and result")
        found.append(Recorded(gpu, operand, result, path.parent))
    with_results = {recorded.folder for recorded in found}
    if silent := next((path for path in sorted(folder.glob("*/*/a_*.txt")) if path.parent not in with_results), None):
        raise VectorsError(f"{silent.parent} has operands and no results: d_{silent.parent.parent.name}_fp32.txt is missing")
    if not found:
        raise VectorsError(f"{folder} has no results: nothing there is named GPU/FORMAT/d_GPU_fp32.txt")
    return found


def load_vectors(recorded: Recorded) -> Dots:
    """The patterns in the files. Raises VectorsError that names the file, and the line where it goes wrong."""
    gpu, folder = recorded.gpu, recorded.folder
    a, b = (_table(folder / f"{x}_{gpu}_{recorded.operand}.txt") for x in "ab")
    c = _column(folder / f"c_{gpu}_fp32.txt")
    d = _column(folder / f"d_{gpu}_{recorded.result}.txt")
    if a.shape != b.shape or len({len(a), len(c), len(d)}) > 1:
        shapes = ", ".join(f"{x} {'×'.join(map(str, y.shape))}" for x, y in zip("abcd", (a, b, c, d), strict=True))
        raise VectorsError(f"{folder}: the files have different numbers of values: {shapes}")
    return Dots(a, b, c, d)


def compare(recorded: Recorded, models: Models = published_models) -> Comparison:
    """The results against the models of their GPU.

    Raises UnknownName where there is no such GPU, VectorsError where the files cannot be read or no model fits them.
    """
    dots, known = load_vectors(recorded), models(recorded.gpu)
    tried = []
    for reading in readings(recorded, dots.a.shape[1], known):
        operands = _operands(recorded, dots, reading)
        got = evaluate(known[reading.inst], reading.inst, operands)
        wrong = np.flatnonzero(_widened(got, reading.inst.d) != dots.d)
        tried.append((len(wrong), reading, operands, got, wrong))
    if not tried:
        k = dots.a.shape[1]
        raise VectorsError(f"{recorded.folder}: no model of {recorded.gpu} takes {k} products of {recorded.operand}")
    count, best, operands, got, wrong = min(tried, key=lambda t: t[0])
    first = None
    if count:
        first = Counterexample.of(operands, int(wrong[0]), _narrowed(dots.d, best.inst.d), got, recorded.name)
    others = tuple((reading, n) for n, reading, *_ in tried if reading != best)
    return Comparison(recorded, best, len(dots.d), count, first, others)


def readings(recorded: Recorded, k: int, known: Mapping[Instruction, DotModel]) -> Iterator[Interpretation]:
    """What may have run: of each family the smallest shape; one that adds to D also as it was recorded, with C left at zero.

    The families are told apart only where they compute differently.
    """
    operand, result = OPERANDS[recorded.operand], RESULT_FORMATS[recorded.result]
    fits = [
        inst
        for inst in known
        if (inst.a.name, inst.b.name, inst.d.name, inst.k) == (operand, operand, result, k)
        and inst.c == inst.d
        and not inst.a_registers
    ]
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
    """Whether two names are of one chip; False where either is unknown."""
    try:
        return chip(one) is chip(other)
    except UnknownName:
        return False


def _operands(recorded: Recorded, dots: Dots, reading: Interpretation) -> Request:
    inst = reading.inst
    a, b = _narrowed(dots.a, inst.a), _narrowed(dots.b, inst.b)
    for name, narrow, wide, fmt in (("a", a, dots.a, inst.a), ("b", b, dots.b, inst.b)):
        wrong = np.argwhere((_widened(narrow, fmt) != wide) & ~np.isnan(wide.view(np.float32)))
        if len(wrong):
            line, place = (int(i) for i in wrong[0])
            file = recorded.folder / f"{name}_{recorded.gpu}_{recorded.operand}.txt"
            raise VectorsError(f"{file}:{line + 1}: {wide[line, place]:08x} is not a value of {fmt}")
    c = _narrowed(dots.c, inst.c)
    return Request(a, b, np.zeros_like(c) if reading.without_c else c)


def _narrowed(patterns: Bits, fmt: Format) -> Bits:
    """Patterns of float32, rounded to a narrower format."""
    if fmt.storage_bits == 32:
        return patterns
    with np.errstate(over="ignore", invalid="ignore"):
        return patterns.view(np.float32).astype(fmt.ml_dtype).view(fmt.dtype)


def _widened(patterns: Bits, fmt: Format) -> Bits:
    return fmt.values(patterns).astype(np.float32).view(np.uint32) if fmt.storage_bits < 32 else patterns


def _table(path: Path) -> Bits:
    rows = [_row(path, number, line) for number, line in enumerate(_lines(path), start=1)]
    if wrong := next((i for i, row in enumerate(rows) if len(row) != len(rows[0])), None):
        raise VectorsError(f"{path}:{wrong + 1}: {len(rows[wrong])} values, and {len(rows[0])} on the first line")
    return np.array(rows, np.uint32)


def _row(path: Path, number: int, line: str) -> list[int]:
    return [_pattern(path, number, word, 16) for word in line.split()]


def _column(path: Path) -> Bits:
    return np.array([_pattern(path, number, line.strip(), 2) for number, line in enumerate(_lines(path), start=1)], np.uint32)


def _pattern(path: Path, number: int, word: str, base: int) -> int:
    try:
        pattern = int(word, base)
    except ValueError:
        pattern = -1
    if not 0 <= pattern < 1 << 32:
        kind = "hexadecimal" if base == 16 else "binary"
        raise VectorsError(f"{path}:{number}: '{word[:40]}' is no {kind} pattern of a float32")
    return pattern


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        raise VectorsError(f"{path} is missing") from None
    except (OSError, UnicodeDecodeError) as e:
        raise VectorsError(f"{path} cannot be read: {e}") from None
    if not lines:
        raise VectorsError(f"{path} is empty")
    return lines

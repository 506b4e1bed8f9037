"""Kernels of matrix products on one GPU: the hardware instruction, the evaluator, and random operands.

Arrays are cupy's, row after row: A [rows, K], B [columns, K], C and D [rows, columns], bit patterns. Everything goes to the
current stream of the current GPU; only making an `Evaluator` waits for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.build import compiler, probes
from accprobe.evaluate.cuda import source
from accprobe.isa import architectures
from accprobe.isa.instructions import Instruction
from accprobe.model.product import NO_K
from accprobe.model.tree import DotModel
from accprobe.operands import drawing

# Largest number of stored mismatches of a batch.
MOST_FOUND = 4

# Extra memory of a chain: as a share of its operands, and bytes that are always allowed.
SCRATCH, LEAST_SCRATCH = 1 / 4, 1 << 29

THREADS = 256
_MOST_BLOCKS = 1 << 14
_NOTHING = np.uint64(0)


def _pointer(array: Any) -> np.uint64:
    return _NOTHING if array is None else np.uint64(array.data.ptr)


def sources(inst: Instruction, model: DotModel) -> list[tuple[str, str]]:
    """Return (source, name) of the kernels by which a model is verified, the slowest to compile first."""
    return [
        (source.source(model, inst.stored), evaluator_name(inst)),
        (probes.source(inst, products=True), inst.name),
        (drawing.source(inst.stored), f"the operands of {inst.name}"),
    ]


def evaluator_name(inst: Instruction) -> str:
    return f"the evaluator of {inst.name}"


class Evaluator:
    """A model's evaluator for a compile target. chained: for long chains.

    matrix_units: find largest exponents by matrix units. Do not set it when these are under test.
    """

    def __init__(
        self, cupy: Any, inst: Instruction, model: DotModel, target: str, chained: bool = False, matrix_units: bool = False
    ) -> None:
        # Units of bf16 can find largest exponents.
        matrix_units = matrix_units and architectures.get(target).compute_capability >= (8, 0)
        code = source.source(model, inst, chained, matrix_units)
        cubin = compiler.compile_source(code, target, evaluator_name(inst))
        module = cupy.RawModule(path=str(cubin.path))
        self._cupy, self._function = cupy, module.get_function("evaluate")
        launch = cupy.zeros(6, np.uint32)
        module.get_function("describe")((1,), (1,), (_pointer(launch),))
        self._threads, self._shared, self._rows, self._columns, *self._taken = launch.get().tolist()
        if self._shared:
            self._function.max_dynamic_shared_size_bytes = self._shared
        self._take = [module.get_function(name) for name in ("take_rows", "take_columns") if self._taken[0]]

    def evaluate(
        self, a: Any, b: Any, c: Any, d: Any, blocks: int = 1, promote: int = 0, ks: NDArray[np.intp] | None = None
    ) -> None:
        """Write d = a · b + c of the model, in a chain of `blocks`. C may be None; promote: see evaluator.cu.

        ks: the columns of A and B in the order of use, NO_K for zeros; None: all in order. Prepared or copied operands are made
        in parts of K, at least one block each, within SCRATCH of the operands or LEAST_SCRATCH.
        """
        ks = np.arange(a.shape[1]) if ks is None else ks
        most = self._most_blocks(a, b, blocks, ks)
        if most < min(blocks, promote):
            self._promoted(a, b, c, d, blocks, promote, ks)
            return
        every = most // promote * promote if promote and most < blocks else most
        before = self._cupy.empty_like(d) if promote and every < blocks else d
        for first in range(0, blocks, every):
            part = range(first, min(first + every, blocks))
            of_a, of_b = (_gathered(self._cupy, x, _of_blocks(ks, part, blocks)) for x in (a, b))
            self._launch(of_a, of_b, c, d, len(part), promote, (None, None, None), 0)
            if part.stop < blocks:  # chains continue in place; promoted sums are stored before the last read of C
                if promote:
                    before[...] = d
                c = before

    def _promoted(self, a: Any, b: Any, c: Any, d: Any, blocks: int, promote: int, ks: NDArray[np.intp]) -> None:
        """Evaluate chains that are longer than a part; each is added to float32 sums."""
        total, sums = d.view(np.float32), self._cupy.empty(d.shape, np.float32)
        total[...] = 0 if c is None else c.view(np.float32)
        for first in range(0, blocks, promote):
            part = range(first, min(first + promote, blocks))
            self.evaluate(a, b, None, sums, len(part), ks=_of_blocks(ks, part, blocks))
            total += sums

    def compare(self, a: Any, b: Any, c: Any, expected: Any, count: Any, found: Any) -> None:
        """Add to count [1] the mismatches of one block with `expected`, and write the first ones to found [n, 4].

        Each has row, column, expected word, and the model's word.
        """
        self._launch(a, b, c, None, 1, 0, (expected, count, found), len(found))

    def _launch(
        self, a: Any, b: Any, c: Any, d: Any, blocks: int, promote: int, differences: tuple[Any, Any, Any], most: int
    ) -> None:
        rows, columns = len(a), len(b)
        grid = (-(-columns // self._columns), -(-rows // self._rows))
        counts = (np.uint64(rows), np.uint64(columns), np.uint32(blocks), np.uint32(promote))
        taken = self._prepared(a, b, blocks) if self._take else ()
        arguments = (*map(_pointer, (a, b, c, d)), *counts, *map(_pointer, differences), np.uint32(most), *map(_pointer, taken))
        self._function(grid, (self._threads,), arguments, shared_mem=self._shared)

    def _most_blocks(self, a: Any, b: Any, blocks: int, ks: NDArray[np.intp]) -> int:
        """Return the number of blocks along K that fits in the allowed memory."""
        tiles = zip((a, b), (self._rows, self._columns), self._taken, strict=True)
        prepared = sum(-(-len(x) // lines) * size for x, lines, size in tiles)
        copied = (a.itemsize * len(a) + b.itemsize * len(b)) * len(ks) // blocks
        allowed = max(LEAST_SCRATCH, int((a.nbytes + b.nbytes) * SCRATCH))
        whole = prepared if _are_all(ks, a) else prepared + copied
        return blocks if blocks * whole <= allowed else max(1, allowed // (prepared + copied))

    def _prepared(self, a: Any, b: Any, blocks: int) -> tuple[Any, ...]:
        """Return the operands of A and B prepared for the tiles of chains, and the special values, by line."""
        taken, special = [], []
        for take, matrix, lines, size in zip(self._take, (a, b), (self._rows, self._columns), self._taken, strict=True):
            count, tiles = len(matrix), -(-len(matrix) // lines)
            taken.append(self._cupy.empty(tiles * blocks * size, np.uint8))
            special.append(self._cupy.zeros(tiles * lines, np.uint32))
            arrays = (_pointer(taken[-1]), _pointer(special[-1]))
            take((blocks, tiles), (lines,), (_pointer(matrix), np.uint64(count), np.uint32(blocks), *arrays))
        return *taken, *special


def _of_blocks(ks: NDArray[np.intp], part: range, blocks: int) -> NDArray[np.intp]:
    """Return the operands of some of the blocks."""
    products = len(ks) // blocks
    return ks[part.start * products : part.stop * products]


def _are_all(ks: NDArray[np.intp], lines: Any) -> bool:
    return len(ks) == lines.shape[1] and bool((ks == np.arange(len(ks))).all())


def _gathered(cupy: Any, lines: Any, ks: NDArray[np.intp]) -> Any:
    """Return the columns of a matrix in the order of use, zeros for NO_K."""
    if _are_all(ks, lines):
        return lines
    place = cupy.asarray(np.where(ks == NO_K, 0, ks))
    taken = cupy.take(lines, place, axis=1)
    if (ks == NO_K).any():
        taken[:, cupy.asarray(ks == NO_K)] = 0
    return cupy.ascontiguousarray(taken)


class Hardware:
    """One hardware instruction on matrix products of its own K."""

    def __init__(self, cupy: Any, inst: Instruction, target: str) -> None:
        cubin = compiler.compile_source(probes.source(inst, products=True), target, inst.name)
        self._function = cupy.RawModule(path=str(cubin.path)).get_function("product")
        # One block computes so many columns and rows of D.
        self._columns, self._rows = inst.n * probes.probe_of(inst).product_tiles, inst.m * probes.BLOCK_THREADS // inst.threads

    def product(self, a: Any, b: Any, c: Any, d: Any, metadata: Any = None) -> None:
        """Compute d = a · b + c, each element by one instruction. metadata: of each row of a sparse A."""
        rows, columns = len(a), len(b)
        grid = (-(-columns // self._columns), -(-rows // self._rows))
        arrays = (a, b, c, d) if metadata is None else (a, b, c, metadata, d)
        self._function(grid, (probes.BLOCK_THREADS,), (*map(_pointer, arrays), np.uint32(rows), np.uint32(columns)))


class Drawing:
    def __init__(self, cupy: Any, inst: Instruction, target: str, seed: int) -> None:
        cubin = compiler.compile_source(drawing.source(inst), target, f"the operands of {inst.name}")
        module = cupy.RawModule(path=str(cubin.path))
        self._lines, self._addends = module.get_function("draw_lines"), module.get_function("draw_addends")
        self._cupy, self._inst, self._key = cupy, inst, np.uint64(seed)
        self._recipes: dict[drawing.Recipe, Any] = {}

    def draw(self, recipe: drawing.Recipe, batch: int, a: Any, b: Any, c: Any) -> None:
        """Fill a, b and, if given, c. The same seed, recipe and batch (below 2^32) fill them alike."""
        if recipe not in self._recipes:
            self._recipes[recipe] = self._cupy.asarray(np.array(recipe, np.int32))
        rows, columns = len(a), len(b)
        start = (_pointer(self._recipes[recipe]), self._key, np.uint32(batch))
        sizes = (np.uint32(rows), np.uint32(columns))
        blocks = -(-(rows + columns) * self._inst.k // THREADS)
        self._lines((blocks,), (THREADS,), (*start, _pointer(a), _pointer(b), *sizes))
        if c is not None:
            blocks = min(-(-rows * columns // THREADS), _MOST_BLOCKS)
            self._addends((blocks,), (THREADS,), (*start, _pointer(c), *sizes))

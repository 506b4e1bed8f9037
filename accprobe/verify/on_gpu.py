"""A model against the hardware on one GPU: operands are drawn, multiplied, evaluated and compared there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import isqrt
from typing import Any

import numpy as np

from accprobe.build import compiler
from accprobe.devices.protocol import OnGpu
from accprobe.evaluate.cuda.launch import MOST_FOUND, Drawing, Evaluator, Hardware, sources
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.drawing import CODES, PAIRS_KIND, Recipe, pairs, recipes
from accprobe.operands.exchange import Counterexample
from accprobe.operands.kinds import PAIRS, kinds, pair_places
from accprobe.operands.request import Request
from accprobe.operands.sparse import LAYOUTS, layouts
from accprobe.verify.outcome import Advance, Verification

SIDE = 4096  # Most rows, and most columns, of a batch.

NARROW = 64  # Columns are a multiple of so many.

WAITED_FOR = 16  # Batches after which the host looks at what differs.


@dataclass(frozen=True)
class MatrixProduct:
    """One matrix product: rows * columns dot products of a kind."""

    number: int
    kind: str
    recipe: Recipe
    rows: int
    columns: int

    @property
    def dots(self) -> int:
        return self.rows * self.columns


def batches(inst: Instruction, dots: int, seed: int) -> Iterator[MatrixProduct]:
    """At least `dots` dot products, spread evenly over all kinds, and all pairs of 8-bit codes at `pair_places`."""
    places = pair_places(inst, dots, seed)
    for number, k in enumerate(places):
        yield MatrixProduct(number, PAIRS_KIND, pairs(k), CODES, CODES)
    number = len(places)
    share = -(-(dots - number * PAIRS) // len(kinds(inst)))
    columns = min(SIDE, -(-isqrt(share) // NARROW) * NARROW)
    for kind, recipe in recipes(inst).items():
        rows = -(-share // columns)
        while rows:
            some = min(rows, SIDE)
            yield MatrixProduct(number, kind, recipe, some, columns)
            rows -= some
            number += 1


class Verifier:
    """The kernels and the memory for one instruction and its model."""

    def __init__(self, cupy: Any, inst: Instruction, model: DotModel, target: str, seed: int) -> None:
        self._cupy, self.inst = cupy, inst
        self._drawing = Drawing(cupy, inst.stored, target, seed)
        self.hardware = Hardware(cupy, inst, target)
        self.evaluator = Evaluator(cupy, inst.stored, model, target)
        self._laid_out = LaidOut(cupy, inst) if inst.sparse else None
        self._memory: tuple[Any, ...] = ()

    def arrays(self, batch: MatrixProduct) -> tuple[Any, Any, Any, Any]:
        """A, B, C and D of a batch, in memory that all batches share; of a sparse A, what is stored."""
        inst, n = self.inst.stored, batch.dots
        sizes = (batch.rows * inst.k, batch.columns * inst.k, n, n)
        formats = (inst.a, inst.b, inst.c, inst.d)
        if not self._memory or any(len(memory) < size for memory, size in zip(self._memory, sizes, strict=True)):
            self._memory = tuple(self._cupy.empty(size, f.dtype) for size, f in zip(sizes, formats, strict=True))
        a, b, c, d = (memory[:size] for memory, size in zip(self._memory, sizes, strict=True))
        return a.reshape(batch.rows, -1), b.reshape(batch.columns, -1), c.reshape(batch.rows, -1), d.reshape(batch.rows, -1)

    def draw(self, batch: MatrixProduct) -> None:
        """Fills A, B and C."""
        self._drawing.draw(batch.recipe, batch.number, *self.arrays(batch)[:3])

    def compare(self, batch: MatrixProduct, count: Any, found: Any) -> None:
        """Adds what differs to count [1] and found [n, 4], on the GPU; does not wait."""
        a, b, c, d = self.arrays(batch)
        self.draw(batch)
        if self._laid_out is None:
            self.hardware.product(a, b, c, d)
        else:
            self.hardware.product(a, self._laid_out.b(batch, b), c, d, self._laid_out.metadata(batch))
        self.evaluator.compare(a, b, c, d, count, found)

    def counterexample(self, batch: MatrixProduct, found: tuple[int, int, int, int]) -> Counterexample:
        """One that `compare` found, its operands drawn again."""
        row, column, got, expected = found
        self.draw(batch)
        a, b, c, d = self.arrays(batch)
        request = Request(a[row].get()[None], b[column].get()[None], c[row, column].get().reshape(1))
        if self._laid_out is not None:
            whole, metadata = self._laid_out.b(batch, b)[column], self._laid_out.metadata(batch)[row]
            request = replace(request, b=whole.get()[None], metadata=metadata.get()[None])
        answers, wanted = (np.array([x], d.dtype) for x in (got, expected))
        return Counterexample.of(request, 0, answers, wanted, batch.kind)


class LaidOut:
    """What makes matrix products of what is stored those of a sparse A: all rows of a batch have the metadata of one layout,
    the columns of B what several layouts leave out.
    """

    def __init__(self, cupy: Any, inst: Instruction) -> None:
        every = layouts(inst)
        self._cupy = cupy
        self._metadata, self._stored, self._b = (cupy.asarray(x) for x in (every.metadata, every.stored, every.b))

    def metadata(self, batch: MatrixProduct) -> Any:
        """[rows, K / group]."""
        return self._cupy.tile(self._metadata[batch.number % LAYOUTS], (batch.rows, 1))

    def b(self, batch: MatrixProduct, stored: Any) -> Any:
        """[columns, K], of [columns, K / 2]."""
        whole = self._b[(batch.number + self._cupy.arange(batch.columns)) % LAYOUTS]
        whole[:, self._stored[batch.number % LAYOUTS]] = stored
        return whole


def prepare_to_verify(device: OnGpu, models: Mapping[Instruction, DotModel]) -> None:
    """Compiles what `verify` needs for many models at once."""
    each = [sources(inst, model) for inst, model in models.items()]
    compiler.fill_cache([kernel for kind in zip(*each, strict=True) for kernel in kind], device.architecture)


def verify(device: OnGpu, inst: Instruction, model: DotModel, dots: int, seed: int, advance: Advance) -> Verification:
    """The model against `dots` dot products, rounded up to whole batches; only mismatches leave the GPU.

    Raises DeviceError where the GPU fails.
    """
    with device.lend(f"failed to verify {inst.name}") as cupy:
        return _verified(
            cupy, Verifier(cupy, inst, model, device.architecture, seed), batches(inst.stored, dots, seed), seed, advance
        )


def _verified(cupy: Any, bench: Verifier, remaining: Iterator[MatrixProduct], seed: int, advance: Advance) -> Verification:
    compared, counts, mismatches, first = 0, dict.fromkeys(kinds(bench.inst), 0), 0, None
    while some := list(islice(remaining, WAITED_FOR)):
        count = cupy.zeros((len(some), 1), np.uint64)
        found = cupy.zeros((len(some), MOST_FOUND, 4), np.uint64)
        for batch, its_count, its_found in zip(some, count, found, strict=True):
            bench.compare(batch, its_count, its_found)
        wrong = count.get()[:, 0].tolist()
        for batch, differ, its_found in zip(some, wrong, found, strict=True):
            counts[batch.kind] = counts.get(batch.kind, 0) + batch.dots
            compared += batch.dots
            mismatches += differ
            if differ and first is None:
                first = bench.counterexample(batch, tuple(its_found[0].get().tolist()))
        advance(sum(batch.dots for batch in some), sum(wrong))
    return Verification(compared, mismatches, seed, counts, first)

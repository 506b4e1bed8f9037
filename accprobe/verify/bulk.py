"""Verification of many dot products: on the GPU itself if the device lends it and its kernels can do all of it.

There, operands are drawn, multiplied, evaluated and compared; only mismatches leave the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import isqrt
from typing import Any

import numpy as np

from accprobe.build import compiler
from accprobe.build.probes import multiplies_matrices
from accprobe.errors import AccprobeError
from accprobe.evaluate.cuda.launch import MOST_FOUND, Drawing, Evaluator, Hardware, sources
from accprobe.evaluate.cuda.source import not_compiled
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.drawing import Recipe, recipes
from accprobe.operands.exchange import Counterexample
from accprobe.operands.kinds import kinds
from accprobe.operands.protocol import Device, InstructionSubject, OnGpu
from accprobe.operands.request import Request
from accprobe.operands.sparse import LAYOUTS, layouts
from accprobe.records.verification import Advance, ComparisonCounts, Verification, silent
from accprobe.verify import random

# A batch has at most SIDE rows and SIDE columns; its columns are a multiple of NARROW.
SIDE, NARROW = 4096, 64

# Verifications of at least so many random dot products have every pair of codes, too.
PAIRS_FROM = 1 << 17

# Batches after which the host reads the mismatches.
READ_AFTER = 16


@dataclass(frozen=True)
class MatrixProduct:
    """One matrix product: rows * columns dot products of one distribution."""

    number: int
    kind: str
    recipe: Recipe
    rows: int
    columns: int

    @property
    def dots(self) -> int:
        return self.rows * self.columns


def batches(inst: Instruction, dots: int) -> Iterator[MatrixProduct]:
    """Yield at least `dots` dot products, spread evenly over all distributions."""
    number, share = 0, -(-dots // len(kinds(inst)))
    columns = min(SIDE, -(-isqrt(max(share, 1)) // NARROW) * NARROW)
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
        """Return A, B, C and D of a batch, in memory that all batches share; of a sparse A, the stored elements."""
        inst, n = self.inst.stored, batch.dots
        sizes = (batch.rows * inst.k, batch.columns * inst.k, n, n)
        formats = (inst.a, inst.b, inst.c, inst.d)
        if not self._memory or any(len(memory) < size for memory, size in zip(self._memory, sizes, strict=True)):
            self._memory = tuple(self._cupy.empty(size, f.dtype) for size, f in zip(sizes, formats, strict=True))
        a, b, c, d = (memory[:size] for memory, size in zip(self._memory, sizes, strict=True))
        return a.reshape(batch.rows, -1), b.reshape(batch.columns, -1), c.reshape(batch.rows, -1), d.reshape(batch.rows, -1)

    def draw(self, batch: MatrixProduct) -> None:
        self._drawing.draw(batch.recipe, batch.number, *self.arrays(batch)[:3])

    def compare(self, batch: MatrixProduct, count: Any, found: Any) -> None:
        """Add mismatches to count [1] and found [n, 4], on the GPU; do not wait."""
        a, b, c, d = self.arrays(batch)
        self.draw(batch)
        if self._laid_out is None:
            self.hardware.product(a, b, c, d)
        else:
            self.hardware.product(a, self._laid_out.b(batch, b), c, d, self._laid_out.metadata(batch))
        self.evaluator.compare(a, b, c, d, count, found)

    def counterexample(self, batch: MatrixProduct, found: tuple[int, int, int, int]) -> Counterexample:
        """Return a mismatch that `compare` found, its operands drawn again."""
        row, column, got, expected = found
        self.draw(batch)
        a, b, c, d = self.arrays(batch)
        request = Request(a[row].get()[None], b[column].get()[None], c[row, column].get().reshape(1))
        if self._laid_out is not None:
            whole, metadata = self._laid_out.b(batch, b)[column], self._laid_out.metadata(batch)[row]
            request = replace(request, b=whole.get()[None], metadata=metadata.get()[None])
        results, wanted = (np.array([x], d.dtype) for x in (got, expected))
        return Counterexample.of(request, 0, results, wanted, batch.kind)


class LaidOut:
    """Lays matrix products of stored elements out for a sparse A.

    All rows of a batch have the metadata of one layout; the columns of B have the left-out numbers of several layouts.
    """

    def __init__(self, cupy: Any, inst: Instruction) -> None:
        every = layouts(inst)
        self._cupy = cupy
        self._metadata, self._stored, self._b = (cupy.asarray(x) for x in (every.metadata, every.stored, every.b))

    def metadata(self, batch: MatrixProduct) -> Any:
        """Return the metadata, [rows, K / group]."""
        return self._cupy.tile(self._metadata[batch.number % LAYOUTS], (batch.rows, 1))

    def b(self, batch: MatrixProduct, stored: Any) -> Any:
        """Return B [columns, K] of its stored elements [columns, K / 2]."""
        whole = self._b[(batch.number + self._cupy.arange(batch.columns)) % LAYOUTS]
        whole[:, self._stored[batch.number % LAYOUTS]] = stored
        return whole


def prepare_to_verify(device: Device, models: Mapping[Instruction, DotModel]) -> None:
    """Compile the kernels of many models at once; `verify` compiles those that are missing."""
    if isinstance(device, OnGpu):
        each = [sources(inst, model) for inst, model in models.items() if _runs_on_gpu(inst, model)]
        compiler.fill_cache([kernel for kind in zip(*each, strict=True) for kernel in kind], device.architecture)


def verify(
    device: Device, inst: Instruction, model: DotModel, dots: int = 1 << 14, seed: int = 0, advance: Advance = silent
) -> Verification:
    """Compare the model with the device on `dots` fresh random dot products, spread evenly over all operand distributions.

    A GPU may compare some more. If there are many, every pair of codes follows. The same seed draws the same operands. Each
    batch continues in the tile where the one before ended. Raises AccprobeError if dots is negative, DeviceError if the GPU
    fails.
    """
    if dots < 0:
        raise AccprobeError(f"dots is {dots}: give 0 or more")
    subject = InstructionSubject(device, inst)
    if isinstance(device, OnGpu) and _runs_on_gpu(inst, model):
        with device.lend(f"failed to verify {inst.name}") as cupy:
            verifier = Verifier(cupy, inst, model, device.architecture, seed)
            done = _verified(cupy, verifier, batches(inst.stored, dots), seed, advance)
    else:
        done = random.compared(subject, random.predicted_batches(subject.inst, model, dots, seed), seed, advance)
    pairs = random.known_pairs(subject.inst, model) if dots >= PAIRS_FROM else ()
    return random.compared(subject, pairs, seed, advance, done)


def _runs_on_gpu(inst: Instruction, model: DotModel) -> bool:
    """Return whether a GPU can do all of it: matrix products by the instruction, and by the model."""
    return multiplies_matrices(inst) and not not_compiled(model)


def _verified(cupy: Any, verifier: Verifier, remaining: Iterator[MatrixProduct], seed: int, advance: Advance) -> Verification:
    tally = ComparisonCounts(dict.fromkeys(kinds(verifier.inst), 0))
    while some := list(islice(remaining, READ_AFTER)):
        count = cupy.zeros((len(some), 1), np.uint64)
        found = cupy.zeros((len(some), MOST_FOUND, 4), np.uint64)
        for batch, its_count, its_found in zip(some, count, found, strict=True):
            verifier.compare(batch, its_count, its_found)
        wrong = count.get()[:, 0].tolist()
        for batch, differ, its_found in zip(some, wrong, found, strict=True):
            tally.count(batch.kind, batch.dots, differ)
            if differ and tally.first is None:
                tally.first = verifier.counterexample(batch, tuple(its_found[0].get().tolist()))
        advance(sum(batch.dots for batch in some), sum(wrong))
    return tally.verification(seed)

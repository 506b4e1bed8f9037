"""What the machine code of kernels says: matrix opcodes, what feeds them, what accumulates behind them, what is promoted."""

from __future__ import annotations

import gc
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from accprobe.audit.accumulators import Accumulator, accumulator
from accprobe.build import toolchain
from accprobe.errors import AccprobeError
from accprobe.sass import binaries, reading
from accprobe.sass.binaries import Piece
from accprobe.sass.conversions import Conversion, conversions
from accprobe.sass.dataflow import Definitions
from accprobe.sass.opcodes import is_matrix, parse
from accprobe.sass.promotion import Chain, chains
from accprobe.sass.reading import Function

IN_FLIGHT = 4
"""Pieces a worker process has waiting, so that it never idles and what is finished does not pile up."""


@dataclass(frozen=True)
class Kernel:
    """One function that has matrix opcodes.

    matrix: (opcode, static count). sha256: of its text, as `Function.sha256`. executed: (opcode, executions by a warp), where a
    profiler counted them, over all launches.
    """

    file: str
    name: str
    architecture: str
    matrix: tuple[tuple[str, int], ...]
    conversions: tuple[Conversion, ...] = ()
    chains: tuple[Chain, ...] = ()
    sha256: str = ""
    executed: tuple[tuple[str, int], ...] | None = None
    launches: int | None = None

    @property
    def accumulators(self) -> dict[str, Accumulator | None]:
        """By matrix opcode; None where nothing is known."""
        return {opcode: accumulator(opcode, self.architecture) for opcode, _ in self.matrix}

    @property
    def emulated(self) -> tuple[str, str] | None:
        """("e4m3", "HMMA") where narrow operands are unpacked for a unit of other formats, which does the work."""
        units = [parse(opcode).stem for opcode, _ in self.matrix]
        for conversion in self.conversions:
            fed = [unit for unit in conversion.feeds or units if unit in ("HMMA", "HGMMA")]
            if conversion.unpacked and fed:
                return conversion.unpacked, fed[0]
        return None


def distinct(kernels: Iterable[Kernel]) -> list[tuple[Kernel, ...]]:
    """Kernels of one name, architecture and text together, as caches and libraries hold many times, by first appearance."""
    same: dict[object, list[Kernel]] = {}
    for kernel in kernels:
        same.setdefault((kernel.name, kernel.architecture, kernel.sha256), []).append(kernel)
    return list(map(tuple, same.values()))


@dataclass
class Reading:
    """How far a reading of files is. functions: all that were seen, those without matrix opcodes too; by architecture."""

    pieces: int = 0
    done: int = 0
    functions: Counter[str] = field(default_factory=Counter)
    ptx: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def witness(function: Function, file: str) -> Kernel:
    """What a function says of itself; `matrix` is empty where it has no matrix opcode."""
    matrix = tuple(Counter(line.opcode for line in function.lines if is_matrix(line.opcode)).items())
    if not matrix:
        return Kernel(file, function.name, function.architecture, ())
    definitions = Definitions(function)
    seen = conversions(function, definitions), chains(function, definitions)
    return Kernel(file, function.name, function.architecture, matrix, *seen, function.sha256)


def kernels(
    paths: Sequence[Path],
    targets: tuple[str, ...] = (),
    jobs: int = 1,
    reading: Reading | None = None,
    on_piece: Callable[[Reading], None] = lambda _: None,
) -> Iterator[Kernel]:
    """Every kernel with a matrix opcode in the files, one after another, in their order within a piece.

    targets: architectures to look at, and to assemble PTX for; none: all, and what PTX names. `reading` tells what was seen
    besides. Memory does not grow with the files: a piece (a cubin) is unpacked, disassembled and forgotten.
    Raises AccprobeError where a named file holds no device code, or none of it can be read.
    """
    reading = reading if reading is not None else Reading()
    with tempfile.TemporaryDirectory(prefix="accprobe") as unpacked:
        found = binaries.find(paths, Path(unpacked), targets)
        reading.pieces, reading.ptx, reading.problems = len(found.pieces), found.ptx, found.problems
        if not found.pieces:
            raise AccprobeError("; ".join(found.problems) or f"the files have no code for {', '.join(targets)}")
        unread: dict[str, str] = {}
        for piece, (every, counts, problem) in _read_all(found.pieces, targets, jobs):
            reading.done += 1
            counts = {architecture: count for architecture, count in counts.items() if binaries.wanted(architecture, targets)}
            reading.functions.update(counts)
            if problem:
                unread.setdefault(f"{piece.label}{f', {piece.architecture}' if piece.architecture else ''}", problem)
            on_piece(reading)
            yield from (kernel for kernel in every if binaries.wanted(kernel.architecture, targets))
        reading.problems += [f"{place} cannot be read: {problem}" for place, problem in unread.items()]
        if not reading.functions:
            nothing = f"the files have no code for {', '.join(targets)}" if targets else "the files have no functions"
            raise AccprobeError("; ".join(reading.problems) or nothing)


_Read = tuple[list[Kernel], dict[str, int], str]
"""Kernels, functions by architecture, and what went wrong."""


def _read_all(pieces: Sequence[Piece], targets: tuple[str, ...], jobs: int) -> Iterator[tuple[Piece, _Read]]:
    tasks = [(piece, target) for piece in pieces for target in (targets if piece.kind == "ptx" and targets else (None,))]
    workers = min(jobs, len(tasks))
    if workers <= 1:
        for piece, target in tasks:
            yield piece, _read(piece, target)
        return
    waiting: deque[tuple[Piece, Future[_Read]]] = deque()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            for piece, target in tasks:
                waiting.append((piece, pool.submit(_read, piece, target)))
                if len(waiting) >= IN_FLIGHT * workers:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _read(piece: Piece, target: str | None) -> _Read:
    """One piece, in a worker process."""
    found: list[Kernel] = []
    counts: Counter[str] = Counter()
    try:
        with _without_collections(), binaries.cubin(piece, target) as path:
            for function in reading.functions(path, matrix=True):
                counts[function.architecture or piece.architecture] += 1
                kernel = witness(function, piece.label)
                if kernel.matrix:
                    found.append(kernel)
    except toolchain.ToolFailed as e:
        return found, dict(counts), str(e)
    return found, dict(counts), ""


@contextmanager
def _without_collections() -> Iterator[None]:
    """Python's search for cycles of objects doubles the time that it takes to read lines, of which it makes millions."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

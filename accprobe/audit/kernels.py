"""The matrix opcodes of kernels, their conversions, accumulators and promotion, from machine code; and the requirements of a
project on its kernels.
"""

from __future__ import annotations

import gc
import re
import signal
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain, islice
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Literal

from accprobe.audit.accumulators import Accumulator, accumulator
from accprobe.errors import AccprobeError, ToolFailed, UnknownName, nearest
from accprobe.isa import opcodes
from accprobe.isa.opcodes import is_matrix, parse, stem
from accprobe.sass import binaries, reading
from accprobe.sass.binaries import DeviceCode, Piece
from accprobe.sass.promotion import Chain, chains
from accprobe.sass.reading import CONVERSIONS, Function

UNPACKS = re.compile(r"F2FP\.(?:.*\.)?(?:F16|BF16)\.(E4M3|E5M2|E3M2|E2M3|E2M1)(?:\.\w+)*\.UNPACK_B")
"""Conversions of narrow operands for a unit of other formats."""

IN_FLIGHT = 32
"""Waiting pieces per worker process: enough that it never idles, few enough that results do not accumulate in memory."""


@dataclass(frozen=True)
class Kernel:
    """One function that has matrix opcodes. matrix, conversions: (opcode, static count). sha256: as `Function.sha256`."""

    file: str
    name: str
    architecture: str
    matrix: tuple[tuple[str, int], ...]
    conversions: tuple[tuple[str, int], ...] = ()
    chains: tuple[Chain, ...] = ()
    sha256: str = ""

    @property
    def accumulators(self) -> dict[str, Accumulator | None]:
        """Return the accumulator of each matrix opcode; None if it is unknown."""
        return {opcode: accumulator(opcode, self.architecture) for opcode, _ in self.matrix}

    @property
    def emulated(self) -> tuple[str, str] | None:
        """Return ("e4m3", "HMMA") if narrow operands are unpacked for a unit of other formats, which does the work."""
        unit = next((parse(opcode).stem for opcode, _ in self.matrix if parse(opcode).stem in ("HMMA", "HGMMA")), None)
        unpacked = next(filter(None, (UNPACKS.match(opcode) for opcode, _ in self.conversions)), None)
        return (unpacked[1].lower(), unit) if unpacked and unit else None


def distinct(kernels: Iterable[Kernel]) -> list[tuple[Kernel, ...]]:
    """Group kernels of one name, architecture and text, in order of first appearance: caches and libraries repeat them."""
    same: dict[object, list[Kernel]] = {}
    for kernel in kernels:
        same.setdefault((kernel.name, kernel.architecture, kernel.sha256), []).append(kernel)
    return list(map(tuple, same.values()))


@dataclass
class Reading:
    """Progress of reading files. functions: number of functions by architecture, also without matrix opcodes. pieces: number of
    cubins found. done: number of cubins read. begun: kernels of the file that is being read.
    """

    pieces: int = 0
    done: int = 0
    functions: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    begun: list[Kernel] = field(default_factory=list)


def witness(function: Function, file: str) -> Kernel:
    """Describe a function; `matrix` is empty where it has no matrix opcode."""
    counts = Counter([line.opcode for line in function.lines])
    matrix = tuple((opcode, count) for opcode, count in counts.items() if is_matrix(opcode))
    if not matrix:
        return Kernel(file, function.name, function.architecture, ())
    conversions = tuple((opcode, count) for opcode, count in counts.items() if stem(opcode) in CONVERSIONS)
    return Kernel(file, function.name, function.architecture, matrix, conversions, chains(function), function.sha256)


def libraries(
    paths: Sequence[Path],
    targets: tuple[str, ...] = (),
    jobs: int = 1,
    reading: Reading | None = None,
    on_piece: Callable[[Reading], None] = lambda _: None,
) -> Iterator[list[Kernel]]:
    """Yield the kernels with matrix opcodes of each file with device code, in order, as soon as the file is read.

    targets: architectures to read; none: all. reading: the progress to update. Memory does not grow with the files: a piece (a
    cubin) is unpacked, disassembled and dropped. Raises AccprobeError if a named file has no device code, none of the code can
    be read, none is for the targets, or a worker process ends.
    """
    reading = reading if reading is not None else Reading()
    with tempfile.TemporaryDirectory(prefix="accprobe") as unpacked:
        tasks = _tasks(binaries.find(paths, Path(unpacked), targets), reading)
        for (code, piece), (every, counts, problem) in _read_all(tasks, jobs, unpacked):
            reading.done += 1
            reading.functions.update({name: count for name, count in counts.items() if binaries.wanted(name, targets)})
            if problem:
                place = f"{piece.label}{f', {piece.architecture}' if piece.architecture else ''} cannot be read: "
                if not any(known.startswith(place) for known in reading.problems):
                    reading.problems.append(place + problem)
            reading.begun += [kernel for kernel in every if binaries.wanted(kernel.architecture, targets)]
            on_piece(reading)
            if piece is code.pieces[-1]:
                code.discard()
                finished, reading.begun = reading.begun, []
                yield finished
        if not reading.functions:
            nothing = f"the files have no code for {', '.join(targets)}" if targets else "the files have no functions"
            raise AccprobeError("; ".join(reading.problems) or nothing)


_Task = tuple[DeviceCode, Piece]


def _tasks(files: Iterable[DeviceCode], reading: Reading) -> Iterator[_Task]:
    for found in files:
        reading.problems += found.problems
        reading.pieces += len(found.pieces)
        yield from ((found, piece) for piece in found.pieces)


_Read = tuple[list[Kernel], Counter[str], str]
"""Kernels, number of functions by architecture, and the error that ended the reading, or ""."""


def _read_all(tasks: Iterable[_Task], jobs: int, folder: str) -> Iterator[tuple[_Task, _Read]]:
    """Read the tasks, and yield results in their order. A single task is read in this process."""
    first = list(islice(tasks := iter(tasks), 2))
    tasks = chain(first, tasks)
    if jobs <= 1 or len(first) < 2:
        for task in tasks:
            yield task, _read(task[1])
        return
    waiting: deque[tuple[_Task, Future[_Read]]] = deque()
    others = set(active_children())
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin_worker, (folder,)) as pool:
        try:
            for task in tasks:
                waiting.append((task, pool.submit(_read, task[1])))
                if len(waiting) >= IN_FLIGHT * jobs or waiting[0][1].done():
                    done, future = waiting.popleft()
                    yield done, future.result()
            while waiting:
                done, future = waiting.popleft()
                yield done, future.result()
        except BrokenProcessPool:
            ended = f"a worker process ended in the middle of {waiting[0][0][0].label if waiting else 'its work'}"
            raise AccprobeError(f"{ended}, perhaps for lack of memory; --jobs 1 needs the least") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(active_children()) - others:
                worker.kill()


def _begin_worker(folder: str) -> None:
    """Ignore Ctrl-C: it ends the main process, which ends its workers and removes the folder with their files."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = folder


def _read(piece: Piece) -> _Read:
    found: list[Kernel] = []
    counts: Counter[str] = Counter()
    problem = ""
    gc.disable()  # there are millions of lines: the cyclic garbage collector would double the time
    try:
        with binaries.cubin(piece) as path:
            for function in reading.functions(path, matrix=True):
                counts[function.architecture or piece.architecture] += 1
                kernel = witness(function, piece.label)
                if kernel.matrix:
                    found.append(kernel)
    except ToolFailed as e:
        problem = str(e)
    finally:
        gc.enable()
    return found, counts, problem


_Rule = Literal["accumulator", "required", "forbidden"]
"""The option of a requirement: --fail-below, --require or --forbid."""


@dataclass(frozen=True)
class Requirements:
    """bits: minimum fraction bits of every accumulator; unknown ones fail; None: any. promoted_within: sums that are promoted
    after at most so many products pass without `bits`; None: none do. required: every kernel with matrix opcodes has one of
    these; forbidden: none has any. Opcodes may be incomplete ("QGMMA", "HMMA.16816") or globs. Raises UnknownName if a
    pattern, up to its first ".", names no known matrix opcode.
    """

    bits: int | None = None
    promoted_within: int | None = None
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.required, *self.forbidden):
            stem = pattern.partition(".")[0]
            if not any(fnmatchcase(known, stem) for known in opcodes.STEMS):
                raise UnknownName(f"'{pattern}' is not a matrix opcode; {nearest(stem, opcodes.STEMS)}")

    def __bool__(self) -> bool:
        return self.bits is not None or bool(self.required or self.forbidden)


@dataclass(frozen=True)
class Shortfall:
    """A failed requirement. kernels: the failing kernel, once for each file with identical text; empty if no kernel has a
    matrix opcode. opcode: the failing one; "" if no opcode matches a required one.
    """

    rule: _Rule
    kernels: tuple[Kernel, ...]
    opcode: str
    reason: str


def shortfalls(kernels: Sequence[Kernel], demanded: Requirements) -> list[Shortfall]:
    """Return all failed requirements, identical kernels once. Without any kernel with matrix opcodes, required opcodes fail."""
    found = [
        Shortfall(rule, same, opcode, reason)
        for same in distinct(kernels)
        for rule, opcode, reason in _of_kernel(same[0], demanded)
    ]
    if demanded.required and not kernels:
        found.append(
            Shortfall("required", (), "", f"no kernel has a matrix opcode, and {' or '.join(demanded.required)} is required")
        )
    return found


def _of_kernel(kernel: Kernel, demanded: Requirements) -> Iterator[tuple[_Rule, str, str]]:
    names = [opcode for opcode, _ in kernel.matrix]
    if demanded.required and not any(_matches(opcode, demanded.required) for opcode in names):
        yield "required", "", f"it has {', '.join(names)}, and not {' or '.join(demanded.required)}"
    for opcode in names:
        if _matches(opcode, demanded.forbidden):
            yield "forbidden", opcode, "is forbidden"
    if demanded.bits is not None:
        for opcode, known in kernel.accumulators.items():
            reason = _too_few(known, demanded.bits)
            if reason and not _promoted(kernel, opcode, demanded.promoted_within):
                yield "accumulator", opcode, reason


def _too_few(known: Accumulator | None, bits: int) -> str:
    if known is None:
        return f"has an accumulator that is not known, {bits} bits are required"
    return f"keeps {known.text} bits, fewer than {bits}" if known.bits is not None and known.bits < bits else ""


def _promoted(kernel: Kernel, opcode: str, within: int | None) -> bool:
    """Return whether every sum of the opcode is promoted after at most `within` products."""
    if within is None:
        return False
    chains = [chain for chain in kernel.chains if opcode in dict(chain.opcodes)]
    return bool(chains) and all(chain.verdict == "promoted" and 0 < chain.products <= within for chain in chains)


def _matches(opcode: str, patterns: Iterable[str]) -> bool:
    return any(opcode == p or opcode.startswith(f"{p}.") or fnmatchcase(opcode, p) for p in patterns)

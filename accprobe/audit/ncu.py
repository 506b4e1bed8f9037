"""The profiler's word: which matrix opcodes were executed, and how often, counted by Nsight Compute (`ncu`).

Executions are counted a warp and an instruction of the text: the metric `inst_executed`, "Instructions Executed" on the source
page of a section. An instruction whose predicate was false for every thread is counted there too, so where the page also counts
threads (`thread_inst_executed_true`, "Predicated-On Thread Instructions Executed"), those with none count as not executed.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from accprobe.audit.kernels import Kernel, Reading, witness
from accprobe.build import probes, toolchain
from accprobe.errors import AccprobeError, DeviceError, ToolMissing
from accprobe.isa.instructions import Instruction
from accprobe.sass.lowering import Lowering
from accprobe.sass.opcodes import MATRIX
from accprobe.sass.reading import ARITHMETIC, Function, Line, read_line

PAGE = (
    *("--metrics", "inst_executed,thread_inst_executed_true"),
    *("--page", "source", "--print-source", "sass", "--csv"),
    *("--clock-control", "none", "--cache-control", "none"),
)
"""The collected metrics: executions of each instruction by warps and by threads, as comma-separated values. The section
SourceCounters has both as well, among much that costs further passes. Clocks and caches stay as they are: nothing is timed."""

_EXECUTED = re.compile(r"(?:# ?)?instructions executed|inst_executed", re.IGNORECASE)
_THREADS = re.compile(r"predicated-on thread instructions executed|thread_inst_executed_true", re.IGNORECASE)
_NO_PERMISSION = (
    "the driver lets root alone read performance counters: run as root, or load the nvidia module with"
    " NVreg_RestrictProfilingToAdminUsers=0 (ERR_NVGPUCTRPERM)"
)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: its text, and how often a warp executed each line."""

    function: Function
    executed: tuple[int, ...]

    def count(self, kept: str | None = None) -> dict[str, int]:
        """Executions by opcode, of those executed: matrix opcodes, or with kept="arithmetic" as `Function.arithmetic`."""
        counts: Counter[str] = Counter()
        for line, executed in zip(self.function.lines, self.executed, strict=True):
            wanted = MATRIX.match(line.opcode) or (kept == "arithmetic" and line.stem in ARITHMETIC)
            if executed and wanted and line.opcode in self.function.opcodes:
                counts[line.opcode] += executed
        return dict(counts)


def launches(command: Sequence[str], names: str | None = None, timeout: float = 3600) -> Iterator[Launch]:
    """Runs a command under the profiler: every launch of a kernel, in order; names: a regular expression for kernels' names.

    What the command prints goes to standard error. Raises ToolMissing without ncu, AccprobeError where it cannot run the
    command, may not read counters, or sees no kernel.
    """
    program = toolchain.find("ncu")
    with tempfile.TemporaryDirectory(prefix="accprobe") as folder:
        log = Path(folder) / "ncu.csv"
        only = ("--kernel-name", f"regex:{names}") if names else ()
        whole = [str(program), *PAGE, *only, "--target-processes", "all", "--log-file", str(log), *command]
        try:
            done = subprocess.run(whole, timeout=timeout, check=False, stdout=sys.__stderr__)
        except subprocess.TimeoutExpired:
            raise AccprobeError(f"the command did not end within {timeout:g} s under the profiler") from None
        except OSError as e:
            raise ToolMissing(f"ncu cannot be started: {e.strerror}") from None
        seen = 0
        if log.is_file():
            with log.open(encoding="utf-8", errors="replace", newline="") as text:
                for launch in parse_launches(text):
                    seen += 1
                    yield launch
        if not seen:
            raise AccprobeError(_why_nothing(log, done.returncode, command[0]))


def _why_nothing(log: Path, status: int, program: str) -> str:
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    if "ERR_NVGPUCTRPERM" in text:
        return _NO_PERMISSION
    errors = [line.partition("==ERROR==")[2].strip() for line in text.splitlines() if "==ERROR==" in line]
    if errors:
        return f"the profiler failed: {errors[0]}"
    if status:
        return f"{program} ended with status {status} under the profiler, and launched no kernel before"
    return f"{program} launched no kernel that the profiler could see"


def parse_launches(text: Iterable[str]) -> Iterator[Launch]:
    """Launches in what `ncu --page source --print-source sass --csv` prints.

    A row `"Kernel Name","…"` begins a kernel, a row that names the columns follows, in whatever order, then one row an
    instruction. Everything else is passed over.
    """
    name, columns = "", _Columns()
    lines: list[Line] = []
    executed: list[int] = []
    for row in csv.reader(text):
        if row and row[0].strip() == "Kernel Name":
            if lines:
                yield _launch(name, lines, executed)
            name, columns, lines, executed = row[1].strip() if len(row) > 1 else "", _Columns(), [], []
        elif any(cell.strip() == "Source" for cell in row):
            columns = _Columns.of(row)
        elif columns.source is not None and len(row) > max(columns.source, columns.executed or 0):
            line = read_line(_offset(row, columns, len(lines)), row[columns.source].strip())
            if line:
                lines.append(line)
                executed.append(columns.count(row))
    if lines:
        yield _launch(name, lines, executed)


@dataclass(frozen=True)
class _Columns:
    """Where the columns are."""

    source: int | None = None
    address: int | None = None
    executed: int | None = None
    threads: int | None = None

    @classmethod
    def of(cls, header: Sequence[str]) -> _Columns:
        names = [cell.strip() for cell in header]
        place = {name: i for i, name in reversed(list(enumerate(names)))}
        executed = next((i for i, name in enumerate(names) if _EXECUTED.fullmatch(name)), None)
        threads = next((i for i, name in enumerate(names) if _THREADS.fullmatch(name)), None)
        if executed is None:
            raise AccprobeError(f"the profiler did not count executed instructions; its columns are {', '.join(names[:8])}, …")
        return cls(place["Source"], place.get("Address"), executed, threads)

    def count(self, row: Sequence[str]) -> int:
        """Executions, 0 where no thread took part in any."""
        executed = _number(row[self.executed]) if self.executed is not None else 0
        if self.threads is not None and self.threads < len(row) and row[self.threads].strip():
            return executed if _number(row[self.threads]) else 0
        return executed


def _offset(row: Sequence[str], columns: _Columns, number: int) -> int:
    """The instruction's address, as the jumps have it."""
    address = row[columns.address].strip() if columns.address is not None else ""
    return int(address, 16) if re.fullmatch(r"(?:0x)?[0-9a-fA-F]+", address) else 16 * number


def _number(cell: str) -> int:
    plain = re.sub(r"[,'\s]", "", cell)
    return int(float(plain)) if re.fullmatch(r"\d+(\.\d*)?", plain) else 0


def _launch(name: str, lines: list[Line], executed: list[int]) -> Launch:
    return Launch(Function(name, "", tuple(lines), {}), tuple(executed))


def lowerings(device: str, insts: Sequence[Instruction]) -> dict[str, Lowering]:
    """By name, what each instruction's probe executed for one tile on a GPU, in one run of a child that launches each once.

    Raises as `launches`, and DeviceError where the child did not launch them all.
    """
    command = [sys.executable, "-m", "accprobe.devices.cuda", device, *(inst.name for inst in insts)]
    seen = list(launches(command, f"^{probes.KERNEL_NAME}$"))
    if len(seen) != len(insts):
        raise DeviceError(f"the profiler saw {len(seen)} of {len(insts)} probes on {device}")
    return {inst.name: _lowering(inst, launch) for inst, launch in zip(insts, seen, strict=True)}


def _lowering(inst: Instruction, launch: Launch) -> Lowering:
    """Executions for one tile: one warp's of those that hold it together."""
    sequence = tuple((opcode, count // inst.family.warps) for opcode, count in launch.count("arithmetic").items())
    return Lowering(tuple(opcode for opcode, _ in sequence if MATRIX.match(opcode)), sequence, "ncu")


def profile_command(command: Sequence[str], architecture: str | None = None) -> tuple[list[Kernel], Reading]:
    """Every kernel of a command that executed a matrix opcode, launches of one kernel together. Raises as `launches`.

    architecture: of the GPU; None: of the first.
    """
    from accprobe.build.driver import architecture_of_first

    target = architecture or architecture_of_first() or ""
    reading, found = Reading(), dict[tuple[str, int], Kernel]()
    for launch in launches(command):
        reading.functions[target] += 1
        counts = launch.count()
        if not counts:
            continue
        key = (launch.function.name, hash(_relative(launch.function.lines)))
        kernel = found.get(key)
        if kernel is None:
            seen = witness(replace(launch.function, architecture=target), " ".join(command))
            kernel = replace(seen, matrix=tuple((o, n) for o, n in seen.matrix if o in counts), executed=(), launches=0)
        total = Counter(dict(kernel.executed or ()))
        total.update(counts)
        found[key] = replace(kernel, executed=tuple(total.items()), launches=(kernel.launches or 0) + 1)
    return list(found.values()), reading


def _relative(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The text without where it was loaded."""
    first = lines[0].offset
    return tuple(
        line._replace(offset=line.offset - first, operands=re.sub(r"0x[0-9a-f]{8,}", "", line.operands)) for line in lines
    )

"""Executed matrix opcodes, counted by Nsight Compute (`ncu`).

Executions are counted per warp and per line of the text: the metric `inst_executed` on the source page. It also counts an
instruction with a false predicate in every thread; if `thread_inst_executed_true` is 0, it did not execute.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from accprobe.build import probes, toolchain
from accprobe.build.lowerings import Lowering
from accprobe.errors import AccprobeError, DeviceError, ToolMissing
from accprobe.isa.instructions import Instruction
from accprobe.isa.opcodes import MATRIX
from accprobe.sass.reading import read_line

EXECUTED, THREADS = "inst_executed", "thread_inst_executed_true"
"""Metrics, which name the page's columns: executions of each instruction by warps, and by threads with a true predicate."""

PAGE = (
    *("--metrics", f"{EXECUTED},{THREADS}"),
    *("--page", "source", "--print-source", "sass", "--csv"),
    *("--clock-control", "none", "--cache-control", "none"),
)
"""Both metrics as comma-separated values. Clocks and caches stay as they are: nothing is timed."""

_NO_PERMISSION = (
    "only root may read performance counters here: run as root, or load the nvidia module with"
    " NVreg_RestrictProfilingToAdminUsers=0 (ERR_NVGPUCTRPERM)"
)


def launches(command: Sequence[str]) -> list[Counter[str]]:
    """Run a command under the profiler, and return what every launch of a probe executed, as `parse_launches`.

    The output of the command goes to standard error. Raises ToolMissing without ncu, and AccprobeError if ncu cannot run the
    command, may not read counters, or sees no probe.
    """
    program = toolchain.find("ncu")
    with tempfile.TemporaryDirectory(prefix="accprobe") as folder:
        log = Path(folder) / "ncu.csv"
        only = "--kernel-name", f"regex:^{probes.KERNEL_NAME}$"
        whole = [str(program), *PAGE, *only, "--target-processes", "all", "--log-file", str(log), *command]
        try:
            done = subprocess.run(whole, check=False, stdout=sys.__stderr__)
        except OSError as e:
            raise ToolMissing(f"ncu cannot be started: {e.strerror}") from None
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    found = parse_launches(text.splitlines())
    if not found:
        raise AccprobeError(_why_nothing(text, done.returncode, command[0]))
    return found


def _why_nothing(text: str, status: int, program: str) -> str:
    if "ERR_NVGPUCTRPERM" in text:
        return _NO_PERMISSION
    errors = [line.partition("==ERROR==")[2].strip() for line in text.splitlines() if "==ERROR==" in line]
    if errors:
        return f"the profiler failed: {errors[0]}"
    if status:
        return f"{program} ended with status {status} under the profiler, and launched no kernel before"
    return f"{program} launched no kernel that the profiler could see"


def parse_launches(text: Iterable[str]) -> list[Counter[str]]:
    """Return how often each launch in the output of `ncu` for PAGE executed the opcodes of arithmetic (`Line.is_arithmetic`).

    A row `"Kernel Name","…"` begins a kernel, a row with the names of the columns follows, then one row per instruction. Other
    lines are skipped. Raises AccprobeError if the columns lack executions.
    """
    header: list[str] = []
    found: list[Counter[str]] = []
    for row in csv.reader(text):
        if row[:1] == ["Kernel Name"]:
            header = []
        elif "Source" in row:
            header = row
            found.append(Counter())
            if EXECUTED not in header:
                columns = ", ".join(header[:8])
                raise AccprobeError(f"the profiler did not count executed instructions; its columns are {columns}, …")
        elif header and len(row) == len(header):
            cells = dict(zip(header, row, strict=True))
            line = read_line(cells["Source"].strip())
            if line and line.is_arithmetic and _number(cells[THREADS]):
                found[-1][line.opcode] += _number(cells[EXECUTED])
    return found


def _number(cell: str) -> int:
    plain = cell.replace(",", "")
    return int(plain) if plain.isdecimal() else 0


def lowerings(device: str, insts: Sequence[Instruction]) -> dict[str, Lowering]:
    """Return by name the opcodes that each instruction's probe executed for one tile on a GPU, in one child process that
    launches each probe once. Raises as `launches`, and DeviceError if the child did not launch all.
    """
    command = [sys.executable, "-m", "accprobe.devices.cuda", device, *(inst.name for inst in insts)]
    seen = launches(command)
    if len(seen) != len(insts):
        raise DeviceError(f"the profiler saw {len(seen)} of {len(insts)} probes on {device}")
    return {inst.name: _lowering(inst, counts) for inst, counts in zip(insts, seen, strict=True)}


def _lowering(inst: Instruction, counts: Counter[str]) -> Lowering:
    """Return the executions of one warp for one tile. All warps of a tile execute the same opcodes."""
    sequence = tuple((opcode, count // inst.family.warps) for opcode, count in counts.items() if count)
    return Lowering(tuple(opcode for opcode, _ in sequence if MATRIX.match(opcode)), sequence, "ncu")

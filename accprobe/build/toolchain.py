"""NVIDIA's programs: where they are, and running them."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal, TextIO, cast

from accprobe.build import install
from accprobe.errors import ToolMissing

ToolName = Literal["nvdisasm", "cuobjdump", "ptxas", "ncu"]

_ERROR = re.compile(r"\w+ (?:.*, (line \d+); )?(?:fatal|error)\s*:\s*(.*)")
"""The form of a reason in the output of NVIDIA's tools: "ptxas fatal   : …", "ptxas k.ptx, line 9; error   : …"."""


class ToolFailed(ToolMissing):
    """The program is installed but fails on this input; the text has what it says."""


@cache
def find(tool: ToolName) -> Path:
    """The program's path: from its PyPI package, else Triton's wheel, else a CUDA toolkit. Raises ToolMissing."""
    return _candidates(tool)[0]


@cache
def _candidates(tool: ToolName) -> list[Path]:
    paths = [path for folder in _folders(tool) for path in (folder / tool, folder / f"{tool}-blackwell")]
    if found := shutil.which(tool):
        paths.append(Path(found))
    paths.append(Path("/usr/local/cuda/bin") / tool)
    if tool == "ncu":
        paths += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    usable = [path for path in paths if path.is_file() and os.access(path, os.X_OK)]
    if not usable:
        raise ToolMissing(f"{tool} was not found: {install.PROGRAMS[tool]}")
    return list(dict.fromkeys(usable))


def _folders(tool: ToolName) -> Iterator[Path]:
    for package, pattern in () if tool == "ncu" else (("nvidia", "*/bin"), ("triton", "backends/nvidia/bin")):
        spec = importlib.util.find_spec(package)
        for root in (spec and spec.submodule_search_locations) or ():
            yield from sorted(Path(root).glob(pattern), reverse=True)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield Path(home) / "bin"


def run(tool: ToolName, *arguments: str, timeout: float = 120, folder: Path | None = None) -> str:
    """Runs the program, in `folder`, and returns what it prints: the first one found that succeeds, as an old one cannot read
    new files.

    Raises ToolMissing where none is installed, ToolFailed where none succeeds.
    """
    failure = ""
    for path in _candidates(tool):
        command = [str(path), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout, cwd=folder, check=False)
        except (OSError, subprocess.TimeoutExpired) as e:
            failure = str(e)
            continue
        text = done.stdout.decode(errors="replace")
        if done.returncode == 0:
            return text
        failure = _failure(done.stderr.decode(errors="replace") or text, done.returncode)
    raise _failed(tool, failure)


@contextmanager
def output(tool: ToolName, *arguments: str, timeout: float = 900, folder: Path | None = None) -> Iterator[TextIO]:
    """As `run`, as text that is read while the program prints it: what disassemblers print of a large file need not fit into
    memory. A program that fails before it prints anything gives way to the next one.
    """
    failure = ""
    for path in _candidates(tool):
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen([str(path), *arguments], stdout=subprocess.PIPE, stderr=said, cwd=folder)
            except OSError as e:
                failure = str(e)
                continue
            with _ended(process, timeout) as printed:
                begun = bool(printed.peek(1))
                if begun or process.wait() == 0:
                    text = io.TextIOWrapper(printed, encoding="utf-8", errors="replace")
                    yield text
                    text.read()
                status = process.wait()
            if status == 0:
                return
            said.seek(0)
            failure = _failure(said.read().decode(errors="replace"), status)
            if begun:
                break
    raise _failed(tool, failure)


@contextmanager
def _ended(process: subprocess.Popen[bytes], timeout: float) -> Iterator[io.BufferedReader]:
    """What the process prints; it is killed where it takes longer, or where nobody reads on."""
    timer = threading.Timer(timeout, process.kill)
    timer.daemon = True
    timer.start()
    with process:
        try:
            yield cast(io.BufferedReader, process.stdout)
        finally:
            timer.cancel()
            process.kill()


def _failure(said: str, status: int) -> str:
    return _reason(said) or f"exit status {status}"


def _failed(tool: ToolName, failure: str) -> ToolFailed:
    if "Cannot decode architecture" in failure:
        failure += f"; a newer one may know it: pip install --upgrade nvidia-cuda-{tool}"
    return ToolFailed(f"{tool} failed: {failure}")


def _reason(said: str) -> str:
    """The first error, which names the cause of those that follow; the last line where none is marked as one."""
    lines = said.strip().splitlines()
    first = next(filter(None, map(_ERROR.match, lines)), None)
    return ": ".join(filter(None, first.groups())) if first else "".join(lines[-1:])


def origin(tool: ToolName) -> str:
    """Where the program that is used comes from: "from PyPI", "from Triton's wheel", "from an installed toolkit", or ""."""
    try:
        path = find(tool)
    except ToolMissing:
        return ""
    for package, words in (("nvidia", "from PyPI"), ("triton", "from Triton's wheel")):
        spec = importlib.util.find_spec(package)
        if any(path.is_relative_to(root) for root in (spec and spec.submodule_search_locations) or ()):
            return words
    return "from an installed toolkit"


def tool_version(tool: ToolName) -> str | None:
    """The program's version, e.g. "13.0.85", or None where it is missing or does not run."""
    try:
        text = run(tool, "--version", timeout=20)
    except ToolMissing:
        return None
    found = re.search(r"V(\d+\.\d+\.\d+)", text) or re.search(r"Version (\d+[\d.]*)", text)
    return found[1] if found else "unknown"

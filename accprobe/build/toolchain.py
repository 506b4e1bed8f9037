"""NVIDIA's command-line programs: find and run them."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal, TextIO, cast

from accprobe.build import install
from accprobe.errors import ToolFailed, ToolMissing

ToolName = Literal["nvdisasm", "cuobjdump", "ncu"]

_ERROR = re.compile(r"\w+ (?:fatal|error)\s*:\s*(.*)")
"""The form of a reason in the output of NVIDIA's tools: "nvdisasm fatal   : …"."""


def find(tool: ToolName) -> Path:
    """Return the path of the preferred installation of a program. Raises ToolMissing."""
    return candidates(tool)[0]


@cache
def candidates(tool: ToolName) -> list[Path]:
    """Return all installations of a program: in PyPI packages, CUDA toolkits, the PATH and Nsight. Raises ToolMissing."""
    paths = [folder / tool for folder in _folders(tool)]
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


def run(tool: ToolName, *arguments: str, folder: Path | None = None) -> str:
    """Run the program in `folder`, and return its output. Raises as `output`."""
    with output(tool, *arguments, folder=folder) as text:
        return text.read()


@contextmanager
def output(tool: ToolName, *arguments: str, timeout: float = 900, folder: Path | None = None) -> Iterator[TextIO]:
    """Run the program in `folder`, and yield its output as text while it runs, as a disassembly may not fit into memory.

    If an installation fails before it prints anything, the next is tried, as an old one cannot read new files. Raises
    ToolMissing if none is installed, ToolFailed if none succeeds or one takes longer than `timeout` seconds.
    """
    failure, begun = "", False
    for path in candidates(tool):
        start = time.monotonic()
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen([str(path), *arguments], stdout=subprocess.PIPE, stderr=errors, cwd=folder)
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
            errors.seek(0)
            if status == -signal.SIGKILL and time.monotonic() - start >= timeout:
                raise ToolFailed(f"{tool} failed: it was stopped after {timeout:g} s")
            failure = _reason(errors.read().decode(errors="replace")) or f"exit status {status}"
            if begun:
                break
    if "Cannot decode architecture" in failure:
        failure += f"; a newer one may know it: pip install --upgrade nvidia-cuda-{tool}"
    raise ToolFailed(f"{tool} failed: {failure}")


@contextmanager
def _ended(process: subprocess.Popen[bytes], timeout: float) -> Iterator[io.BufferedReader]:
    """Yield the output of the process. It is killed after `timeout` seconds, and when the block ends."""
    timer = threading.Timer(timeout, process.kill)
    timer.daemon = True
    timer.start()
    with process:
        try:
            yield cast(io.BufferedReader, process.stdout)
        finally:
            timer.cancel()
            process.kill()


def _reason(said: str) -> str:
    """Return the first error, which is the cause of later ones; the last line if none is marked as an error."""
    lines = said.strip().splitlines()
    first = next(filter(None, map(_ERROR.match, lines)), None)
    return first[1] if first else "".join(lines[-1:])


def tool_version(tool: ToolName) -> str | None:
    """Return the program's version, such as "13.0.85", or "unknown"; None if it is missing or does not run."""
    try:
        text = run(tool, "--version")
    except (ToolMissing, ToolFailed):
        return None
    found = re.search(r"V(\d+\.\d+\.\d+)", text) or re.search(r"Version (\d+[\d.]*)", text)
    return found[1] if found else "unknown"

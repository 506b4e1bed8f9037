"""What of the toolchain is here, what is missing, and the line that installs it. Data only: `accprobe doctor` renders it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TextIO

from accprobe.errors import ToolMissing

ToolName = Literal["nvdisasm", "cuobjdump", "ptxas", "ncu"]

_GPU_STACK = "pip install 'accprobe[cuda13]' (or [cuda12])"
_INSTALL: dict[str, str] = {
    "nvdisasm": "pip install nvidia-cuda-nvdisasm",
    "cuobjdump": "pip install nvidia-cuda-cuobjdump",
    "ptxas": "pip install triton, or nvidia-cuda-nvcc",
    "ncu": "install Nsight Compute: https://developer.nvidia.com/nsight-compute",
}


_ERROR = re.compile(r"\w+ (?:.*, (line \d+); )?(?:fatal|error)\s*:\s*(.*)")
"""How NVIDIA's tools tell a reason: "ptxas fatal   : …", "ptxas k.ptx, line 9; error   : …"."""


class ToolFailed(ToolMissing):
    """The program is installed but fails on this input; the text has what it says."""


@dataclass(frozen=True)
class Item:
    """One thing that accprobe can use. version: None where it is missing; install: what to do then; note: a remark."""

    name: str
    purpose: str
    version: str | None
    install: str
    note: str = ""

    @property
    def found(self) -> bool:
        return self.version is not None


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
        raise ToolMissing(f"{tool} was not found: {_INSTALL[tool]}")
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
    with output(tool, *arguments, timeout=timeout, folder=folder) as text:
        return text.read()


@contextmanager
def output(tool: ToolName, *arguments: str, timeout: float = 900, folder: Path | None = None) -> Iterator[TextIO]:
    """As `run`, as an open text file: what disassemblers print of a large file need not fit into memory."""
    failure = ""
    for path in _candidates(tool):
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as text:
            command = [str(path), *arguments]
            try:
                done = subprocess.run(command, stdout=text, stderr=subprocess.PIPE, timeout=timeout, cwd=folder, check=False)
            except (OSError, subprocess.TimeoutExpired) as e:
                failure = str(e)
                continue
            text.seek(0)
            if done.returncode == 0:
                yield text
                return
            said = done.stderr.decode(errors="replace") or text.read()
            failure = _reason(said) or f"exit status {done.returncode}"
    if "Cannot decode architecture" in failure:
        failure += f"; a newer one may know it: {_INSTALL[tool].replace('install', 'install --upgrade', 1)}"
    raise ToolFailed(f"{tool} failed: {failure}")


def _reason(said: str) -> str:
    """The first error, which names the cause of those that follow; the last line where none is marked as one."""
    lines = said.strip().splitlines()
    first = next(filter(None, map(_ERROR.match, lines)), None)
    return ": ".join(filter(None, first.groups())) if first else "".join(lines[-1:])


def versions() -> dict[str, str]:
    """Versions for the report's `environment` table, of what is installed; nothing heavy is imported."""
    found = {"driver": driver_version(), "python": platform.python_version()}
    found |= {name: _package(*packages) for name, packages in _PACKAGES.items()}
    return {name: version for name, version in found.items() if version}


_PACKAGES = {
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "cuda_core": ("cuda-core",),
    "nvrtc": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "triton": ("triton",),
    "torch": ("torch",),
}


def _package(*names: str) -> str | None:
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


@cache
def driver_version() -> str | None:
    """The NVIDIA driver's version, e.g. "580.95.05", asked of NVML; None without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    text = ctypes.create_string_buffer(96)
    if nvml.nvmlInit_v2() or nvml.nvmlSystemGetDriverVersion(text, len(text)):
        return None
    return text.value.decode()


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


def profiler_open() -> bool | None:
    """Whether the driver lets this user read performance counters; None where there is no driver to ask."""
    try:
        text = Path("/proc/driver/nvidia/params").read_text(encoding="utf-8")
    except OSError:
        return None
    restricted = re.search(r"RmProfilingAdminOnly:\s*1", text) is not None
    return not restricted or os.geteuid() == 0


def inventory() -> list[Item]:
    """Everything that accprobe can use, found or not, most needed first."""
    from accprobe.build.driver import gpu_count, why_no_gpu

    gpus = gpu_count()
    packages = {name: _package(*names) for name, names in _PACKAGES.items()}
    profiler = {True: "", False: "counters are for root only: see ERR_NVGPUCTRPERM", None: ""}[profiler_open()]
    return [
        Item("driver", "running anything on a GPU", driver_version(), "https://www.nvidia.com/drivers"),
        Item("GPU", "measuring", str(gpus) if gpus else None, "`--device sim:NAME` needs none", why_no_gpu() or ""),
        Item("cupy", "launching probes", packages["cupy"], _GPU_STACK),
        Item("cuda.core", "compiling probes", packages["cuda_core"], _GPU_STACK),
        Item("nvrtc", "compiling probes", _nvrtc_version(), _GPU_STACK),
        _tool("nvdisasm", "showing which opcode ran"),
        _tool("cuobjdump", "opcodes in fatbins, libraries and wheels"),
        _tool("ptxas", "opcodes that PTX becomes"),
        _tool("ncu", "counting executed opcodes", profiler),
        Item("numba", "evaluating models faster; without it numpy does", _package("numba"), "pip install 'accprobe[fast]'"),
        Item("triton", "the kernel of sweeps", packages["triton"], "pip install triton"),
        Item("torch", "sweeps on a GPU", packages["torch"], _GPU_STACK),
        Item("python", "everything", platform.python_version(), "", sys.implementation.name),
    ]


def _tool(tool: ToolName, purpose: str, note: str = "") -> Item:
    remarks = "; ".join(filter(None, [origin(tool), note]))
    return Item(tool, purpose, tool_version(tool), _INSTALL[tool], remarks)


def _nvrtc_version() -> str | None:
    from accprobe.build import kernels

    try:
        return kernels.compiler_version()
    except ToolMissing:
        return None

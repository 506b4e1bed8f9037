"""The tools and packages that accprobe uses: those found, those missing, and what to do about these (`accprobe doctor`)."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import dataclass

from accprobe.build import compiler, driver, install, processor, toolchain
from accprobe.build.toolchain import ToolName
from accprobe.errors import ToolMissing
from accprobe.isa.processors import MNEMONICS


@dataclass(frozen=True)
class Item:
    """One tool or package. version: None if it is missing; remedy: what to do if it is missing; note: a remark."""

    name: str
    purpose: str
    version: str | None
    remedy: str
    note: str = ""

    @property
    def found(self) -> bool:
        return self.version is not None


def versions() -> dict[str, str]:
    """Return versions for the report's `environment` table, of installed packages only, without importing them."""
    found = {"driver": driver.version(), "python": platform.python_version()}
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


def inventory() -> list[Item]:
    """Return everything that accprobe can use, found or not, the most important first."""
    gpus = driver.gpu_count()
    packages = {name: _package(*names) for name, names in _PACKAGES.items()}
    profiler = {True: "", False: "counters are for root only: see ERR_NVGPUCTRPERM", None: ""}[driver.is_profiler_open()]
    return [
        Item("driver", "running anything on a GPU", driver.version(), install.DRIVER),
        Item(
            "GPU",
            "--device gpu",
            str(gpus) if gpus else None,
            "`--device sim:NAME` needs none",
            driver.explain_missing_gpu() or "",
        ),
        _processor(),
        Item("cupy", "launching probes", packages["cupy"], install.EITHER_GPU_STACK),
        Item("cuda.core", "compiling probes", packages["cuda_core"], install.EITHER_GPU_STACK),
        Item("nvrtc", "compiling probes", _nvrtc_version(), install.EITHER_GPU_STACK),
        _tool("nvdisasm", "showing which opcode ran"),
        _tool("cuobjdump", "opcodes in fatbins, libraries and wheels"),
        _tool("ncu", "counting executed opcodes", profiler),
        Item("numba", "evaluating products faster; without it numpy does", _package("numba"), install.NUMBA),
        Item("triton", "the kernel of sweeps", packages["triton"], install.TRITON),
        Item("torch", "trace; torch callables; sweeps on a GPU", packages["torch"], install.EITHER_GPU_STACK),
        Item("ray", "--ray: the GPUs of many hosts", _package("ray"), install.RAY),
        Item("nvidia-ml-py", "clocks, temperatures and memory errors in health", _package("nvidia-ml-py"), install.NVML),
        Item("python", "everything", platform.python_version(), "", sys.implementation.name),
    ]


def _processor() -> Item:
    """Return the dot product instructions of this processor, by mnemonic."""
    has = ", ".join(each.mnemonic for each in MNEMONICS if not processor.lacking(each))
    remark = processor.explain_missing_instructions() or processor.name()
    return Item("processor", "--device cpu", has or None, "another machine", remark)


def _tool(tool: ToolName, purpose: str, note: str = "") -> Item:
    return Item(tool, purpose, toolchain.tool_version(tool), install.PROGRAMS[tool], note)


def _nvrtc_version() -> str | None:
    try:
        return compiler.compiler_version()
    except ToolMissing:
        return None

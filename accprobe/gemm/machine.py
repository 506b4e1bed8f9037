"""The device that computes a product, the versions of its libraries, and the kernels of one call, as a report records them.

torch's profiler (CUPTI) gives the names of kernels. No opcode is derived from the name of a kernel.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from accprobe.build import inventory, processor
from accprobe.callables.adapter import CallableAdapter
from accprobe.callables.arrays import ArrayLibrary
from accprobe.records.products import KernelRecord
from accprobe.report.report import DeviceRecord, Report

_CUBLAS = re.compile(r"\S*/libcublasLt\.so\S*")


def device_record(library: ArrayLibrary) -> DeviceRecord:
    """Return the record of the device. Raises AccprobeError for a GPU that accprobe does not know."""
    if library.device == "cpu":
        return DeviceRecord(kind="cpu", name=processor.name(), architecture=processor.architecture())
    index = int(library.device.partition(":")[2])
    if library.name != "torch":
        from accprobe.devices.cuda import CudaDevice

        device = CudaDevice(index)
        return DeviceRecord(kind="cuda", name=device.name, architecture=device.architecture)
    import torch

    from accprobe.isa import architectures

    found: Any = torch.cuda.get_device_properties(index)
    known = architectures.from_compute_capability(found.major, found.minor)
    facts: dict[str, int | float | str] = {
        "compute_capability": f"{found.major}.{found.minor}",
        "sm_count": found.multi_processor_count,
    }
    return DeviceRecord(kind="cuda", name=found.name, architecture=known.target, facts=facts)


def library_versions(library: ArrayLibrary) -> dict[str, str]:
    """Return the versions of the array library and of the libraries that compute for it.

    The number of threads is included on a CPU, because the order of additions may depend on it.
    """
    package: Any = importlib.import_module(library.name)
    found = {library.name: str(package.__version__)}
    if library.name == "numpy":
        found["blas"] = _blas_of_numpy()
    if library.device == "cpu":
        threads = package.get_num_threads() if library.name == "torch" else len(os.sched_getaffinity(0))
        return found | {"threads": str(threads)}
    if library.name == "torch":
        found |= {"cuda": str(package.version.cuda), **({"cublas": cublas} if (cublas := cublas_version()) else {})}
    return found | {name: version for name, version in inventory.versions().items() if name in ("driver", "triton")}


def _blas_of_numpy() -> str:
    built: Any = np.show_config(mode="dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {})
    return str(blas.get("openblas configuration") or f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip())


def cublas_version(maps: Path = Path("/proc/self/maps")) -> str:
    """Return the version that the loaded cuBLASLt reports, as "13.1.0"; "" if none is loaded."""
    try:
        loaded = _CUBLAS.search(maps.read_text(encoding="utf-8", errors="replace"))
        if loaded is None:
            return ""
        query = ctypes.CDLL(loaded[0]).cublasLtGetVersion
    except (OSError, AttributeError):
        return ""
    query.restype = ctypes.c_size_t
    number = int(query())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def empty_report(library: ArrayLibrary, seed: int) -> Report:
    """Return a report of the device without any rows."""
    return Report.of(device_record(library), inventory.versions(), seed)


# Names of profiler events that are not kernels.
NO_KERNEL = re.compile(r"Memcpy|Memset|\[CUDA")


def kernels_of(adapter: CallableAdapter) -> tuple[tuple[KernelRecord, ...], str]:
    """Return the kernels of one call with the current operands, and why their names are unknown; on a CPU, neither.

    A call before it, which is not profiled, does what a library does only once.
    """
    if adapter.library.device == "cpu":
        return (), ""
    try:
        import torch
        from torch.autograd.profiler import profile  # torch.profiler takes seconds to import graph compilers
    except ImportError:
        return (), "kernels: torch is not installed; its profiler reads their names"
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # otherwise it reports every start and stop
    adapter.call()
    torch.cuda.synchronize()
    try:
        # acc_events: otherwise torch 2.10 and 2.11 warn about cycles that do not exist (pytorch/pytorch issue 180348)
        with profile(use_device="cuda", use_kineto=True, acc_events=True) as run:
            adapter.call()
            torch.cuda.synchronize()
    except RuntimeError as e:
        return (), f"kernels: torch's profiler failed: {' '.join(str(e).split())}"
    events = [event for event in run.function_events or () if str(event.device_type) == "DeviceType.CUDA"]
    launches = Counter(event.name for event in events if not NO_KERNEL.match(event.name))
    kernels = tuple(KernelRecord(name=name, launches=n) for name, n in launches.items())
    return kernels, ("" if kernels else "kernels: torch's profiler recorded none: CUPTI may be missing, or in use")

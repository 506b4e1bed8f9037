"""What computed: the device as a report has it, and the versions of the libraries whose product it is."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from accprobe.build import inventory, processor
from accprobe.gemm.handover import Handover
from accprobe.report.report import SCHEMA, DeviceRecord, Report, Run, Tool

_CUBLAS = re.compile(r"\S*/libcublasLt\.so\S*")


def device_record(handover: Handover) -> DeviceRecord:
    """Raises AccprobeError where a GPU is none that accprobe knows."""
    if handover.device == "cpu":
        return DeviceRecord(kind="cpu", name=processor.name(), architecture=processor.architecture())
    index = int(handover.device.partition(":")[2])
    if handover.arrays != "torch":
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


def library_versions(handover: Handover) -> dict[str, str]:
    """Of the library whose arrays a callable takes, and of what computes for it; threads, where a CPU's order of sums may hang
    on them.
    """
    found = {"numpy": _of_numpy, "torch": _of_torch}.get(handover.arrays, _of_package)(handover)
    if handover.device == "cpu":
        return found | {"threads": str(len(os.sched_getaffinity(0)))} if "threads" not in found else found
    return found | {name: version for name, version in inventory.versions().items() if name in ("driver", "triton")}


def _of_package(handover: Handover) -> dict[str, str]:
    module = importlib.import_module(handover.arrays)
    return {handover.arrays: str(getattr(module, "__version__", ""))}


def _of_numpy(handover: Handover) -> dict[str, str]:
    built: Any = np.show_config(mode="dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {})
    told = blas.get("openblas configuration") or f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    return {"numpy": np.__version__, "blas": told}


def _of_torch(handover: Handover) -> dict[str, str]:
    import torch

    found = {"torch": str(torch.__version__)}
    if handover.device != "cpu":
        cublas = cublas_version()
        return found | {"cuda": str(torch.version.cuda)} | ({"cublas": cublas} if cublas else {})
    config = torch.__config__.show()
    for name, pattern in (("mkl", r"Math Kernel Library Version (\S+)-Product"), ("onednn", r"MKL-DNN v(\S+)")):
        if version := re.search(pattern, config):
            found[name] = version[1]
    capability = re.search(r"CPU capability usage: (\S+)", config)
    return found | ({"cpu_capability": capability[1]} if capability else {}) | {"threads": str(torch.get_num_threads())}


def cublas_version(maps: Path = Path("/proc/self/maps")) -> str:
    """Of the cuBLASLt that this process has loaded, asked of itself: "13.1.0"; "" where none is loaded."""
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


def empty_report(handover: Handover, seed: int) -> Report:
    """A report of what computes, in which nothing is measured yet."""
    return Report(
        schema=SCHEMA,
        tool=Tool.current(),
        environment=inventory.versions(),
        seed=seed,
        device=device_record(handover),
        run=Run(jobs=1, seconds=0.0, selected=0),
        instructions=(),
    )

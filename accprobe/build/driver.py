"""Properties of the GPUs, from the NVIDIA driver library: it is always there with a GPU, and faster than importing cupy."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from accprobe.build import install
from accprobe.errors import DeviceError


def gpu_count() -> int:
    """Return the number of GPUs that accprobe can use; 0 without a GPU, a driver or cupy."""
    return 0 if explain_missing_gpu() else gpus()[0]


def explain_missing_gpu() -> str | None:
    """Return why no GPU can be used, as a short clause; None if one can."""
    count, reason = gpus()
    if count == 0:
        return reason
    if importlib.util.find_spec("cupy") is None:
        return f"cupy is not installed: {install.GPU_STACK}"
    return None


def no_gpu(reason: str, instead: str = "--device sim:NAME evaluates published models without a GPU") -> DeviceError:
    """Return the error of a command that needs a GPU. instead: what works without one."""
    return DeviceError(f"no GPU found ({reason}); `accprobe doctor` shows what is missing; {instead}")


@cache
def gpus() -> tuple[int, str]:
    """Return the number of GPUs, and why there is none, as a clause ("" if there is one)."""
    try:
        driver = _library()
    except OSError:
        return 0, "there is no NVIDIA driver"
    if error := driver.cuInit(0):
        return 0, f"the NVIDIA driver finds no GPU (cuInit: error {error})"
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    return count.value, "" if count.value else "the NVIDIA driver finds no GPU"


def uuid(index: int) -> str:
    """Return the UUID of a GPU, from the driver library. Raises DeviceError."""
    driver = _library()
    handle, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if error := driver.cuDeviceGet(ctypes.byref(handle), index) or driver.cuDeviceGetUuid_v2(found, handle):
        raise DeviceError(f"the NVIDIA driver has no UUID of cuda:{index} (error {error})")
    return f"GPU-{UUID(bytes=bytes(found))}"


@cache
def version() -> str | None:
    """Return the NVIDIA driver's version, e.g. "580.95.05", from NVML; None without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    text = ctypes.create_string_buffer(96)
    if nvml.nvmlInit_v2() or nvml.nvmlSystemGetDriverVersion(text, len(text)):
        return None
    return text.value.decode()


def is_profiler_open() -> bool | None:
    """Return whether the driver lets this user read performance counters; None without a driver."""
    try:
        text = Path("/proc/driver/nvidia/params").read_text(encoding="utf-8")
    except OSError:
        return None
    restricted = re.search(r"RmProfilingAdminOnly:\s*1", text) is not None
    return not restricted or os.geteuid() == 0


def _library() -> Any:
    return ctypes.CDLL("libcuda.so.1")

"""Devices: where an instruction runs. They implement `accprobe.operands.protocol`.

`open_device("cuda:0")`, `open_device("sim:h100")`. Bit patterns, never floats, cross the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from accprobe.errors import DeviceError, UnknownName, did_you_mean
from accprobe.operands.protocol import Device, DeviceKind

__all__ = ["Device", "DeviceKind", "device_names", "named_devices", "open_device"]

FIRST_GPU = "cuda:0"
CPU = "cpu"
STAND_IN = "sim:h100"

# Whole names of devices, each with a remark. The other names have a number, a chip or a file after a colon.
FIXED_NAMES = {
    "auto": f"the first GPU; without one, the processor; if that has no matrix instructions, {STAND_IN}",
    "gpu": "the first GPU; without one, an error with the reason",
    CPU: "the processor of this machine: its own dot products of narrow formats",
}


def open_device(name: str, of_gpus: bool = False) -> Device:
    """Return the device of that name: "cuda:N", "sim:NAME", "replay:FILE", "auto", "gpu" or "cpu".

    of_gpus: the caller needs a GPU or its simulation; a processor cannot replace it.
    Raises UnknownName for another form, DeviceError if the device cannot be opened, ToolMissing without cupy,
    RecordingError if the file cannot be read.
    """
    if name in ("auto", "gpu"):
        name = _first_gpu(name, of_gpus)
    match name.split(":", 1):
        case ["cpu"] if of_gpus:
            raise DeviceError("this command needs a GPU, and cpu is none; `accprobe run --device cpu` measures the processor")
        case ["cpu"]:
            from accprobe.devices.cpu import CpuDevice

            return CpuDevice()
        case ["cuda", index] if index.isdecimal():
            from accprobe.devices.cuda import CudaDevice

            return CudaDevice(int(index))
        case ["cuda", index]:
            raise UnknownName(f"'cuda:{index}' is not a device; a GPU is named cuda:0, cuda:1, …")
        case ["sim", _]:
            from accprobe.devices.simulated import simulated_device

            return simulated_device(name)
        case ["replay", ""]:
            raise UnknownName("'replay:' names no recording; give replay:FILE")
        case ["replay", file]:
            from accprobe.devices.recording import ReplayDevice

            return ReplayDevice(Path(file))
    raise _unknown(name)


def _unknown(name: str) -> UnknownName:
    from accprobe.model.published import names

    near = did_you_mean(name, [*FIXED_NAMES, FIRST_GPU, *(f"sim:{chip}" for chip in names())])
    every = f"devices are {', '.join(FIXED_NAMES)}, cuda:N, sim:NAME and replay:FILE (see `accprobe list --devices`)"
    return UnknownName(f"unknown device '{name}'{f' ({near})' if near else ''}; {every}")


def named_devices() -> Iterator[tuple[str, str]]:
    """Yield the names of devices that exist here, each with a remark."""
    from accprobe.build.driver import gpu_count
    from accprobe.model.published import chip, explained_text, names, title, words_explained

    yield from FIXED_NAMES.items()
    yield from ((f"cuda:{index}", "GPU") for index in range(gpu_count()))
    for name in names():
        words = explained_text(one for every in words_explained(name).values() for one in every)
        explained = f"they match {words}" if words else "nobody has published results of the real chip"
        yield f"sim:{name}", f"published models of {title(name)}, {chip(name).architecture}; {explained}"
    yield "replay:FILE", "a recording that `accprobe run --record FILE` made"


def device_names(wanted: str) -> list[str]:
    """Return every GPU here for "all"; otherwise the names between the commas.

    Raises DeviceError if "all" finds no GPU, UnknownName if a device is named twice.
    """
    from accprobe.build.driver import explain_missing_gpu, gpu_count, no_gpu

    if wanted == "all":
        if reason := explain_missing_gpu():
            raise no_gpu(reason)
        return [f"cuda:{index}" for index in range(gpu_count())]
    names = [name.strip() for name in wanted.split(",")]
    if twice := next((name for i, name in enumerate(names) if name in names[:i]), None):
        raise UnknownName(f"{twice} is named twice; name each GPU once")
    return names


def _first_gpu(name: str, of_gpus: bool) -> str:
    """Return the device that "auto" or "gpu" means on this machine. Raises DeviceError if "gpu" means none."""
    from accprobe.build.driver import explain_missing_gpu, no_gpu
    from accprobe.build.processor import explain_missing_instructions

    reason = explain_missing_gpu()
    if reason is None:
        return FIRST_GPU
    if name == "auto":
        return STAND_IN if of_gpus or explain_missing_instructions() else CPU
    raise no_gpu(reason)

"""Devices: where an instruction runs. One protocol, and the devices that implement it.

`open_device("cuda:0")`, `open_device("sim:h100")`. Bit patterns, never floats, cross the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from accprobe.devices.protocol import Device, DeviceKind
from accprobe.errors import DeviceError, UnknownName, did_you_mean

__all__ = ["SCHEMES", "Device", "DeviceKind", "Scheme", "device_names", "open_device"]


@dataclass(frozen=True)
class Scheme:
    """Devices whose names are a word, a colon and a rest.

    rest: placeholder of the rest in messages. open: return the device of a rest, which may be empty. known: every rest that
    exists here, or a placeholder, each with a remark. unseen: what only queries to every SM show.
    """

    rest: str
    open: Callable[[str], Device]
    known: Callable[[], Iterable[tuple[str, str]]]
    unseen: str = ""


def _cuda(index: str) -> Device:
    from accprobe.devices.cuda import CudaDevice

    if not index.isdecimal():
        raise UnknownName(f"'cuda:{index}' is not a device; a GPU is named cuda:0, cuda:1, …")
    return CudaDevice(int(index))


def _processor(of_gpus: bool) -> Device:
    if of_gpus:
        raise DeviceError("this command needs a GPU, and cpu is none; `accprobe run --device cpu` measures the processor")
    from accprobe.devices.cpu import CpuDevice

    return CpuDevice()


def _gpus() -> Iterable[tuple[str, str]]:
    from accprobe.build.driver import gpu_count

    return ((str(index), "GPU") for index in range(gpu_count()))


def _simulated(name: str) -> Device:
    from accprobe.devices.simulated import simulated_device

    return simulated_device(f"sim:{name}")


def _chips() -> Iterable[tuple[str, str]]:
    from accprobe.model.published import chip, explained_text, names, title, words_explained

    for name in names():
        words = explained_text(one for every in words_explained(name).values() for one in every)
        explained = f"they match {words}" if words else "nobody has published results of the real chip"
        yield name, f"published models of {title(name)}, {chip(name).architecture}; {explained}"


def _faulty(name: str) -> Device:
    from accprobe.devices.simulated import FaultyDevice, simulated_device

    return FaultyDevice(simulated_device(f"sim:{name}"))


def _replay(file: str) -> Device:
    if not file:
        raise UnknownName("'replay:' names no recording; give replay:FILE")
    from accprobe.devices.recording import ReplayDevice

    return ReplayDevice(Path(file))


# By the word before the colon.
SCHEMES = {
    "cuda": Scheme("N", _cuda, _gpus),
    "sim": Scheme("NAME", _simulated, _chips),
    "faulty": Scheme(
        "NAME",
        _faulty,
        lambda: [("NAME", "sim:NAME with one faulty SM, to see what `accprobe health` reports")],
        "its faulty SM is not used here; `accprobe health` runs on every SM",
    ),
    "replay": Scheme("FILE", _replay, lambda: [("FILE", "a recording that `accprobe run --record FILE` made")]),
}

FIRST_GPU = "cuda:0"
CPU = "cpu"
STAND_IN = "sim:h100"

# Names without a rest, each with a remark.
WORDS_ALONE = {
    "auto": f"the first GPU; without one, the processor; if that has no matrix instructions, {STAND_IN}",
    "gpu": "the first GPU; without one, an error with the reason",
    CPU: "the processor of this machine: its own dot products of narrow formats",
}


def open_device(name: str, of_gpus: bool = False) -> Device:
    """Return the device of that name: one of SCHEMES, as "cuda:0", or of WORDS_ALONE, "auto", "gpu" and "cpu".

    of_gpus: the caller needs a GPU or its simulation; a processor cannot replace it.
    Raises UnknownName for another form, DeviceError if the device cannot be opened, RecordingError if the file cannot be read.
    """
    if name in ("auto", "gpu"):
        name = _first_gpu(name, of_gpus)
    if name == CPU:
        return _processor(of_gpus)
    word, colon, rest = name.partition(":")
    if colon and word in SCHEMES:
        return SCHEMES[word].open(rest)
    raise _unknown(name)


def unseen(name: str) -> str:
    """Return what of the device only queries to every SM show, as a clause; "" for most devices."""
    word, colon, _ = name.partition(":")
    return SCHEMES[word].unseen if colon and word in SCHEMES else ""


def _unknown(name: str) -> UnknownName:
    from accprobe.model.published import names

    near = did_you_mean(name, [*WORDS_ALONE, FIRST_GPU, *(f"sim:{chip}" for chip in names())])
    *forms, last = (*WORDS_ALONE, *(f"{word}:{scheme.rest}" for word, scheme in SCHEMES.items()))
    every = f"devices are {', '.join(forms)} and {last} (see `accprobe list --devices`)"
    return UnknownName(f"unknown device '{name}'{f' ({near})' if near else ''}; {every}")


def why_no_processor() -> str | None:
    """Return why the processor of this machine cannot be measured, as a clause, or None if it can."""
    from accprobe.build import machine_code, processor

    return processor.why_no_instruction() or machine_code.why_no_llvm()


def device_names(wanted: str) -> list[str]:
    """Return every GPU here for "all"; otherwise the names between the commas.

    Raises DeviceError if "all" is none, UnknownName if a GPU is named twice.
    """
    from accprobe.build.driver import gpu_count, why_no_gpu

    if wanted == "all":
        if reason := why_no_gpu():
            raise DeviceError(f"there is no GPU: {reason}; --device {STAND_IN} needs none")
        return [f"cuda:{index}" for index in range(gpu_count())]
    names = [name.strip() for name in wanted.split(",")]
    if twice := next((name for i, name in enumerate(names) if name in names[:i] and name.startswith("cuda:")), None):
        raise UnknownName(f"{twice} is named twice; name each GPU once")
    return names


def _first_gpu(name: str, of_gpus: bool) -> str:
    """Return the device that "auto" or "gpu" means on this machine. Raises DeviceError if "gpu" means none."""
    from accprobe.build.driver import why_no_gpu

    reason = why_no_gpu()
    if reason is None:
        return FIRST_GPU
    if name == "auto":
        return STAND_IN if of_gpus or why_no_processor() else CPU
    hint = "`accprobe doctor` shows what is missing, and --device sim:NAME shows published models without a GPU"
    raise DeviceError(f"there is no GPU to measure: {reason}; {hint}")

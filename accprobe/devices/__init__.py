"""Where an instruction runs: one protocol, and the devices that speak it.

`open_device("cuda:0")`, `open_device("sim:h100")`. Bit patterns, never floats, cross the protocol.
"""

from __future__ import annotations

from pathlib import Path

from accprobe.devices.protocol import Device, DeviceKind, dot_expecting
from accprobe.errors import UnknownName

__all__ = ["Device", "DeviceKind", "dot_expecting", "open_device"]


def open_device(name: str) -> Device:
    """The device of that name: "cuda:N", "sim:NAME", "replay:FILE", or "auto" (the first GPU, else a simulated H100).

    Raises UnknownName for another form, DeviceError where the device cannot be opened, RecordingError where the file cannot
    be read.
    """
    kind, _, rest = name.partition(":")
    if kind == "sim":
        from accprobe.devices.simulated import simulated_device

        return simulated_device(name)
    if kind == "replay":
        if not rest:
            raise UnknownName("'replay:' names no recording; give replay:FILE")
        from accprobe.devices.replay import ReplayDevice

        return ReplayDevice(Path(rest))
    if kind == "cuda":
        from accprobe.devices.cuda import CudaDevice

        if not rest.isdecimal():
            raise UnknownName(f"'{name}' is not a device; a GPU is named cuda:0, cuda:1, …")
        return CudaDevice(int(rest))
    if name == "auto":
        from accprobe.build.driver import gpu_count
        from accprobe.devices.cuda import CudaDevice

        if gpu_count():
            return CudaDevice(0)
        from accprobe.devices.simulated import simulated_device

        return simulated_device("h100")
    raise UnknownName(
        f"unknown device '{name}'; devices are auto, cuda:N, sim:NAME and replay:FILE (see `accprobe list --devices`)"
    )

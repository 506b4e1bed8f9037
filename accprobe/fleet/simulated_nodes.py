"""Simulated devices that stand in for the GPUs of a cluster, to try it where nodes only claim to have some."""

from __future__ import annotations

from accprobe.devices import open_device
from accprobe.errors import UnknownName

STANDS_IN = "sim:", "faulty:"


def stand_ins(devices: str, gpus: int) -> list[str | None]:
    """What stands in for each GPU: of names with commas between, one after the other; of "all" nothing.

    Raises UnknownName where one is no simulated device.
    """
    if devices == "all":
        return [None] * gpus
    names = [name.strip() for name in devices.split(",")]
    if real := next((name for name in names if not name.startswith(STANDS_IN)), None):
        raise UnknownName(
            f"--device {real} goes without --ray, which takes every GPU of the cluster, or a sim: device for each"
        )
    for name in dict.fromkeys(names):
        open_device(name)
    return [names[i % len(names)] for i in range(gpus)]

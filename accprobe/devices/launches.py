"""Launches the probe of each named instruction once, with one dot product: what a profiler is to watch.

python -m accprobe.devices.launches cuda:0 mma.sync.m16n8k16.f32.f16.f16.f32 …
"""

from __future__ import annotations

import sys

from accprobe.devices import open_device
from accprobe.devices.protocol import Device
from accprobe.isa.instructions import Instruction, parse
from accprobe.operands.request import Request


def launch(device: Device, inst: Instruction) -> None:
    """One dot product of zeros: one tile, in one launch."""
    device.dot(inst, Request.zeros(inst, 1))


def main(name: str, instructions: list[str]) -> None:
    device = open_device(name)
    for instruction in instructions:
        launch(device, parse(instruction))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

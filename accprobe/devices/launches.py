"""Launch the probe of each named instruction once, with one dot product, for a profiler to count.

python -m accprobe.devices.launches cuda:0 mma.sync.m16n8k16.f32.f16.f16.f32 …
"""

from __future__ import annotations

import sys

from accprobe.devices import open_device
from accprobe.isa.instructions import parse
from accprobe.operands.request import Request

if __name__ == "__main__":
    device = open_device(sys.argv[1])
    for inst in map(parse, sys.argv[2:]):
        device.dot(inst, Request.zeros(inst, 1))

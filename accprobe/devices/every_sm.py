"""The same dot products on every SM of a GPU."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from accprobe.build import compiler, probes
from accprobe.errors import DeviceError
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request

CLAIMABLE = 4096
"""As in tile.cuh."""

BLOCKS_PER_SM = 32
LAUNCHES = 8
"""Tries after which an SM that got no block counts as one that does not answer."""


def dot_on_every_sm(cupy: Any, inst: Instruction, target: str, sms: int, request: Request) -> dict[int, Bits]:
    """Answers [N] by SM number. Raises DeviceError where fewer than `sms` answer, or one does not answer everything."""
    function = _loaded(cupy, inst, target)
    on_gpu = [cupy.asarray(np.ascontiguousarray(x)) for x in request.columns]
    count = len(request)
    results = cupy.zeros((sms, count), inst.d.dtype)
    stored = cupy.zeros(1, np.uint64)
    claims = cupy.zeros(sms + 1 + CLAIMABLE, np.uint32)
    pointers = [np.uint64(x.data.ptr) for x in (*on_gpu, results, stored)]
    arguments = (*pointers, np.uint64(count), np.uint32(0), np.uint64(claims.data.ptr), np.uint32(sms))
    for _ in range(LAUNCHES):
        function((BLOCKS_PER_SM * sms,), (probes.BLOCK_THREADS,), arguments)
        claimed = claims[: sms + 1].get()
        if claimed[sms] >= sms:
            break
    answered = min(int(claimed[sms]), sms)
    if answered < sms or int(stored.get()[0]) != sms * count:
        raise DeviceError(
            f"{inst.name}: {answered} of {sms} SMs answered, with {int(stored.get()[0])} of {sms * count} results"
        )
    return dict(zip(claimed[:sms].tolist(), results.get(), strict=True))


@lru_cache(maxsize=64)
def _loaded(cupy: Any, inst: Instruction, target: str) -> Any:
    cubin = compiler.compile_source(probes.source(inst, probes.Part.EVERY_SM), target, inst.name)
    return cupy.RawModule(path=str(cubin.path)).get_function(probes.KERNEL_NAME)

"""A CUDA GPU as a device: compiles the probe of an instruction, loads its cubin and launches it. Needs cupy."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from accprobe.build import cache, compiler, driver, install, inventory, probes
from accprobe.build.lowerings import Lowering
from accprobe.errors import AccprobeError, DeviceError, ToolFailed, ToolMissing
from accprobe.isa import architectures, tile
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, catalog, parse
from accprobe.operands.protocol import Device, DeviceKind
from accprobe.operands.request import Request
from accprobe.sass import lowering

# Bytes of operands of one launch of `dot`; more go in several launches, so that device memory stays bounded.
CHUNK_BYTES = 64 << 20

_ALIGNMENT = 256
_POISON = 0xA5  # Initial byte of results and of the count of stored results in front of them, which must have grown by N.


class CudaDevice(Device):
    """GPU number `index`, with one loaded kernel per instruction and buffers that only grow. Not thread-safe.

    Raises ToolMissing without cupy, DeviceError without that GPU, UnknownName if its architecture is unknown.
    """

    kind: DeviceKind = "cuda"
    pure = False

    def __init__(self, index: int = 0) -> None:
        count, reason = driver.gpus()
        if count == 0:
            raise driver.no_gpu(reason)
        if index >= count:
            known = "only cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
            raise DeviceError(f"there is no cuda:{index}; this machine has {known}")
        try:
            import cupy
        except ImportError as e:
            raise ToolMissing(f"cupy cannot be imported ({e}): {install.GPU_STACK}") from e
        self._cupy: Any = cupy
        self._index = index
        self._functions: dict[str, Any] = {}
        self._cubins: dict[str, cache.Cubin] = {}
        self._lowerings: dict[str, Lowering | None] = {}
        with self.lend("cannot be opened"):
            self._properties: dict[str, Any] = cupy.cuda.runtime.getDeviceProperties(index)
            self._operands = _Staging(cupy)
            self._results = _Staging(cupy)
        self.name: str = self._properties["name"].decode()
        major, minor = self._properties["major"], self._properties["minor"]
        self.architecture: str = architectures.from_compute_capability(major, minor).target

    def describe(self) -> dict[str, object]:
        """Return the compute capability, the number of SMs, the memory in GiB and the largest SM clock in MHz."""
        properties = self._properties
        clock_attribute = 13  # cudaDevAttrClockRate, in kHz
        return {
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "sm_count": properties["multiProcessorCount"],
            "memory_gib": round(properties["totalGlobalMem"] / 2**30, 1),
            "max_clock_mhz": self._cupy.cuda.runtime.deviceGetAttribute(clock_attribute, self._index) // 1000,
        }

    def uuid(self) -> str:
        """Return the board's UUID, "GPU-…", as nvidia-smi prints it. Raises DeviceError if the driver does not report it."""
        return driver.uuid(self._index)

    def environment(self) -> dict[str, str]:
        runtime = self._cupy.cuda.runtime.runtimeGetVersion()
        return {**inventory.versions(), "cuda": f"{runtime // 1000}.{runtime % 1000 // 10}"}

    def instructions(self) -> Sequence[Instruction]:
        return tuple(catalog(self.architecture))

    def explain_unavailable(self, inst: Instruction) -> str | None:
        return None if probes.find_probe(inst) else probes.NO_PROBE

    def prepare(self, insts: Iterable[Instruction]) -> None:
        """Compile and disassemble many instructions at once, which is much faster than one at a time."""
        cubins = compiler.compile_all(insts, self.architecture)
        self._cubins |= {inst.name: cubin for inst, cubin in cubins.items()}
        lowering.prepare(cubins.values())

    def lowering(self, inst: Instruction) -> Lowering | None:
        """Return the SASS of the cubin that `dot` launches; None without a disassembler that reads it."""
        if inst.name not in self._lowerings:
            try:
                self._lowerings[inst.name] = lowering.lowering(self._cubin(inst))
            except (ToolMissing, ToolFailed):
                self._lowerings[inst.name] = None
        return self._lowerings[inst.name]

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        """Return results as `Device.dot`. Raises AccprobeError if the operands are not the instruction's."""
        request.check(inst)
        count = len(request)
        d = np.empty(count, inst.d.dtype)
        row_bytes = (inst.k * (inst.a.storage_bits + inst.b.storage_bits) + inst.c.storage_bits) // 8
        few = tile.problems(inst)
        step = max(1, CHUNK_BYTES // row_bytes // few) * few
        with self.lend(f"failed to run {inst.name}"):
            function = self._function(inst)
            for start in range(0, count, step):
                rows = slice(start, start + step)
                self._run(inst, function, request[rows], d[rows], placement + start // few)
        return d

    def _run(self, inst: Instruction, function: Any, request: Request, d: Bits, placement: int) -> None:
        runtime, stream = self._cupy.cuda.runtime, self._cupy.cuda.get_current_stream()
        offsets = [0]
        for operand in request.columns:
            offsets.append(offsets[-1] + -(-operand.nbytes // _ALIGNMENT) * _ALIGNMENT)
        self._operands.reserve(offsets[-1])
        self._results.reserve(_ALIGNMENT + d.nbytes)
        for operand, offset in zip(request.columns, offsets, strict=False):
            staged = self._operands.host[offset : offset + operand.nbytes].view(operand.dtype)
            np.copyto(staged.reshape(operand.shape), operand)
        device, results, size = self._operands.device, self._results.device, _ALIGNMENT + d.nbytes
        runtime.memcpyAsync(device, self._operands.host_pointer, offsets[-1], runtime.memcpyHostToDevice, stream.ptr)
        runtime.memsetAsync(results, _POISON, size, stream.ptr)
        blocks = -(-tile.tiles(inst, len(d)) * inst.threads // probes.BLOCK_THREADS)
        grid = min(blocks, 16 * self._properties["multiProcessorCount"])
        pointers = map(np.uint64, [*(device + offset for offset in offsets[:-1]), results + _ALIGNMENT, results])
        first = np.uint32(placement % tile.placements(inst))
        function((grid,), (probes.BLOCK_THREADS,), (*pointers, np.uint64(len(d)), first))
        runtime.memcpyAsync(self._results.host_pointer, results, size, runtime.memcpyDeviceToHost, stream.ptr)
        stream.synchronize()
        stored = (int(self._results.host[:8].view(np.uint64)[0]) - int.from_bytes(bytes([_POISON]) * 8)) % 2**64
        if stored != len(d):
            raise DeviceError(f"{inst.name}: the probe stored {stored} of {len(d)} results on cuda:{self._index}")
        d[:] = self._results.host[_ALIGNMENT:size].view(d.dtype)

    def _function(self, inst: Instruction) -> Any:
        if inst.name not in self._functions:
            module = self._cupy.RawModule(path=str(self._cubin(inst).path))
            self._functions[inst.name] = module.get_function(probes.KERNEL_NAME)
        return self._functions[inst.name]

    def _cubin(self, inst: Instruction) -> cache.Cubin:
        if inst.name not in self._cubins:
            self._cubins[inst.name] = compiler.compile(inst, self.architecture)
        return self._cubins[inst.name]

    @contextmanager
    def lend(self, what: str) -> Iterator[Any]:
        """Lend the GPU as `OnGpu.lend`."""
        cuda = self._cupy.cuda
        try:
            with cuda.Device(self._index):
                yield self._cupy
        except AccprobeError:
            raise
        except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError, cuda.memory.OutOfMemoryError) as e:
            raise DeviceError(f"cuda:{self._index} {what}: {e}") from e


class _Staging:
    """A pinned host buffer and a device buffer of the same size, which grow on demand."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._size = 0
        self.reserve(1 << 20)

    def reserve(self, size: int) -> None:
        if size <= self._size:
            return
        self._size = 1 << (size - 1).bit_length()
        self._pinned = self._cupy.cuda.alloc_pinned_memory(self._size)
        self._memory = self._cupy.cuda.alloc(self._size)
        self.host = np.frombuffer(self._pinned, np.uint8, self._size)
        self.host_pointer: int = self._pinned.ptr
        self.device: int = self._memory.ptr


# Launches the probe of each named instruction once, for a profiler: python -m accprobe.devices.cuda cuda:0 NAME …
if __name__ == "__main__":
    from accprobe.devices import open_device

    launching = open_device(sys.argv[1])
    for named in map(parse, sys.argv[2:]):
        launching.dot(named, Request.zeros(named, 1))

"""The processor of this machine as a device: its instructions that multiply and accumulate narrow formats."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterable, Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from accprobe.build import machine_code, processor
from accprobe.build.lowerings import Lowering
from accprobe.errors import DeviceError
from accprobe.isa import tile
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, catalog
from accprobe.isa.processors import BY_MNEMONIC, Mnemonic
from accprobe.operands.protocol import Device, DeviceKind
from accprobe.operands.request import Request

CHUNK_TILES = 1 << 14  # Tiles of one call; more go in several, so that memory stays bounded.
_POISON = 0xA5  # Every byte of results before they are stored.

USUAL = 0x1F80  # The default MXCSR: round to nearest, keep subnormals, mask every exception.

# Other settings of it (Intel SDM volume 1, "MXCSR Control and Status Register").
SETTINGS = {"rounding down": 0x3F80, "rounding up": 0x5F80, "rounding toward zero": 0x7F80, "DAZ": 0x1FC0, "FTZ": 0x9F80}

_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18  # Linux, Documentation/arch/x86/xstate.rst.


class CpuDevice(Device):
    """The processor that runs this process. Raises DeviceError if it has none of the instructions."""

    kind: DeviceKind = "cpu"
    pure = False

    def __init__(self) -> None:
        if reason := processor.explain_missing_instructions():
            raise DeviceError(f"cpu cannot be measured: {reason}; --device sim:NAME shows published models of GPUs")
        self.name, self.architecture = processor.name(), processor.architecture()
        self._refused = _amx_refused() if "amx_tile" in processor.flags() else ""

    def describe(self) -> dict[str, object]:
        """Return cpu_family, model and stepping, which identify generations."""
        return dict(processor.facts())

    def environment(self) -> dict[str, str]:
        return {"python": platform.python_version(), "llvm": machine_code.version()}

    def instructions(self) -> Sequence[Instruction]:
        return catalog(self.architecture)

    def explain_unavailable(self, inst: Instruction) -> str | None:
        mnemonic = _mnemonic(inst)
        if lacking := processor.lacking(mnemonic):
            return f"this processor has no {lacking[-1]}"
        if mnemonic.tiles and self._refused:
            return self._refused
        return machine_code.explain_unsupported(mnemonic)

    def prepare(self, insts: Iterable[Instruction]) -> None:
        for inst in insts:
            machine_code.load_loop(_mnemonic(inst))

    def lowering(self, inst: Instruction) -> Lowering:
        """Return the opcode in the machine code that `dot` runs; the assembler has no other for a mnemonic."""
        mnemonic = _mnemonic(inst)
        code = machine_code.load_loop(mnemonic).code
        opcode = mnemonic.mnemonic
        return Lowering((opcode,), ((opcode, 1),), "machine code", sha256(code).hexdigest())

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        """Return results as `Device.dot`. Raises AccprobeError if the operands are not the instruction's."""
        return self._dot(inst, request, placement, USUAL)

    def settings(self, inst: Instruction) -> tuple[str, ...]:
        return tuple(SETTINGS)

    def dot_under(self, setting: str, inst: Instruction, request: Request) -> Bits:
        return self._dot(inst, request, 0, SETTINGS[setting])

    def _dot(self, inst: Instruction, request: Request, placement: int, control: int) -> Bits:
        request.check(inst)
        if reason := self.explain_unavailable(inst):
            raise DeviceError(f"{inst.name} cannot be run: {reason}")
        loop, few = machine_code.load_loop(_mnemonic(inst)), tile.problems(inst)
        d, step = np.empty(len(request), inst.d.dtype), CHUNK_TILES * few
        words, config = np.zeros(machine_code.CONTROL_WORDS, np.uint64), _tile_configuration()
        for start in range(0, len(request), step):
            part = slice(start, min(start + step, len(request)))
            laid = Tiles(inst, request[part], placement + start // few)
            words[0] = control
            arrays = (laid.a, laid.b, laid.c, laid.d)
            loop.run(*(x.ctypes.data for x in arrays), len(laid.d), words.ctypes.data, config.ctypes.data, 64)
            d[part] = laid.results()
        return d


class Tiles:
    """Dot products as the tiles of an instruction, one after another; unused elements of A, B and C are zero.

    a: [tiles, M, K], or [tiles, M * N, K] if lanes have operands of their own. b: the same with N; for AMX [tiles, K / P, N,
    P], where P elements have 4 bytes. c, d: [tiles, M, N].
    """

    def __init__(self, inst: Instruction, request: Request, placement: int) -> None:
        count = len(request)
        tiles, few = tile.tiles(inst, count), tile.problems(inst)
        of, (rows, columns) = np.arange(count) // few, tile.cells_of(inst, count, placement)
        self.c = np.zeros((tiles, inst.m, inst.n), inst.c.dtype)
        self.c[of, rows, columns] = request.c
        self.d = np.full((tiles, inst.m, inst.n), _POISON * 0x01010101, inst.d.dtype)
        self._elements = of, rows, columns
        lane = rows * inst.n + columns
        lanes = inst.family.lanes
        self.a = _filled(tiles, inst.m * inst.n if lanes else inst.m, request.a, of, lane if lanes else rows)
        b = _filled(tiles, inst.m * inst.n if lanes else inst.n, request.b, of, lane if lanes else columns)
        packed = 4 // inst.b.dtype.itemsize
        swizzled = b.reshape(tiles, inst.n, -1, packed).swapaxes(1, 2) if _mnemonic(inst).tiles else b
        self.b = np.ascontiguousarray(swizzled)

    def results(self) -> Bits:
        """Return the results of the dot products, [N]."""
        return self.d[self._elements]


def _filled(tiles: int, lines: int, operand: Bits, of: NDArray[np.intp], line: NDArray[np.intp]) -> Bits:
    whole = np.zeros((tiles, lines, operand.shape[1]), operand.dtype)
    whole[of, line] = operand
    return whole


def _mnemonic(inst: Instruction) -> Mnemonic:
    if inst.mnemonic is None:
        raise DeviceError(f"{inst.name} is not an instruction of a processor")
    return BY_MNEMONIC[inst.mnemonic]


def _tile_configuration() -> NDArray[np.uint8]:
    """Return AMX's configuration: three tiles of 16 rows of 64 bytes (Intel SDM, "LDTILECFG")."""
    config = np.zeros(64, np.uint8)
    config[0] = 1
    config[16:22].view(np.uint16)[:] = 64
    config[48:51] = 16
    return config


def _amx_refused() -> str:
    """Request the tile registers from Linux for this process; return why it refuses them, or ""."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0:
        return ""
    return f"Linux refuses this process the tile registers (arch_prctl, error {ctypes.get_errno()})"

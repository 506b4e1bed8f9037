"""NVIDIA architectures with matrix units, sm_70 … sm_121: generation, products, compile target; and those of processors.

No other module is keyed on a product's name.

Sources: PTX ISA, "PTX Module Directives: .target"; CUDA C++ Programming Guide, "Compute Capabilities"; NVIDIA's list of
CUDA GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from accprobe.errors import UnknownName, nearest


@dataclass(frozen=True)
class Architecture:
    """One architecture.

    name: "sm_90"; generation: "Hopper"; products: marketing names, not all of them.
    target: the compile target that has every instruction, with the architecture-specific suffix where there is one ("sm_90a").
    compute_capability: (major, minor), as the driver reports it.
    shared_bytes: shared memory that a block of threads may have.
    last_cuda: the last major version of CUDA that compiles for it; None if the newest does.
    """

    name: str
    generation: str
    products: tuple[str, ...]
    target: str
    compute_capability: tuple[int, int]
    shared_bytes: int
    last_cuda: int | None

    def __str__(self) -> str:
        return self.name

    @property
    def caveat(self) -> str:
        """Return which CUDA versions do not compile for it; "" if the newest does."""
        last = self.last_cuda
        return f"CUDA {last + 1} no longer compiles for {self.name}, CUDA {last} does" if last else ""

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the compile targets with different instructions: ("sm_90", "sm_90a")."""
        return (self.name,) if self.target == self.name else (self.name, self.target)


def _architecture(name: str, generation: str, *products: str) -> Architecture:
    number = int(name.removeprefix("sm_"))
    target = name + "a" * (number >= 90)
    return Architecture(
        name, generation, products, target, divmod(number, 10), _SHARED_KIB[number] << 10, _LAST_CUDA.get(number)
    )


_SHARED_KIB = {70: 96, 72: 96, 75: 64, 80: 163, 87: 163, **dict.fromkeys((86, 88, 89, 120, 121), 99)}
_SHARED_KIB |= dict.fromkeys((90, 100, 101, 103, 110), 227)
"""Maximum of a thread block (CUDA C++ Programming Guide, "Compute Capabilities": technical specifications)."""


# CUDA Toolkit 13.0 Release Notes, "Deprecated Architectures"; sm_101 has been sm_110 since.
_LAST_CUDA = dict.fromkeys((70, 72, 101), 12)


ARCHITECTURES: tuple[Architecture, ...] = (
    _architecture("sm_70", "Volta", "V100"),
    _architecture("sm_72", "Volta", "Jetson AGX Xavier"),
    _architecture("sm_75", "Turing", "T4", "RTX 2080"),
    _architecture("sm_80", "Ampere", "A100", "A30"),
    _architecture("sm_86", "Ampere", "A2", "A10", "A40", "RTX 3090"),
    _architecture("sm_87", "Ampere", "Jetson AGX Orin"),
    _architecture("sm_88", "Ampere"),
    _architecture("sm_89", "Ada", "L4", "L40S", "RTX 4090", "RTX 1000 Ada"),
    _architecture("sm_90", "Hopper", "H100", "H200", "GH200"),
    _architecture("sm_100", "Blackwell", "B200", "GB200"),
    _architecture("sm_101", "Blackwell", "Jetson Thor (before CUDA 13)"),
    _architecture("sm_103", "Blackwell", "B300", "GB300"),
    _architecture("sm_110", "Blackwell", "Jetson Thor"),
    _architecture("sm_120", "Blackwell", "RTX 5070", "RTX 5090", "RTX PRO 6000 Blackwell"),
    _architecture("sm_121", "Blackwell", "DGX Spark (GB10)"),
)

# Processor architectures, as `uname -m` prints them; the flags of a processor list its instructions.
PROCESSORS = ("x86_64", "aarch64")


@cache
def _by_target() -> dict[str, Architecture]:
    return {target: architecture for architecture in ARCHITECTURES for target in architecture.targets}


def targets() -> tuple[str, ...]:
    """Return every compile target, in order: "sm_70", …, "sm_90", "sm_90a", …"""
    return tuple(_by_target())


def get(name: str) -> Architecture:
    """Return the architecture of that name, with or without its suffix: "sm_90", "sm_90a". Raises UnknownName."""
    if name not in _by_target():
        raise unknown(name, _by_target())
    return _by_target()[name]


def unknown(name: str, known: Iterable[str]) -> UnknownName:
    """Return the error for an unknown architecture, with that of a product of this name or the nearest name."""
    owner = next((each for each in ARCHITECTURES if name.lower() in map(str.lower, each.products)), None)
    return UnknownName(f"unknown architecture '{name}'; {f'it is of {owner.target}' if owner else nearest(name, known)}")


def from_compute_capability(major: int, minor: int) -> Architecture:
    """Return the architecture of a device with that compute capability. Raises UnknownName."""
    for architecture in ARCHITECTURES:
        if architecture.compute_capability == (major, minor):
            return architecture
    known = f"{ARCHITECTURES[0].name} to {ARCHITECTURES[-1].name}"
    raise UnknownName(f"no known architecture has compute capability {major}.{minor}; accprobe knows {known}")

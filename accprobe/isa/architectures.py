"""Architectures of processors, and of NVIDIA GPUs with matrix units (sm_70 … sm_121): generation, products, compile target.

Only `accprobe.model.published` is keyed on names of products too.

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

    name: "sm_90"; generation: "Hopper"; products: marketing names, not all of them. shared_kib: shared memory that a block of
    threads may have.
    """

    name: str
    generation: str
    products: tuple[str, ...]
    shared_kib: int

    def __str__(self) -> str:
        return self.name

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Return (major, minor), as the driver reports it."""
        return divmod(int(self.name.removeprefix("sm_")), 10)

    @property
    def shared_bytes(self) -> int:
        return self.shared_kib << 10

    @property
    def target(self) -> str:
        """Return the compile target that has every instruction: with the suffix where there is one, "sm_90a"."""
        return self.name + "a" * (self.compute_capability >= (9, 0))

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the compile targets with different instructions: ("sm_90", "sm_90a")."""
        return (self.name,) if self.target == self.name else (self.name, self.target)


# Shared memory: CUDA C++ Programming Guide, "Compute Capabilities", technical specifications. CUDA 13 calls sm_101
# sm_110.
ARCHITECTURES = (
    Architecture("sm_70", "Volta", ("V100",), 96),
    Architecture("sm_72", "Volta", ("Jetson AGX Xavier",), 96),
    Architecture("sm_75", "Turing", ("T4", "RTX 2080"), 64),
    Architecture("sm_80", "Ampere", ("A100", "A30"), 163),
    Architecture("sm_86", "Ampere", ("A2", "A10", "A40", "RTX 3090"), 99),
    Architecture("sm_87", "Ampere", ("Jetson AGX Orin",), 163),
    Architecture("sm_88", "Ampere", (), 99),
    Architecture("sm_89", "Ada", ("L4", "L40S", "RTX 4090", "RTX 1000 Ada"), 99),
    Architecture("sm_90", "Hopper", ("H100", "H200", "GH200"), 227),
    Architecture("sm_100", "Blackwell", ("B200", "GB200"), 227),
    Architecture("sm_101", "Blackwell", ("Jetson Thor (before CUDA 13)",), 227),
    Architecture("sm_103", "Blackwell", ("B300", "GB300"), 227),
    Architecture("sm_110", "Blackwell", ("Jetson Thor",), 227),
    Architecture("sm_120", "Blackwell", ("RTX 5070", "RTX 5090", "RTX PRO 6000 Blackwell"), 99),
    Architecture("sm_121", "Blackwell", ("DGX Spark (GB10)",), 99),
)

# Processor architectures, as `uname -m` prints them; the flags of a processor list its instructions.
PROCESSORS = ("x86_64",)


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
    """Return the error for an unknown architecture, with the architecture of a product of this name, or the nearest name."""
    owner = next((each for each in ARCHITECTURES if name.lower() in map(str.lower, each.products)), None)
    return UnknownName(f"unknown architecture '{name}'; {f'it is of {owner.target}' if owner else nearest(name, known)}")


def from_compute_capability(major: int, minor: int) -> Architecture:
    """Return the architecture of a device with that compute capability. Raises UnknownName."""
    for architecture in ARCHITECTURES:
        if architecture.compute_capability == (major, minor):
            return architecture
    known = f"{ARCHITECTURES[0].name} to {ARCHITECTURES[-1].name}"
    raise UnknownName(f"no known architecture has compute capability {major}.{minor}; accprobe knows {known}")

"""Probes: the CUDA C++ that computes dot products with one instruction.

The device code is in the folder `accprobe/probes`; this module writes the parameters above it: register counts, storage types
and the inline assembly of the instruction.
"""

from __future__ import annotations

import re
from functools import cache

from accprobe.build.checkout import data_folder
from accprobe.errors import AccprobeError
from accprobe.isa.families import Probe, registers
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.isa.tile import placements, problems

KERNEL_NAME = "probe"
BLOCK_THREADS = 128


NO_PROBE = "no probe"


def find_probe(inst: Instruction) -> Probe | None:
    """Return the probe of the instruction's family, or None if it has no kernel for `inst`."""
    probe = inst.family.probe
    return probe if probe and probe.takes(inst) else None


def multiplies_matrices(inst: Instruction) -> bool:
    """Return whether `inst` also has a kernel for matrix products."""
    probe = find_probe(inst)
    return probe is not None and bool(probe.product_tiles) and not inst.scale


def probe_of(inst: Instruction) -> Probe:
    """Return as `find_probe`, but raise AccprobeError if there is none."""
    if (probe := find_probe(inst)) is None:
        raise AccprobeError(f"{inst.name} cannot be compiled: {NO_PROBE}")
    return probe


def source(inst: Instruction, products: bool = False) -> str:
    """Return the complete CUDA C++ of the probe of `inst`. Raises AccprobeError if there is none.

    products: kernel `product`, a matrix product with one dot product of the instruction in each element, instead of `probe`,
    independent dot products.
    """
    probe = probe_of(inst)
    if not products:
        return parameters(inst) + device_code(probe.file)
    if not multiplies_matrices(inst):
        raise AccprobeError(f"{inst.name} has no probe of matrix products")
    return parameters(inst) + f"#define TILES {probe.product_tiles}\n" + device_code(f"product_{probe.file}")


@cache
def device_code(name: str) -> str:
    """Return a file of the device code with its includes inserted."""
    text = (data_folder("probes") / name).read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"\n', lambda found: device_code(found[1]), text, flags=re.MULTILINE)


def parameters(inst: Instruction) -> str:
    """Return the text before all device code of `inst`. Raises as `source`."""
    probe = probe_of(inst)
    storage = {8: "unsigned char", 16: "unsigned short", 32: "unsigned int", 64: "unsigned long long"}
    word = inst.register_bits
    held = registers(inst)
    values = {"M": inst.m, "N": inst.n, "PROBLEMS": problems(inst), "PLACEMENTS": placements(inst)}
    values |= {"K_WORDS": inst.k * inst.held_bits // word, "A_WORDS": inst.stored.k * inst.held_bits // word}
    values |= {"PACKED": inst.a.storage_bits // inst.held_bits, "QUAD_PAIRS": int(inst.quad_pairs)}
    if inst.sparsity is not None:
        values |= {"GROUPS": inst.k // inst.sparsity.group, "METADATA_LANES": inst.sparsity.lanes(inst.k)}
        values |= {"METADATA_ROWS": inst.sparsity.rows}
    values |= {"A_SHIFT": _shift(inst, inst.a), "B_SHIFT": _shift(inst, inst.b)}
    if inst.scale_block is not None:
        values["SCALES"] = inst.k // inst.scale_block
    values |= {f"{operand.upper()}_REGISTERS": count for operand, count in held.items()} | dict(probe.constants(inst))
    values |= {"C_PACKED": word // inst.c.storage_bits, "D_PACKED": word // inst.d.storage_bits}
    return "".join(
        [
            f"// {inst.name}\n",
            f"using Word = {storage[word]};\n",
            f"using CElement = {storage[inst.c.storage_bits]};\n",
            f"using DElement = {storage[inst.d.storage_bits]};\n",
            *(f"#define {name} {value}\n" for name, value in values.items()),
            f"#define MULTIPLY({probe.multiply(inst, held)}\n",
        ]
    )


FP4_IN_A_BYTE = 2
"""PTX ISA, "Alternate floating point data formats": e2m1 of `.kind::f8f6f4` lies in a byte, shifted by so many bits."""


def _shift(inst: Instruction, fmt: Format) -> int:
    return FP4_IN_A_BYTE if fmt.is_float and fmt.bits == 4 < inst.held_bits else 0

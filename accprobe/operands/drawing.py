"""Operands drawn on the GPU: the kinds of `kinds`. Each element of a matrix product is a dot product."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from accprobe.build.probes import device_code
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.kinds import exponent_ranges

# `c_edge` of floating-point operands: C about its largest number, or its smallest normal one.
C_NEAR_LARGEST, C_NEAR_SMALLEST_NORMAL = 1, 2


class Way(IntEnum):
    """`Way` of operands.cuh."""

    UNIFORM = 0
    NORMAL = 1
    WIDE = 2
    CENTRED = 3
    ENDS = 4


class Recipe(NamedTuple):
    """`Recipe` of operands.cuh, field for field."""

    way: Way
    a_low: int = 0
    a_high: int = 0
    b_low: int = 0
    b_high: int = 0
    slots: int = 0
    spread: int = 0
    c_spread: int = 0
    zeros: int = 0
    specials: int = 0
    c_zeros: int = 0
    c_specials: int = 0
    c_small: int = 0
    cancelling: int = 0
    c_edge: int = 0
    one_sign: int = 0
    fours: int = 0


def recipes(inst: Instruction) -> dict[str, Recipe]:
    """Return the recipe of each kind, in the order of `accprobe.operands.kinds.kinds`."""
    if inst.is_integer:
        uniform = Recipe(Way.UNIFORM)
        extreme = Recipe(Way.ENDS, c_edge=1)
        kinds = {"uniform": uniform, "extreme": extreme, "C near overflow": uniform._replace(c_edge=1)}
        return kinds | {"repeated fours": extreme._replace(fours=1, c_zeros=128)}
    near = {kind: _around(inst, *limits) for kind, limits in exponent_ranges(inst).items()}
    few_products = max(0, 256 - 768 // inst.k)
    tiny = near["tiny"]  # with so many slots that some operands are subnormal, beside others that are not
    slots = max(tiny.a_low - inst.a.min_exponent, tiny.b_low - inst.b.min_exponent) + 24
    return {
        "uniform": Recipe(Way.UNIFORM),
        "normal": Recipe(Way.NORMAL),
        "wide": Recipe(Way.WIDE),
        "clustered": near["clustered"],
        "near one": _around(inst, 0, 0, 1)._replace(slots=0, c_spread=1),
        "spread exponents": near["spread exponents"],
        "cancelling": near["cancelling"]._replace(cancelling=1, c_zeros=128),
        "tiny": tiny._replace(slots=slots, c_zeros=64, c_small=128),
        "huge": near["huge"],
        "sparse": Recipe(Way.WIDE, zeros=205, c_zeros=205),
        "special": Recipe(Way.NORMAL, specials=max(1, 256 // inst.k), c_specials=77),
        "same sign": near["same sign"]._replace(slots=0, c_spread=0, one_sign=1),  # C has the products' sign and exponent
        "C near largest": near["C near largest"]._replace(c_edge=C_NEAR_LARGEST, zeros=few_products),
        "C near smallest normal": near["C near smallest normal"]._replace(c_edge=C_NEAR_SMALLEST_NORMAL, zeros=few_products),
    }


def _around(inst: Instruction, low: int, high: int, spread: int) -> Recipe:
    """Return a recipe of products with exponents within `spread` of the sum of their lines' exponents, from `low` to `high`."""
    a, b = inst.a, inst.b
    a_low, a_high = (_within(a, exponent // 2) for exponent in (low, high))
    b_low, b_high = _within(b, low - a_low), _within(b, high - a_high)
    return Recipe(Way.CENTRED, a_low, a_high, b_low, max(b_low, b_high), 3, (spread + 1) // 2, 2 * spread)


def _within(fmt: Format, exponent: int) -> int:
    return min(max(exponent, fmt.min_exponent), fmt.max_exponent)


def source(inst: Instruction) -> str:
    """Return the complete CUDA C++ that draws operands of `inst`."""
    storage = {8: "unsigned char", 16: "unsigned short", 32: "unsigned int", 64: "unsigned long long"}
    types = "".join(
        f"using {name} = {_format(fmt)};\nusing {name}Element = {storage[fmt.storage_bits]};\n"
        for name, fmt in (("A", inst.a), ("B", inst.b), ("C", inst.c))
    )
    return f"{device_code('operands.cuh')}\nconstexpr u32 K = {inst.k};\n{types}\n{device_code('operands.cu')}"


def _format(fmt: Format) -> str:
    if fmt.is_integer:
        return f"DrawnInteger<{fmt.bits}, {'true' if fmt.signed else 'false'}>"
    sizes = (fmt.exponent_bits, fmt.mantissa_bits, fmt.bias, fmt.ignored_low_bits, fmt.storage_bits)
    flags = (fmt.specials == "ieee", fmt.specials != "none")
    return f"Drawn<{', '.join(map(str, sizes))}, {fmt.largest:#x}ull, {', '.join(str(flag).lower() for flag in flags)}>"

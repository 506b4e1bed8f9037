"""Operands drawn on the GPU: the kinds of `kinds`, for matrix products each of whose elements is a dot product."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from enum import IntEnum

from accprobe.build.probes import device_code
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction

PAIRS_KIND = "pairs"
CODES = 256  # Codes of a format of 8 bits.


# `c_edge` of floating-point operands: C about its largest number, or its smallest normal one.
C_NEAR_LARGEST, C_NEAR_SMALLEST_NORMAL = 1, 2


class Way(IntEnum):
    """`Way` of operands.cuh."""

    UNIFORM = 0
    NORMAL = 1
    WIDE = 2
    CENTRED = 3
    ENDS = 4
    PAIRED = 5


@dataclass(frozen=True)
class Recipe:
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

    def words(self) -> tuple[int, ...]:
        return tuple(int(value) for value in astuple(self))


def recipes(inst: Instruction) -> dict[str, Recipe]:
    """By kind, in the order of `accprobe.operands.kinds.kinds`."""
    if inst.is_integer:
        uniform = Recipe(Way.UNIFORM)
        extreme = Recipe(Way.ENDS, c_edge=1)
        kinds = {"uniform": uniform, "extreme": extreme, "C near overflow": replace(uniform, c_edge=1)}
        return kinds | {"repeated fours": replace(extreme, fours=1, c_zeros=128)}
    a, b, c, d = inst.a, inst.b, inst.c, inst.d
    smallest, largest = a.min_exponent + b.min_exponent, a.max_exponent + b.max_exponent
    lowest = max(smallest - 4, d.min_exponent - d.mantissa_bits - 14)
    top = min(d.max_exponent, largest)
    return {
        "uniform": Recipe(Way.UNIFORM),
        "normal": Recipe(Way.NORMAL),
        "wide": Recipe(Way.WIDE),
        "clustered": _around(inst, max(smallest, d.min_exponent - d.mantissa_bits - 12), top, 6),
        "near one": replace(_around(inst, 0, 0, 1), slots=0, c_spread=1),
        "spread exponents": _around(inst, -6, 6, 15),
        "cancelling": replace(_around(inst, -4, 4, 8), cancelling=1, c_zeros=128),
        "tiny": _with_subnormals(inst, replace(_around(inst, lowest, lowest + 36, 5), c_zeros=64, c_small=128)),
        "huge": _around(inst, top - 8, top + 1, 4),
        "sparse": Recipe(Way.WIDE, zeros=205, c_zeros=205),
        "special": Recipe(Way.NORMAL, specials=max(1, 256 // inst.k), c_specials=77),
        "same sign": _same_sign(inst, max(smallest, c.min_exponent), min(largest, c.max_exponent)),
        "C near largest": _c_beside_small_products(inst, c.max_exponent - c.mantissa_bits - 1, C_NEAR_LARGEST),
        "C near smallest normal": _c_beside_small_products(inst, c.min_exponent - c.mantissa_bits - 1, C_NEAR_SMALLEST_NORMAL),
    }


def pairs(k: int) -> Recipe:
    """Draw all pairs of codes of 8 bits, at place k."""
    return Recipe(Way.PAIRED, slots=k)


def _around(inst: Instruction, low: int, high: int, spread: int) -> Recipe:
    """Draw products whose exponents lie within `spread` of those of their two lines, which are from `low` to `high`
    together.
    """
    a, b = inst.a, inst.b
    a_low, a_high = (_within(a, exponent // 2) for exponent in (low, high))
    b_low, b_high = _within(b, low - a_low), _within(b, high - a_high)
    return Recipe(Way.CENTRED, a_low, a_high, b_low, max(b_low, b_high), 3, (spread + 1) // 2, 2 * spread)


def _same_sign(inst: Instruction, low: int, high: int) -> Recipe:
    """Draw one exponent for all products of two lines, and one sign; C has both, or is twice as large."""
    return replace(_around(inst, low, high, 0), slots=0, c_spread=0, one_sign=1)


def _c_beside_small_products(inst: Instruction, exponent: int, c_edge: int) -> Recipe:
    """Draw C about an end of its range, and three products or so of about that exponent."""
    lowest, highest = inst.a.min_exponent + inst.b.min_exponent, inst.a.max_exponent + inst.b.max_exponent
    within = min(max(exponent, lowest), highest)
    return replace(_around(inst, within, within, 2), c_edge=c_edge, zeros=max(0, 256 - 768 // inst.k))


def _with_subnormals(inst: Instruction, recipe: Recipe) -> Recipe:
    """The slots go so far that some operands are subnormal, beside others that are not."""
    return replace(recipe, slots=max(recipe.a_low - inst.a.min_exponent, recipe.b_low - inst.b.min_exponent) + 24)


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

"""Events of operands, whatever the model is: classes of A, B and C beside one another, and classes of block scales."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import leading, tabulated
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request
from accprobe.verify.coverage.events import EXTREMES, SIGNS, CodeArrays, EventNames, lead_of

OPERAND_CLASSES = ("zero", "subnormal", "normal", "largest", "infinity", "NaN")
SCALE_CLASSES = ("zero", "subnormal", "smallest normal", "normal", "largest", "NaN")
LARGEST, INFINITY, NAN = (OPERAND_CLASSES.index(word) for word in ("largest", "infinity", "NaN"))


def _first_of_classes(fmt: Format) -> list[int]:
    """Return the first magnitude of each class, without ignored bits; of one that the format lacks, that of the next class."""
    normal, largest = 1 << fmt.mantissa_bits if fmt.mantissa_bits else 0, fmt.largest >> fmt.ignored_low_bits
    if fmt.kind == "scale":
        return [0, min(1, normal), normal, normal + 1, largest, largest + 1]
    return [0, 1, normal, largest, largest + 1, largest + 1 + (fmt.infinity is not None)]


def codes_of(fmt: Format) -> dict[str, list[int]]:
    """Return positive bit patterns of each class of operands or scales: the first, the last and one between."""
    first = _first_of_classes(fmt)
    ends = [*first[1:], first[-1] if fmt.specials == "none" else 1 << fmt.exponent_bits + fmt.mantissa_bits]
    classes = zip(SCALE_CLASSES if fmt.kind == "scale" else OPERAND_CLASSES, first, ends, strict=True)
    return {
        name: [x << fmt.ignored_low_bits for x in sorted({low, (low + end) // 2, end - 1})] if low < end else []
        for name, low, end in classes
    }


def magnitudes(fmt: Format, patterns: Bits) -> Bits:
    """Return the patterns without their signs and ignored bits."""
    sign = fmt.sign_bit or 1 << fmt.bits
    return patterns & fmt.dtype.type((sign - 1) >> fmt.ignored_low_bits << fmt.ignored_low_bits)


@tabulated
def classes_of(patterns: Bits, fmt: Format) -> NDArray[np.uint8]:
    """Return positions in the classes of operands or of scales."""
    first = np.array(_first_of_classes(fmt), np.uint64) << np.uint64(fmt.ignored_low_bits)
    return (np.searchsorted(first, magnitudes(fmt, patterns), side="right") - 1).astype(np.uint8)


def operand_families(inst: Instruction) -> dict[str, EventNames]:
    """Return all events by family; a class that a format lacks has none."""
    known = {letter: codes_of(fmt) for letter, fmt in (("A", inst.a), ("B", inst.b), ("C", inst.c))}
    if inst.scale is not None:
        known["scale"] = codes_of(inst.scale)

    def event(text: str, *classes: tuple[str, str]) -> str:
        return f"operands: {text}" * all(bool(known[letter][kind]) for letter, kind in classes)

    found: dict[str, EventNames] = {
        "classes": tuple(
            event(f"{a} × {b}, C {c}", ("A", a), ("B", b), ("C", c)) for c, a, b in product(OPERAND_CLASSES, repeat=3)
        ),
        "NaN": tuple(event(f"a NaN of {x}, {sign}", (x, "NaN")) for x in "ABC" for sign in SIGNS),
        "beside infinity": tuple(
            event(f"a subnormal of {x} beside an infinity of {y}", (y, "infinity"), (x, "subnormal")) * (x + y != "CC")
            for x, y in product("ABC", repeat=2)
        ),
        "extremes": tuple(
            event(f"every product the largest, C of that size, {sign}") for sign in EXTREMES[: 3 if inst.k > 1 else 2]
        ),
    }
    if inst.scale_block is not None:
        blocks = [f"{start}-{start + inst.scale_block - 1}" for start in range(0, inst.k, inst.scale_block)]
        found["scales"] = tuple(
            event(f"scales {x} × {y} of {block}", ("scale", x), ("scale", y))
            for block, x, y in product(blocks, SCALE_CLASSES, SCALE_CLASSES)
        )
        for letter in "ABC":
            found[f"scale beside {letter}"] = tuple(
                event(f"the scale of {own} {word}, {letter} {kind}", ("scale", word), (letter, kind))
                for own, word, kind in product("AB", SCALE_CLASSES, OPERAND_CLASSES)
            )
    return found


def operand_codes(inst: Instruction, request: Request) -> CodeArrays:
    patterns = ((inst.a, request.a.T), (inst.b, request.b.T), (inst.c, request.c[None]))
    a, b, c = every = [classes_of(x, fmt) for fmt, x in patterns]
    kinds = len(OPERAND_CLASSES)
    yield "classes", np.ones(a.shape, bool), ((c.astype(np.int16) * kinds + a) * kinds + b)
    subnormal, infinite = ([(x == kind).any(axis=0) for x in every] for kind in (OPERAND_CLASSES.index("subnormal"), INFINITY))
    for i, ((fmt, x), own) in enumerate(zip(patterns, every, strict=True)):
        yield "NaN", own == NAN, 2 * i + (x & fmt.dtype.type(fmt.sign_bit) != 0)
        for j in range(3):
            yield "beside infinity", subnormal[i] & infinite[j], 3 * i + j
    all_largest = (a == LARGEST).all(axis=0) & (b == LARGEST).all(axis=0)
    if all_largest.any():
        minus, of_c = (np.signbit(fmt.values(x)) for fmt, x in patterns[:2]), inst.c.values(request.c)
        negative = np.logical_xor(*minus)
        size = min(lead_of(Fraction(inst.a.largest_value) * Fraction(inst.b.largest_value)), inst.c.max_exponent)
        of_size = all_largest & (leading(np.where(np.isfinite(of_c), of_c, 0.0)) == size)
        yield "extremes", of_size & (negative == np.signbit(of_c)).all(axis=0), negative[0].astype(np.int64)
        yield "extremes", of_size & negative.any(axis=0) & ~negative.all(axis=0), 2
    if inst.scale is not None and inst.scale_block is not None:
        yield from _codes_of_scales(inst, inst.scale, inst.scale_block, request, every)


def _codes_of_scales(
    inst: Instruction, fmt: Format, size: int, request: Request, classes: list[NDArray[np.uint8]]
) -> CodeArrays:
    """Return classes of the two scales of a block, which count where that block alone has products that are not zero."""
    kinds, operands, (a, b, c) = len(SCALE_CLASSES), len(OPERAND_CLASSES), classes
    scales = [classes_of(x.T, fmt) for x in (request.scales_a, request.scales_b) if x is not None]
    idle = ((a == 0) & (b < INFINITY) | (b == 0) & (a < INFINITY)).reshape(inst.k // size, size, -1).all(axis=1)
    quiet = idle & (scales[0] < kinds - 1) & (scales[1] < kinds - 1)
    for block, (x, y) in enumerate(zip(*scales, strict=True)):
        alone = np.delete(quiet, block, axis=0).all(axis=0) & ~idle[block]
        without_c = alone & (c[0] == 0)
        yield "scales", without_c, (block * kinds + x.astype(int)) * kinds + y
        ks = slice(block * size, (block + 1) * size)
        for own, of_scale in enumerate((x, y)):
            start = (own * kinds + of_scale.astype(int)) * operands
            for letter, other in (("A", a[ks]), ("B", b[ks])):
                yield f"scale beside {letter}", np.broadcast_to(without_c, other.shape), start + other
            yield "scale beside C", alone, start + c[0]

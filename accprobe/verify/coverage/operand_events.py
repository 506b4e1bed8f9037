"""Events of operands, whatever the model is.

They are classes of A, B and C beside one another, and classes of block scales. For a sparse A they are also each metadata code
at each group, and each class of numbers at each position that is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import leading
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.kinds import draw
from accprobe.operands.request import Request
from accprobe.operands.sparse import LAYOUTS, layouts, own_layouts
from accprobe.verify.coverage.events import EXTREMES, SIGNS, CodeArrays, Event, EventFamily
from accprobe.verify.coverage.ranges import lead_of
from accprobe.verify.outcome import Events

OPERAND_CLASSES = ("zero", "subnormal", "normal", "largest", "infinity", "NaN")
SCALE_CLASSES = ("zero", "subnormal", "smallest normal", "normal", "largest", "NaN")
SUBNORMAL, LARGEST, INFINITY, NAN = (OPERAND_CLASSES.index(word) for word in ("subnormal", "largest", "infinity", "NaN"))


def codes_of(fmt: Format) -> dict[str, list[int]]:
    """Return positive bit patterns of each class of operands, none where the format has none."""
    low, m = fmt.ignored_low_bits, fmt.mantissa_bits
    one = 1 << low
    infinity = [] if fmt.infinity is None else [fmt.infinity]
    nans = [top + x for top in infinity for x in (one, one << (m - 1), (one << m) - one)]
    return {
        "zero": [0],
        "subnormal": [one, (one << m) - one],
        "normal": [one << m, fmt.bias << (m + low), fmt.largest - one],
        "largest": [fmt.largest],
        "infinity": infinity,
        "NaN": [fmt.largest + one] if fmt.specials == "nan only" else nans,
    }


def scale_codes(fmt: Format) -> dict[str, list[int]]:
    """Return bit patterns of scales of each class, none where the format has none."""
    smallest = 1 << fmt.mantissa_bits if fmt.mantissa_bits else 0
    one = fmt.encode(False, 1, 0)
    return {
        "zero": [0] if fmt.mantissa_bits else [],
        "subnormal": [1, smallest - 1] if fmt.mantissa_bits else [],
        "smallest normal": [smallest],
        "normal": [one, one + 1, fmt.largest - 1],
        "largest": [fmt.largest],
        "NaN": [fmt.largest + 1],
    }


def magnitudes(fmt: Format, patterns: Bits) -> Bits:
    """Return the patterns without their signs and ignored bits."""
    return patterns & fmt.dtype.type((fmt.sign_bit - 1) >> fmt.ignored_low_bits << fmt.ignored_low_bits)


def classes_of(fmt: Format, patterns: Bits) -> NDArray[np.uint8]:
    """Return positions in OPERAND_CLASSES."""
    if fmt.storage_bits <= 16:
        return _class_table(fmt)[patterns]
    return _classified(fmt, patterns)


@cache
def _class_table(fmt: Format) -> NDArray[np.uint8]:
    return _classified(fmt, np.arange(1 << fmt.storage_bits, dtype=fmt.dtype))


def _classified(fmt: Format, patterns: Bits) -> NDArray[np.uint8]:
    infinity = fmt.largest if fmt.infinity is None else fmt.infinity
    normal = 1 << fmt.mantissa_bits + fmt.ignored_low_bits
    ends = np.array([1, normal, fmt.largest, fmt.largest + 1, infinity + 1], np.uint64)
    return np.searchsorted(ends, magnitudes(fmt, patterns), side="right").astype(np.uint8)


def _scale_classes(fmt: Format, patterns: Bits) -> NDArray[np.int64]:
    """Return positions in SCALE_CLASSES."""
    code = (patterns & fmt.dtype.type((1 << fmt.bits) - 1)).astype(np.int64)
    smallest = 1 << fmt.mantissa_bits if fmt.mantissa_bits else 0
    return np.select([code > fmt.largest, code == fmt.largest, code > smallest, code == smallest, code > 0], [5, 4, 3, 2, 1], 0)


def operand_families(inst: Instruction) -> dict[str, EventFamily]:
    formats = {"A": inst.a, "B": inst.b, "C": inst.c}
    lacking = {letter: {kind for kind, codes in codes_of(fmt).items() if not codes} for letter, fmt in formats.items()}

    def event(text: str, *pairs: tuple[str, str]) -> Event:
        reasons = [f"{formats[letter]} has no {kind}" for letter, kind in pairs if kind in lacking[letter]]
        return Event(f"operands: {text}", reasons[0] if reasons else "", True)

    found: dict[str, EventFamily] = {
        "classes": tuple(
            event(f"{a} × {b}, C {c}", ("A", a), ("B", b), ("C", c)) for c, a, b in product(OPERAND_CLASSES, repeat=3)
        ),
        "NaN": tuple(event(f"a NaN of {x}, {sign}", (x, "NaN")) for x in "ABC" for sign in SIGNS),
        "beside infinity": tuple(
            event(f"a subnormal of {x} beside an infinity of {y}", (y, "infinity"), (x, "subnormal")) if x + y != "CC" else None
            for x, y in product("ABC", repeat=2)
        ),
        "extremes": tuple(
            event(f"every product the largest, C of that size, {sign}") for sign in EXTREMES[: 3 if inst.k > 1 else 2]
        ),
    }
    if inst.scale is not None and inst.scale_block is not None:
        formats |= {"scale": inst.scale}
        lacking["scale"] = {kind for kind, codes in scale_codes(inst.scale).items() if not codes}
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
    a, b, c = every = [classes_of(fmt, x) for fmt, x in patterns]
    kinds = len(OPERAND_CLASSES)
    yield "classes", np.ones(a.shape, bool), ((c.astype(np.int16) * kinds + a) * kinds + b)
    subnormal, infinite = ([(x == kind).any(axis=0) for x in every] for kind in (SUBNORMAL, INFINITY))
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
    scales = [_scale_classes(fmt, x.T) for x in (request.scales_a, request.scales_b) if x is not None]
    idle = ((a == 0) & (b < INFINITY) | (b == 0) & (a < INFINITY)).reshape(inst.k // size, size, -1).all(axis=1)
    quiet = idle & (scales[0] < kinds - 1) & (scales[1] < kinds - 1)
    for block, (x, y) in enumerate(zip(*scales, strict=True)):
        alone = np.delete(quiet, block, axis=0).all(axis=0) & ~idle[block]
        without_c = alone & (c[0] == 0)
        yield "scales", without_c, (block * kinds + x) * kinds + y
        ks = slice(block * size, (block + 1) * size)
        for own, of_scale in enumerate((x, y)):
            start = (own * kinds + of_scale) * operands
            for letter, other in (("A", a[ks]), ("B", b[ks])):
                yield f"scale beside {letter}", np.broadcast_to(without_c, other.shape), start + other
            yield "scale beside C", alone, start + c[0]


AT_ONCE = 1 << 10  # Dot products drawn at once; those with a missing event are queried.


class EventsOfLayouts(NamedTuple):
    """names: of the events, [events]. reached: the events of each layout, [LAYOUTS, events]."""

    names: tuple[str, ...]
    reached: NDArray[np.bool_]


@lru_cache(maxsize=32)
def events_of_layouts(inst: Instruction) -> EventsOfLayouts:
    """Return the events of each metadata code at each group, then of each class of numbers left out at each k."""
    assert inst.sparsity is not None
    every, codes = layouts(inst), inst.sparsity.codes
    names = [f"metadata 0b{code:04b} at group {group}" for group in range(every.metadata.shape[1]) for code in codes]
    names += [f"{name} left out at k {k}" for k in range(inst.k) for name in every.classes]
    of_codes = every.metadata[..., None] == np.array(codes)
    of_classes = every.left_out[..., None] == np.arange(len(every.classes))
    reached = np.concatenate([of_codes.reshape(LAYOUTS, -1), of_classes.reshape(LAYOUTS, -1)], axis=1)
    return EventsOfLayouts(tuple(names), reached)


def with_layouts(events: Events, inst: Instruction, used: NDArray[np.bool_]) -> Events:
    """Add the events of the used layouts of `sparse.layouts` [LAYOUTS]; all are possible."""
    names, reached = events_of_layouts(inst)
    hit: list[bool] = np.asarray(reached[used].any(axis=0)).tolist()
    missing = sorted((*events.missing, *(name for name, there in zip(names, hit, strict=True) if not there)))
    return Events(events.hit + sum(hit), events.possible + len(names), events.impossible, tuple(missing))


def layout_operands(inst: Instruction, used: NDArray[np.bool_], seed: int) -> Iterator[Request]:
    """Yield dense requests whose own layouts have the events that the used layouts [LAYOUTS] do not have."""
    reached = events_of_layouts(inst).reached
    missing = reached.any(axis=0) & ~reached[used].any(axis=0)
    rng = np.random.default_rng([seed, inst.k])
    while missing.any():
        drawn, chosen = draw("normal", inst.stored, rng, AT_ONCE), list[int]()
        for row, layout in enumerate(own_layouts(drawn)):
            if (reached[layout] & missing).any():
                chosen.append(row)
                missing &= ~reached[layout]
        yield drawn[chosen]

"""Events of block scales, whatever the model is: classes of the two scales of each block, beside operands and C of each class.

They count where one block alone has products that are not zero, so that the result shows what its scales did.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from accprobe.evaluate.error_free import Truths
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request, joined
from accprobe.verify.coverage.events import Event, EventFamily, Key
from accprobe.verify.coverage.factors import Whole
from accprobe.verify.coverage.kinds_of_operands import OPERAND_CLASSES, classes_of, codes_of

SCALE_CLASSES = ("zero", "subnormal", "smallest normal", "normal", "largest", "NaN")

Seen = Iterator[tuple[Key, Whole, Whole]]


def scale_codes(fmt: Format) -> dict[str, list[int]]:
    """Bit patterns of scales of each class: none where the format has none."""
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


def scale_families(inst: Instruction) -> dict[str, EventFamily]:
    """Of the whole dot product; none where there are no block scales."""
    if inst.scale is None or inst.scale_block is None:
        return {}
    of_scale, size = {word: bool(codes) for word, codes in scale_codes(inst.scale).items()}, inst.scale_block
    blocks = [f"{start}-{start + size - 1}" for start in range(0, inst.k, size)]

    def why(*words: str) -> str:
        return next((f"{inst.scale} has no {word}" for word in words if not of_scale[word]), "")

    def lacks(fmt: Format, word: str) -> str:
        return "" if codes_of(fmt)[word] else f"{fmt} has no {word}"

    beside = {
        letter: tuple(
            Event(f"operands: the scale of {own} {word}, {letter} {kind}", why(word) or lacks(fmt, kind))
            for own, word, kind in product("AB", SCALE_CLASSES, OPERAND_CLASSES)
        )
        for letter, fmt in _formats(inst).items()
    }
    return {
        "scales": tuple(
            Event(f"operands: scales {x} × {y} of {block}", why(x, y))
            for block, x, y in product(blocks, SCALE_CLASSES, SCALE_CLASSES)
        ),
        **{f"scale beside {letter}": events for letter, events in beside.items()},
    }


def _formats(inst: Instruction) -> dict[str, Format]:
    return {"A": inst.a, "B": inst.b, "C": inst.c}


def scales_seen(inst: Instruction, request: Request) -> Seen:
    """Codes of `scale_families`."""
    if inst.scale is None or inst.scale_block is None or request.scales_a is None or request.scales_b is None:
        return
    kinds, operands = len(SCALE_CLASSES), len(OPERAND_CLASSES)
    scales = [_classes(inst.scale, x) for x in (request.scales_a, request.scales_b)]
    a, b, c = (classes_of(fmt, x) for fmt, x in zip(_formats(inst).values(), (request.a, request.b, request.c), strict=True))
    idle = ((a == 0) & (b < operands - 2) | (b == 0) & (a < operands - 2)).reshape(len(a), -1, inst.scale_block).all(axis=2)
    no_number = (scales[0] == kinds - 1) | (scales[1] == kinds - 1)
    for block in range(idle.shape[1]):
        others = np.delete(idle & ~no_number, block, axis=1).all(axis=1)
        alone = np.flatnonzero(others & ~idle[:, block])
        x, y = (of[alone, block] for of in scales)
        without_c = np.flatnonzero(c[alone] == 0)
        yield (-1, "scales"), alone[without_c], ((block * kinds + x) * kinds + y)[without_c]
        ks = slice(block * inst.scale_block, (block + 1) * inst.scale_block)
        for own, of_scale in enumerate((x, y)):
            start = (own * kinds + of_scale) * operands
            for letter, classes in (("A", a[alone, ks]), ("B", b[alone, ks])):
                codes = (start[:, None] + classes)[without_c]
                yield (-1, f"scale beside {letter}"), np.broadcast_to(alone[without_c, None], codes.shape), codes
            yield (-1, "scale beside C"), alone, start + c[alone]


def _classes(fmt: Format, patterns: Bits) -> Whole:
    """Places in SCALE_CLASSES."""
    code = (patterns & fmt.dtype.type((1 << fmt.bits) - 1)).astype(np.int64)
    smallest = 1 << fmt.mantissa_bits if fmt.mantissa_bits else 0
    tests: list[Truths] = [code > fmt.largest, code == fmt.largest, code > smallest, code == smallest, code > 0]
    return np.select(tests, [5, 4, 3, 2, 1], 0)


def scale_operands(inst: Instruction, rng: np.random.Generator) -> Request:
    """Dot products for all of them, one block each."""
    if inst.scale is None or inst.scale_block is None:
        return Request.zeros(inst, 0)
    codes, formats = scale_codes(inst.scale), _formats(inst)
    there = {word: own for word, own in codes.items() if own}
    blocks = inst.k // inst.scale_block
    rows: list[dict[str, tuple[str, int]]] = []
    for block, x, y in product(range(blocks), there, there):
        rows += [{"scale of A": (x, block), "scale of B": (y, block)}] * 2
    for own, word, letter in product("AB", there, "ABC"):
        for kind in (kind for kind, known in codes_of(formats[letter]).items() if known):
            rows.append({f"scale of {own}": (word, int(rng.integers(blocks))), letter: (kind, 0)})
    return joined([_made(inst, row, rng) for row in rows])


def _made(inst: Instruction, wanted: dict[str, tuple[str, int]], rng: np.random.Generator) -> Request:
    """One dot product: operands of these classes in the block of the scales, the others there normal."""
    assert inst.scale is not None
    assert inst.scale_block is not None
    asked = Request.zeros(inst, 1)
    block = next(place for name, (_, place) in wanted.items() if name.startswith("scale"))
    ks = block * inst.scale_block + rng.permutation(inst.scale_block)
    some = 2 if {"A", "B"} & wanted.keys() else 1 + int(rng.integers(2))
    for letter, of_operand, of_scale in (("A", asked.a, asked.scales_a), ("B", asked.b, asked.scales_b)):
        fmt = _formats(inst)[letter]
        of_operand[0, ks[:some]] = rng.choice(codes_of(fmt)["normal"])
        word, _ = wanted.get(letter, ("", 0))
        if word:
            of_operand[0, ks[0]] = int(rng.choice(codes_of(fmt)[word])) | int(rng.integers(0, 2)) * fmt.sign_bit
        kind, _ = wanted.get(f"scale of {letter}", ("normal", 0))
        assert of_scale is not None
        of_scale[0, block] = rng.choice(scale_codes(inst.scale)[kind])
    kind, _ = wanted.get("C", ("", 0))
    if kind:
        asked.c[0] = int(rng.choice(codes_of(inst.c)[kind])) | int(rng.integers(0, 2)) * inst.c.sign_bit
    return asked

"""The search for operands on which two models differ: first where the field in which they differ matters, then anywhere.

Random operands of the usual kinds reach a rule seldom that shows in one exponent of hundreds, beside a sum that cancels. Here
every dot product is made for it: one product leads, most often with a subnormal factor; another may cancel it exactly, so that
the lowest bits come to the top; a zero may meet a large number; and small terms lie about the last bit that is kept. Where the
leading exponent lies is drawn from where the field is felt.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accprobe.formats import Bits
from accprobe.instructions import Instruction
from accprobe.model import DotModel, FloatArithmetic
from accprobe.operands import Exponents, Operands, draw, floats, joined, kinds

TRIED = 1024
"""Dot products tried at once."""

DIRECTED, RANDOM = 3, 1
"""Rounds of TRIED dot products made for the field, and of random ones of every kind."""

MOST = 32
"""Dot products that are given back: few, as each is a question to a device."""

FLOORS = (-126, -133, -149)
"""Smallest alignment exponents that are looked about where a model has none."""


class Search:
    """Looks for operands on which rivals differ from one model; what one rival was tried on, the next one is too."""

    def __init__(self, inst: Instruction, model: DotModel, seed: int = 0) -> None:
        self._inst, self._model, self._seed = inst, model, seed
        self._tried: dict[str, list[tuple[Operands, Bits]]] = {}

    def separating(self, rival: DotModel, field: str) -> Operands | None:
        """Dot products on which the rival, which differs in that field, is not the model; None where the search finds none."""
        for operands, d in self._candidates(_felt(field)):
            differ = np.flatnonzero(d != rival.evaluate(self._inst, *operands))
            if len(differ):
                return Operands(*(x[differ[:MOST]] for x in operands))
        return None

    def _candidates(self, felt: str) -> list[tuple[Operands, Bits]]:
        if felt not in self._tried:
            sets = _operands(self._inst, self._model, felt, self._seed)
            self._tried[felt] = [(operands, self._model.evaluate(self._inst, *operands)) for operands in sets]
        return self._tried[felt]


def _felt(field: str) -> str:
    """Where a field is felt: at the "floor", at small ("underflow") or large ("overflow") results, or "anywhere"."""
    return {
        "min_exponent": "floor",
        "underflow_sign": "underflow",
        "subnormal_results": "underflow",
        "overflow": "overflow",
    }.get(field.removeprefix("add_"), "anywhere")


def _operands(inst: Instruction, model: DotModel, felt: str, seed: int) -> Iterator[Operands]:
    rng = np.random.default_rng([seed, TRIED])
    if not inst.is_integer:
        for _ in range(DIRECTED):
            yield directed(inst, model, felt, rng, TRIED)
    names = list(kinds(inst))
    for _ in range(RANDOM):
        yield joined([draw(kind, inst, rng, -(-TRIED // len(names))) for kind in names])


def directed(inst: Instruction, model: DotModel, felt: str, rng: np.random.Generator, n: int) -> Operands:
    """n dot products made for fields that are felt there, of a floating-point model."""
    floats_of = [x for x in model.arithmetics if isinstance(x, FloatArithmetic)]
    reach = max((x.alignment_bits for x in floats_of if x.alignment_bits is not None), default=inst.d.mantissa_bits)
    floors = [x.min_exponent for x in floats_of if x.min_exponent is not None] or list(FLOORS)
    centre = _centres(inst, felt, floors, reach, rng, n)
    a, b = np.zeros((n, inst.k), inst.a.dtype), np.zeros((n, inst.k), inst.b.dtype)
    sign = inst.a.dtype.type(inst.a.sign_bit)
    lead_a, lead_b = _product(inst, centre, rng)
    zero = rng.integers(0, 2, n).astype(inst.a.dtype) * sign
    large = floats(inst.b, rng, np.full(n, inst.b.max_exponent))
    slots = [(lead_a, lead_b, 0.9), (lead_a ^ sign, lead_b, 0.5), (zero, large, 0.3)]
    slots += [(*_product(inst, centre - reach + rng.integers(-4, 5, n), rng), 0.6) for _ in range(3)]
    places = np.argsort(rng.random((n, inst.k)), axis=1)
    rows = np.arange(n)
    for slot, (x, y, share) in enumerate(slots[: inst.k]):
        used = rng.random(n) < share
        a[rows, places[:, slot]], b[rows, places[:, slot]] = np.where(used, x, 0), np.where(used, y, 0)
    c = floats(inst.c, rng, centre - rng.choice([0, reach], n) + rng.integers(-3, 4, n))
    c[rng.random(n) < 0.4] &= inst.c.dtype.type(inst.c.sign_bit)
    return Operands(a, b, c)


def _product(inst: Instruction, exponent: Exponents, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Factors whose exponents sum to that, as far as they can; one of them is subnormal in half of the cases."""
    lowest, highest = inst.a.min_exponent, inst.a.max_exponent
    ea = np.where(
        rng.random(len(exponent)) < 0.5,
        rng.integers(lowest - inst.a.mantissa_bits, lowest, len(exponent)),
        rng.integers(lowest, highest + 1, len(exponent)),
    )
    ea = np.clip(ea, exponent - inst.b.max_exponent, exponent - inst.b.min_exponent + inst.b.mantissa_bits)
    swapped = rng.random(len(exponent)) < 0.5
    if inst.a == inst.b:
        ea = np.where(swapped, exponent - ea, ea)
    return floats(inst.a, rng, ea), floats(inst.b, rng, exponent - ea)


def _centres(inst: Instruction, felt: str, floors: list[int], reach: int, rng: np.random.Generator, n: int) -> Exponents:
    """Leading exponents.

    Anywhere, or so that the last bit kept is about that of the smallest products; and where a field is felt elsewhere, most
    about there.
    """
    low, high = inst.a.min_exponent + inst.b.min_exponent, inst.a.max_exponent + inst.b.max_exponent
    lowest = low - inst.a.mantissa_bits - inst.b.mantissa_bits
    above_lowest = np.clip(lowest + reach + rng.integers(-2, 10, n), low, high)
    anywhere = np.where(rng.random(n) < 0.5, rng.integers(low, high + 1, n), above_lowest)
    smallest = [inst.d.min_exponent, inst.d.min_exponent - inst.d.mantissa_bits]
    ends = {"anywhere": [], "underflow": smallest, "overflow": [inst.d.max_exponent], "floor": [*floors, *smallest]}[felt]
    if not ends:
        return anywhere
    about = rng.choice(np.array(ends), n) + rng.choice([0, reach], n) * (felt == "floor") + rng.integers(-3, 4, n)
    return np.where(rng.random(n) < 0.7, about, anywhere)

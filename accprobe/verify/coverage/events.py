"""Events of functional coverage: what operands and sums of a floating-point model can do, by name.

IBM's FPgen names and counts what a floating-point unit can meet; Berkeley TestFloat crosses the special operands. Events come
in families; `trace` gives the codes of each dot product. An event is impossible where a format lacks what it needs, or where
terms lie too close. All other events are possible as far as these ranges say: the search may still not reach one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum
from accprobe.verify.coverage.operand_classes import OPERAND_CLASSES, SCALE_CLASSES, codes_of, scale_codes
from accprobe.verify.coverage.ranges import SumRange, TermRole, sum_ranges
from accprobe.verify.coverage.scaled_groups import group_names

Key = tuple[int, str]  # The sum, as `nodes` has them, and the family; -1: the whole dot product.

SIGNS = ("positive", "negative")
EXTREMES = (*SIGNS, "both signs")
ROUNDED = ("exact", "below half", "half beside an even bit", "half beside an odd bit", "above half")
ROUNDED_SHORT = ("exact", "below half", "half", "above half")
NEAR_HALF = ("just below half", "just above half")
LARGEST_TERMS = (
    "C alone",
    "an inner sum alone",
    "the first product alone",
    "the last product alone",
    "a middle product alone",
    "several products",
    "several, C among them",
    "several, inner sums among them",
)
ZEROS = ("zeros of +", "zeros of -", "zeros of both signs", "exact cancellation")
LOST = ("positive terms cut away", "negative terms cut away", "terms of both signs cut away")
CUT_PRODUCTS = (
    "no product cut",
    "1 product cut",
    "2 products cut",
    "several products cut",
    "all products but one cut",
    "every product cut",
)
ABOVE = (
    "one above the lowest alignment",
    "at the lowest alignment",
    "one below the lowest alignment",
    "far below the lowest alignment",
)
LARGEST_NUMBER = (
    "the largest number",
    "less than half a unit above the largest number",
    "half a unit above the largest number",
    "more than half a unit above the largest number",
    "beyond the largest exponent",
)
SMALLEST_NUMBERS = (
    "the smallest normal number",
    "below the smallest normal number, above half a unit",
    "half a unit below the smallest normal number",
    "above the largest subnormal number, below half a unit",
    "the largest subnormal number",
    "a subnormal number",
    "between subnormal numbers",
    "the smallest subnormal number",
    "below the smallest subnormal number, above half of it",
    "half of the smallest subnormal number",
    "below half of the smallest subnormal number",
)
SPECIAL = ("an infinity, positive", "an infinity, negative", "infinities of both signs", "a NaN")
ODD = ((2, 2), (3, 3), (4, 7), (8, 15), (16, 31), (32, 1 << 30))
CANCELLED = ("a little", "by half of its bits", "to nothing")

ODD_TERMS = "odd terms"  # Terms with the last kept bit set, where the result shows a carry out of that bit.
CANCEL_AT = "cancel at"  # The largest terms cancel, by their exponent, in bands.
BANDS = 16  # Of exponents, at most.
CANCEL_EXPONENT = "cancel exponent"  # The same in narrow bands, which are no events: the search keeps operands for each.
NARROW_BANDS = 128

ONE_TERM = "the sum has a single term"
ONE_PRODUCT = "there is a single product"
TOO_FAR = "no two terms are so far apart"
NOT_UP = "results are rounded toward zero"


class Event(NamedTuple):
    """name: what happens. impossible: why it cannot. expected: formats have operands for it, so the search must reach it."""

    name: str
    impossible: str = ""
    expected: bool = False


EventFamily = tuple[Event | None, ...]  # Events by code; None: no event.


class Steps(NamedTuple):
    """Numbers of bits that are distinguished: from the first to the last of each; the last step is open."""

    ends: tuple[tuple[int, int], ...]

    @property
    def words(self) -> list[str]:
        closed = [str(low) if low == high else f"{low}-{high}" for low, high in self.ends[:-1]]
        return [*closed, f"more than {self.ends[-1][0] - 1}"]

    @property
    def codes(self) -> list[int]:
        """Return the codes of 0, 1, 2, … up to the first of the open step."""
        closed = [code for code, (low, high) in enumerate(self.ends[:-1]) for _ in range(low, high + 1)]
        return [-1] * self.ends[0][0] + closed + [len(self.ends) - 1]


def steps(arithmetic: FloatArithmetic, first: int) -> Steps:
    """Each number of bits down to two below the cut; where nothing is cut, each about the result's last bit, few above."""
    bits = arithmetic.alignment_bits
    if bits is not None:
        limit = bits + 2
        ends = [(i, i) for i in range(first, limit + 1)]
    else:
        limit = arithmetic.result_bits + 2
        tail = max(4, limit - 4)
        starts = [x for x in (0, 1, 2, 3, 4, 8, 16, 32, 64) if first <= x < tail] + list(range(tail, limit + 1))
        ends = [(x, y - 1) for x, y in zip(starts, [*starts[1:], limit + 1], strict=True)]
    return Steps((*ends, (limit + 1, 1 << 20)))


def bands(count: int, most: int = BANDS) -> list[range]:
    """Return so many numbers from 0 on, in at most `most` parts of about one size."""
    parts = min(most, count)
    return [range(count * i // parts, count * (i + 1) // parts) for i in range(parts)]


def float_families(inst: Instruction, model: DotModel) -> dict[Key, EventFamily]:
    """Return all events of a floating-point model."""
    found: dict[Key, EventFamily] = {(-1, name): tuple(events) for name, events in _of_operands(inst).items()}
    for i, (label, node, bound) in enumerate(zip(labels(model.root), model.root.nodes(), sum_ranges(inst, model), strict=True)):
        groups = {name: [Event(text) for text in texts] for name, texts in group_names(inst, node).items()}
        for name, events in (_of_sum(bound) | groups).items():
            found[i, name] = tuple(event and event._replace(name=f"{label}: {_term_name(event, bound)}") for event in events)
    return found


def _term_name(event: Event, bound: SumRange) -> str:
    """Terms that are several products scaled at once are called groups."""
    return event.name if bound.arithmetic.scaled_products is None else event.name.replace("product", "group")


def _of_operands(inst: Instruction) -> dict[str, list[Event | None]]:
    formats = {"A": inst.a, "B": inst.b, "C": inst.c}

    def event(text: str, *pairs: tuple[str, str]) -> Event:
        lacking = (f"{formats[letter]} has no {kind}" for letter, kind in pairs if not codes_of(formats[letter])[kind])
        return Event(f"operands: {text}", next(lacking, ""), True)

    found: dict[str, list[Event | None]] = {
        "classes": [event(f"{a} × {b}, C {c}", ("A", a), ("B", b), ("C", c)) for c, a, b in product(OPERAND_CLASSES, repeat=3)],
        "NaN": [event(f"a NaN of {x}, {sign}", (x, "NaN")) for x in "ABC" for sign in SIGNS],
        "beside infinity": [
            None if x == y == "C" else event(f"a subnormal of {x} beside an infinity of {y}", (y, "infinity"), (x, "subnormal"))
            for x, y in product("ABC", repeat=2)
        ],
        "extremes": [event(f"every product the largest, C of that size, {sign}") for sign in EXTREMES],
    }
    if inst.k < 2:
        found["extremes"][2] = Event(f"operands: every product the largest, C of that size, {EXTREMES[2]}", ONE_PRODUCT)
    if inst.scale is not None and inst.scale_block is not None:
        found |= _of_scales(inst, inst.scale, inst.scale_block, formats)
    return found


def _of_scales(inst: Instruction, scale: Format, size: int, formats: dict[str, Format]) -> dict[str, list[Event | None]]:
    codes = scale_codes(scale)

    def event(text: str, *words: str, beside: tuple[Format, str] | None = None) -> Event:
        lacking = [f"{scale} has no {word}" for word in words if not codes[word]]
        if beside and not codes_of(beside[0])[beside[1]]:
            lacking.append(f"{beside[0]} has no {beside[1]}")
        return Event(f"operands: {text}", lacking[0] if lacking else "", True)

    blocks = [f"{start}-{start + size - 1}" for start in range(0, inst.k, size)]
    found: dict[str, list[Event | None]] = {
        f"scale beside {letter}": [
            event(f"the scale of {own} {word}, {letter} {kind}", word, beside=(fmt, kind))
            for own, word, kind in product("AB", SCALE_CLASSES, OPERAND_CLASSES)
        ]
        for letter, fmt in formats.items()
    }
    pairs = product(blocks, SCALE_CLASSES, SCALE_CLASSES)
    return {"scales": [event(f"scales {x} × {y} of {block}", x, y) for block, x, y in pairs], **found}


def _of_sum(bound: SumRange) -> dict[str, list[Event | None]]:
    x, alone = bound.arithmetic, ONE_TERM if bound.terms < 2 else ""
    products = bound.roles["product"].count if "product" in bound.roles else 0
    has_c, has_inner = "C" in bound.roles, "inner sum" in bound.roles
    present = (has_c, has_inner, products > 0, products > 1, products > 2, products > 1, has_c, has_inner)
    rounding = [f"rounded, {word}" for word in (*ROUNDED, *NEAR_HALF)]
    shared, cancelled = bound.cancelling, steps(x, 1).words
    found: dict[str, list[Event | None]] = {f"shift {role}": _shifts(bound, role) for role in bound.roles}
    found |= {
        "carry": _named(signed(f"carry {bits} bits" for bits in range((2 * bound.terms - 1).bit_length()))),
        "cancel": _named([f"cancelled {word} bits" for word in cancelled[: x.alignment_bits]], alone),
        CANCEL_AT: _named(
            f"the largest terms, of {_powers(shared[band[0]], shared[band[-1]])}, cancelled" for band in bands(len(shared))
        ),
        CANCEL_EXPONENT: [None] * NARROW_BANDS,
        "largest": [
            Event(f"the largest term: {word}", alone) if there else None
            for word, there in zip(LARGEST_TERMS, present, strict=True)
        ],
        "dense": _named(signed(["every term at one exponent"])),
        "zeros": _named(f"a sum of zero, {word}" for word in ZEROS),
        "rounded": _named(signed(rounding[: len(ROUNDED)])),
        "near half": _named(signed(rounding[len(ROUNDED) :])),
        "carried": _named(signed(["rounded up to the next power of two"]), NOT_UP if x.result_rounding == "RZ" else ""),
        "over": _named(signed(LARGEST_NUMBER)),
        "under": _named(signed(SMALLEST_NUMBERS)),
        "special": _named(SPECIAL),
        "carry rounded": _named(
            signed(f"carry {carry} bits, {word}" for carry, word in product(shown_carries(bound), ROUNDED_SHORT))
        ),
        "beyond": _named(signed(["a term beyond the largest exponent, the sum within"])),
    }
    if x.alignment_bits is not None:
        found |= _of_alignment(bound, products)
    if has_c and bound.terms > 1:
        found["C cancelled"] = _named(f"C the largest term, cancelled {word}" for word in CANCELLED)
        if bound.floor is not None:
            found["subnormal C"] = _named(["a subnormal C the largest term, aligned to the floor"])
    if bound.floor is not None:
        found["floor"] = _named(f"the largest term {word}" for word in ABOVE)
        found["floor lost"] = _named(signed(["bits lost below the lowest alignment"]))
    return found


def _of_alignment(bound: SumRange, products: int) -> dict[str, list[Event | None]]:
    """Events of terms that lose bits, and of those whose last kept bit is set."""
    found: dict[str, list[Event | None]] = {f"cut {role}": _named([f"{role} cut"]) for role in bound.roles if role != "product"}
    if products:
        counts = (0, 1, 2, 3, products - 1, products)
        found["cut products"] = [
            Event(word) if i in (0, 5) or (0 < i < 4 and count < products - 1) or (i == 4 and products > 1) else None
            for i, (word, count) in enumerate(zip(CUT_PRODUCTS, counts, strict=True))
        ]
        odd = [f"{low if low == high else f'{low} or more'} products" if low <= products else "" for low, high in ODD]
        found["odd"] = [Event(f"{word} with the last kept bit set") if word else None for word in (*odd, "every product")]
    found["lost zeros"] = _named(f"a sum of zero, {word}" for word in LOST)
    found[ODD_TERMS] = [
        Event(f"{_counted(n)}{f', {sign}' if n else ''}, and a carry shows") if i <= min(n, 2) else None
        for n in range(bound.most_odd + 1)
        for i, sign in enumerate(EXTREMES)
    ]
    if bound.terms > 1:
        found["cut rounded"] = _named(f"terms of both signs cut, {word}" for word in ROUNDED_SHORT)
        found["cut against"] = _named(f"terms cut {word} the sum's sign" for word in ("of", "against"))
    return found


def _shifts(bound: SumRange, role: TermRole) -> list[Event | None]:
    own = bound.roles[role]
    tops = [other.exponents[1] for name, other in bound.roles.items() if other.count > (name == role)]
    tops += [] if bound.floor is None else [bound.floor]
    most = max(max(tops, default=own.exponents[0]) - own.exponents[0], 0)
    parts = steps(bound.arithmetic, 0)
    return [
        Event(f"{role} shifted {word}", "" if low <= most else TOO_FAR)
        for word, (low, _) in zip(parts.words, parts.ends, strict=True)
    ]


def shown_carries(bound: SumRange) -> tuple[int, ...]:
    """Return the carries that are crossed with roundings: none and the most."""
    return (0, bound.carry) if bound.carry else (0,)


def signed(words: Iterable[str]) -> list[str]:
    return [f"{word}, {sign}" for word, sign in product(words, SIGNS)]


def _named(names: Iterable[str], impossible: str = "") -> list[Event | None]:
    return [Event(name, impossible) for name in names]


def _powers(low: int, high: int) -> str:
    return f"2^{low}" if low == high else f"2^{low} to 2^{high}"


def _counted(n: int) -> str:
    return f"{n or 'no'} term{'s' * (n != 1)} with the last kept bit set"


def labels(root: FusedSum) -> list[str]:
    """Return a short name for each sum, all different: "sum 0-15", "add 0-15 c"."""
    found: list[str] = []
    for node in root.nodes():
        ks = node.products or [k for inner in node.nodes() for k in inner.products]
        words = [node.role, *_runs(sorted(ks)), *(["c"] if node.has_addend and node.role == "add" else [])]
        name = " ".join(words)
        found.append(name if name not in found else f"{name} ({found.count(name) + 1})")
    return found


def _runs(ks: Sequence[int]) -> Iterator[str]:
    start = 0
    for i in range(1, len(ks) + 1):
        if i == len(ks) or ks[i] != ks[i - 1] + 1:
            yield str(ks[start]) if i - start == 1 else f"{ks[start]}-{ks[i - 1]}"
            start = i

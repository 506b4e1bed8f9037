"""Which events a floating-point model can have, and why it cannot have the others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.verify.coverage.events import (
    ABOVE,
    CANCEL_AT,
    CANCELLED,
    CUT_PRODUCTS,
    EXTREMES,
    LARGEST_TERMS,
    LOST,
    MANY_BITS,
    NO_BITS,
    NO_FLOOR,
    ODD,
    ONE_LOSSY,
    ONE_PRODUCT,
    ONE_TERM,
    ROUNDED_SHORT,
    SEVERAL,
    SIGNS,
    SPECIAL,
    TOO_FAR,
    TOO_SMALL,
    ZEROS,
    Event,
    EventFamily,
    Key,
    bands,
    labels,
    steps,
)
from accprobe.verify.coverage.groups import group_families
from accprobe.verify.coverage.kinds_of_operands import OPERAND_CLASSES
from accprobe.verify.coverage.lsb_carries import ODD_TERMS, odd_events
from accprobe.verify.coverage.results import dropped, result_events
from accprobe.verify.coverage.scales import scale_families
from accprobe.verify.coverage.spans import ROLES, Bounds, TermRole, bounds


def families(inst: Instruction, model: DotModel) -> dict[Key, EventFamily]:
    """All events of a floating-point model."""
    whole = _of_operands(inst) | scale_families(inst)
    found: dict[Key, EventFamily] = {(-1, name): events for name, events in whole.items()}
    sums = zip(labels(model.root), model.root.nodes(), bounds(inst, model), strict=True)
    for i, (name, node, bound) in enumerate(sums):
        for key, events in (_of_sum(bound, inst) | group_families(inst, node, bound)).items():
            found[i, key] = tuple(
                event and event._replace(name=f"{name}: {_with_group_names(event, bound)}") for event in events
            )
    return found


def _with_group_names(event: Event, bound: Bounds) -> str:
    """Terms that are several products scaled at once are called groups."""
    return event.name if bound.arithmetic.scaled_products is None else event.name.replace("product", "group")


def _of_operands(inst: Instruction) -> dict[str, EventFamily]:
    formats = {"A": inst.a, "B": inst.b, "C": inst.c}

    def why(*pairs: tuple[str, str]) -> str:
        return next((reason for letter, kind in pairs if (reason := _lacks(formats[letter], kind))), "")

    return {
        "classes": tuple(
            Event(f"operands: {a} × {b}, C {c}", why(("A", a), ("B", b), ("C", c)))
            for c, a, b in product(OPERAND_CLASSES, repeat=3)
        ),
        "NaN": tuple(Event(f"operands: a NaN of {x}, {sign}", why((x, "NaN"))) for x in "ABC" for sign in SIGNS),
        "beside infinity": tuple(
            None
            if x == y == "C"
            else Event(f"operands: a subnormal of {x} beside an infinity of {y}", why((y, "infinity"), (x, "subnormal")))
            for x, y in product("ABC", repeat=2)
        ),
        "extremes": tuple(
            Event(
                f"operands: every product the largest, C of that size, {sign}",
                ONE_PRODUCT if sign == EXTREMES[2] and inst.k < 2 else "",
            )
            for sign in EXTREMES
        ),
    }


def _lacks(fmt: Format, kind: str) -> str:
    if kind == "infinity" and fmt.infinity is None:
        return f"{fmt} has no infinity"
    if kind == "NaN" and fmt.specials == "none":
        return f"{fmt} has no NaN"
    return ""


def _of_sum(bound: Bounds, inst: Instruction) -> dict[str, EventFamily]:
    aligned = bound.arithmetic.alignment_bits is not None
    found = _shifts(bound) | _sizes(bound) | _zeros(bound) | result_events(bound) | _specials(bound)
    if aligned:
        found |= _cuts(bound)
    if bound.floor is not None:
        found |= _floors(bound, bound.floor)
    return found | _pairs(bound, inst)


def _possible(allowed: list[bool], reason: str) -> tuple[str, bool]:
    """(why it is impossible, whether it is hard): allowed by the bounds of all operands, and by those that are sure."""
    return ("", not allowed[True]) if allowed[False] else (reason, False)


def _shifts(bound: Bounds) -> dict[str, EventFamily]:
    found: dict[str, EventFamily] = {}
    parts = steps(bound.arithmetic, 0)
    for role in bound.slots:
        reached = [bound.shifts(role, reachable) for reachable in (False, True)]
        found[f"shift {role}"] = tuple(
            Event(
                f"{role} shifted {word}",
                *_possible([any(low <= shift <= high for shift in shifts) for shifts in reached], TOO_FAR),
            )
            for word, (low, high) in zip(parts.words, parts.ends, strict=True)
        )
    return found


def _cuts(bound: Bounds) -> dict[str, EventFamily]:
    x = bound.arithmetic
    bits = x.alignment_bits
    assert bits is not None
    found: dict[str, EventFamily] = {}

    def cut(role: TermRole, count: int, reachable: bool) -> bool:
        slots = bound.slots[role]
        span, reach = (slots.reachable if reachable else slots.span), bound.reach(role, count, reachable)
        return reach is not None and span.lsb_exponent < reach - bits and span.exponents[0] < reach

    for role, slots in bound.slots.items():
        if role != "product":
            found[f"cut {role}"] = (
                Event(f"{role} cut", *_possible([cut(role, 1, reachable) for reachable in (False, True)], NO_BITS)),
            )
            continue
        n = slots.count
        counts = (0, 1 if n > 2 else -1, 2 if n > 3 else -1, 3 if n > 4 else -1, n - 1 if n > 1 else -1, n)
        found["cut products"] = tuple(
            None
            if c < 0
            else Event(word, *_possible([c == 0 or cut("product", c, reachable) for reachable in (False, True)], NO_BITS))
            for word, c in zip(CUT_PRODUCTS, counts, strict=True)
        )

        found["odd"] = (
            *(
                None
                if low > n
                else Event(
                    f"{low if low == high else f'{low} or more'} products with the last kept bit set",
                    *_possible([_odd(bound, low, reachable) for reachable in (False, True)], NO_BITS),
                )
                for low, high in ODD
            ),
            Event(
                "every product with the last kept bit set",
                *_possible([_odd(bound, n, reachable) for reachable in (False, True)], NO_BITS),
            ),
        )
    found[ODD_TERMS] = odd_events(bound)
    lossy = bound.lossy(to_zero=True)
    found["lost zeros"] = tuple(
        Event(f"a sum of zero, {word}", _lacking(lossy, takes), True) for word, takes in zip(LOST, (1, 1, 2), strict=True)
    )
    return found


def _lacking(lossy: int, takes: int) -> str:
    """Why not so many terms lose bits."""
    return "" if lossy >= takes else ONE_LOSSY if lossy else NO_BITS


def _odd(bound: Bounds, count: int, reachable: bool) -> bool:
    """Whether so many products may have the last kept bit set."""
    slots, bits = bound.slots["product"], bound.arithmetic.alignment_bits
    assert bits is not None
    itself = not reachable and slots.span.width > bits
    tops = [bound.reach("product", count, reachable), *([slots.span.exponents[1] + 1] if itself else [])]
    lowest = slots.span.leads[0] if reachable else slots.span.lsb_exponent
    return count <= slots.count and any(top is not None and top - bits >= lowest for top in tops)


def _sizes(bound: Bounds) -> dict[str, EventFamily]:
    x, slots = bound.arithmetic, bound.slots
    most, reachable = bound.carry(False), bound.carry(True)
    found: dict[str, EventFamily] = {
        "carry": tuple(Event(f"carry {bits} bits, {sign}", "", bits > reachable) for bits in range(most + 1) for sign in SIGNS)
    }
    parts = steps(x, 1)
    depth, sure_depth = _depth(bound)
    ends = parts.ends if x.alignment_bits is None else parts.ends[: x.alignment_bits]
    found["cancel"] = tuple(
        Event(f"cancelled {word} bits", ONE_TERM if bound.terms < 2 else "" if low <= depth else TOO_FAR, low > sure_depth)
        for word, (low, _) in zip(parts.words, ends, strict=False)
    )
    shared = bound.cancelling
    found[CANCEL_AT] = tuple(
        Event(f"the largest terms, of {_powers(shared[band[0]], shared[band[-1]])}, cancelled", "", True)
        for band in bands(len(shared))
    )
    singles = {role: slots[role].span.exponents for role in slots}
    lows = {
        role: min((low for other, (low, _) in singles.items() if other != role or slots[role].count > 1), default=1 << 20)
        for role in slots
    }

    def alone(role: TermRole, least: int = 1) -> Event | None:
        if role not in slots or slots[role].count < least:
            return None
        reason = ONE_TERM if bound.terms < 2 else "" if slots[role].span.exponents[1] > lows[role] else TOO_FAR
        return Event("", reason)

    def several(*roles: TermRole) -> Event | None:
        if any(role not in slots for role in roles) or sum(slots[role].count for role in roles) < 2:
            return None
        low, high = max(singles[role][0] for role in roles), min(singles[role][1] for role in roles)
        return Event("", "" if low <= high else TOO_FAR, "inner sum" in roles)

    which = [alone("C"), alone("inner sum"), alone("product"), alone("product", 2), alone("product", 3)]
    others: list[TermRole] = [role for role in ROLES if role in slots and role != "C"]
    with_c = [several("C", role) for role in others]
    with_inner = [several("inner sum", role) for role in slots if role in ("product", "inner sum")]
    which += [several("product") if "product" in slots and slots["product"].count > 1 else None, _any(with_c), _any(with_inner)]
    found["largest"] = tuple(
        event and event._replace(name=f"the largest term: {word}")
        for event, word in zip(which, LARGEST_TERMS + SEVERAL, strict=True)
    )
    meet = several(*slots) if bound.terms > 1 else None
    found["dense"] = tuple(meet and meet._replace(name=f"every term at one exponent, {sign}") for sign in SIGNS)
    return found


def _powers(low: int, high: int) -> str:
    return f"2^{low}" if low == high else f"2^{low} to 2^{high}"


def _any(events: Sequence[Event | None]) -> Event | None:
    """The one of them that is most likely to happen."""
    return min((event for event in events if event), key=lambda event: (event.impossible != "", event.hard), default=None)


def _depth(bound: Bounds) -> tuple[int, int]:
    """Bits that may cancel at most, and those that surely can."""
    if bound.terms < 2:
        return 0, 0
    spans, reachable = bound.spans(), bound.spans(reachable=True)
    second = sorted(span.leads[1] for span in spans)[-2]
    most = second + 2 + (bound.terms - 1).bit_length() - bound.lsb_exponent
    if bound.terms == 2:
        narrow = [s.reachable.width for s in bound.slots.values() if s.role == "C"]
        return min(most, max(span.width for span in spans)), max(narrow, default=2) - 1
    first = sorted(reachable, key=lambda span: -span.leads[1])
    return min(most, bound.depth + bound.above), min(bound.depth, first[1].leads[1] - min(span.leads[0] for span in first[2:]))


def _zeros(bound: Bounds) -> dict[str, EventFamily]:
    inner = bound.slots.get("inner sum")
    negative = "" if inner is None or inner.negative_zero else "an inner sum is never a negative zero"
    mixed = ONE_TERM if bound.terms < 2 else "" if len(bound.slots) > 1 or inner is None else negative
    exact = ONE_TERM if bound.terms < 2 else ""
    reasons = ("", negative, mixed, exact)
    return {
        "zeros": tuple(
            Event(f"a sum of zero, {word}", reason, bool(inner) and word != ZEROS[0])
            for word, reason in zip(ZEROS, reasons, strict=True)
        )
    }


def _specials(bound: Bounds) -> dict[str, EventFamily]:
    able = sum(s.count for s in bound.slots.values() if s.infinite)
    one = "" if able else "no term is infinite"
    both = "" if able > 1 else "no two terms are infinite"
    nan = "" if any(s.nan for s in bound.slots.values()) else "no term is a NaN"
    return {"special": tuple(Event(word, reason) for word, reason in zip(SPECIAL, (one, one, both, nan), strict=True))}


def _floors(bound: Bounds, floor: int) -> dict[str, EventFamily]:
    bits = bound.arithmetic.alignment_bits
    assert bits is not None

    def at(step: int, reachable: bool) -> bool:
        spans = [span.exponents for span in bound.spans(reachable)]
        if step < -1:
            return min(low for low, _ in spans) < floor - 1
        return any(low <= floor + step <= high for low, high in spans)

    def lost(reachable: bool) -> bool:
        return any(span.exponents[0] < floor and span.lsb_exponent < floor - bits for span in bound.spans(reachable))

    return {
        "floor": tuple(
            Event(f"the largest term {word}", *_possible([at(step, reachable) for reachable in (False, True)], NO_FLOOR))
            for word, step in zip(ABOVE, (1, 0, -1, -2), strict=True)
        ),
        "floor lost": tuple(
            Event(
                f"bits lost below the lowest alignment, {sign}",
                *_possible([lost(reachable) for reachable in (False, True)], NO_FLOOR),
            )
            for sign in SIGNS
        ),
    }


def _pairs(bound: Bounds, inst: Instruction) -> dict[str, EventFamily]:
    """Events that interact: bits that carries and cuts bring to the rounding; C and the floor; sizes that only cancel."""
    x, most = bound.arithmetic, bound.carry(True)
    bits, c = x.alignment_bits, bound.slots.get("C")
    shown = (0, most) if most else (0,)

    def below(carry: int) -> int:
        room = dropped(bound, False)
        return room if bits is None else max(0, min(room, carry + bound.above + bits - x.result_bits))

    found: dict[str, EventFamily] = {
        "carry rounded": tuple(
            Event(f"carry {carry} bits, {word}, {sign}", "" if below(carry) >= takes else MANY_BITS, True)
            for carry in shown
            for word, takes in zip(ROUNDED_SHORT, (0, 2, 1, 2), strict=True)
            for sign in SIGNS
        ),
    }
    spans = bound.spans()
    *_, second, first = sorted([-(1 << 20), *(span.leads[1] for span in spans)])
    large = first > x.result.max_exponent <= second
    found["beyond"] = tuple(
        Event(f"a term beyond the largest exponent, the sum within, {sign}", "" if large else TOO_SMALL, True) for sign in SIGNS
    )
    if c is not None and bound.terms > 1:
        found["C cancelled"] = tuple(Event(f"C the largest term, cancelled {word}", "", True) for word in CANCELLED)
        if bound.floor is not None:
            reason = "" if c.span.leads[0] < inst.c.min_exponent else "a subnormal C is read as zero"
            reason = reason or ("" if inst.c.min_exponent <= bound.floor else NO_FLOOR)
            found["subnormal C"] = (Event("a subnormal C the largest term, aligned to the floor", reason),)
    if bits is not None and bound.terms > 1:
        lossy = bound.lossy()
        found["cut rounded"] = tuple(
            Event(
                f"terms of both signs cut, {word}",
                _lacking(lossy, 2) or ("" if dropped(bound, False) >= takes else MANY_BITS),
                True,
            )
            for word, takes in zip(ROUNDED_SHORT, (0, 2, 1, 2), strict=True)
        )
        found["cut against"] = tuple(
            Event(f"terms cut {word} the sum's sign", _lacking(lossy, 1), True) for word in ("of", "against")
        )
    return found

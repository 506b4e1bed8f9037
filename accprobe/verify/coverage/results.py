"""What can become of a sum on the way to its result: rounded, too large, too small."""

from __future__ import annotations

from fractions import Fraction

from accprobe.verify.coverage.events import (
    MANY_BITS,
    NEAR_HALF,
    NOT_UP,
    OVER,
    ROUNDED,
    SIGNS,
    TOO_SMALL,
    UNDER,
    UNDER_UNIT,
    Event,
    EventFamily,
)
from accprobe.verify.coverage.spans import Bounds


def result_events(bound: Bounds) -> dict[str, EventFamily]:
    """Of a sum as it is rounded to its result, and of one that is too large or too small for it."""
    x, few = bound.arithmetic, bound.terms < 3
    drops, reachable = dropped(bound, False), dropped(bound, True)
    few |= bound.depth < (x.alignment_bits or 0)
    takes = (0, 2, 1, 1, 2)

    def rounded(word: str, bits: int, sign: str) -> Event:
        return Event(f"rounded, {word}, {sign}", "" if drops >= bits else MANY_BITS, bits > reachable or (bits > 0 and few))

    near = 2 if x.alignment_bits is not None else 7
    up = {"RZ": (), "RNE": SIGNS, "RU": SIGNS[:1], "RD": SIGNS[1:]}[x.result_rounding]
    carried = tuple(
        Event(
            f"rounded up to the next power of two, {sign}",
            (NOT_UP if x.result_rounding == "RZ" else "results of that sign are not rounded up")
            if sign not in up
            else ""
            if drops >= 1
            else MANY_BITS,
            few or reachable < 2,
        )
        for sign in SIGNS
    )
    return {
        "rounded": tuple(rounded(word, bits, sign) for word, bits in zip(ROUNDED, takes, strict=True) for sign in SIGNS),
        "near half": tuple(rounded(word, near, sign) for word in NEAR_HALF for sign in SIGNS),
        "carried": carried,
        "over": tuple(_over(bound, i, word, sign) for i, word in enumerate(OVER) for sign in SIGNS),
        "under": tuple(_under(bound, i, word, sign) for i, word in enumerate(UNDER) for sign in SIGNS),
    }


def dropped(bound: Bounds, reachable: bool) -> int:
    """Bits of a normal sum below its result's last bit, at most."""
    x = bound.arithmetic
    low = bound.lsb_exponent if not reachable else min(span.leads[0] for span in bound.spans(reachable=True))
    highest = min(x.result.max_exponent, bound.max_exponent + bound.above + bound.carry(reachable))
    most = min(highest - low, bound.depth + bound.above + bound.carry(reachable)) - x.result_bits
    if x.alignment_bits is None:
        return max(0, most)
    return max(0, min(most, bound.carry(reachable) + (0 if reachable else bound.above) + x.alignment_bits - x.result_bits))


def _over(bound: Bounds, which: int, word: str, sign: str) -> Event:
    x = bound.arithmetic
    fmt, last = x.result, x.result.max_exponent - x.result_bits
    largest = Fraction(2) ** (fmt.max_exponent + 1) - Fraction(2) ** last
    unit = bound.unit
    inflated = Fraction(0)
    if x.alignment_bits is not None:
        unit = max(bound.lsb_exponent, _least_alignment(bound) - x.alignment_bits)
        inflated = bound.terms * Fraction(2) ** (fmt.max_exponent - x.alignment_bits)
    fine, half = Fraction(2) ** unit, Fraction(2) ** (last - 1)
    least = largest + (0, fine, half, half + fine, 2 * half)[which]
    below = (0, 2, 1, 2, -x.result_bits - 1)[which]
    reason = "" if bound.max_magnitude + (inflated if x.alignment_rounding != "truncate" else 0) >= least else TOO_SMALL
    if not reason and unit > last - below:
        reason = MANY_BITS
    return Event(f"{word}, {sign}", reason, True)


def _least_alignment(bound: Bounds) -> int:
    """The smallest exponent that terms are aligned to where their sum is about the largest number."""
    most = bound.arithmetic.result.max_exponent
    large = {role: s.count for role, s in bound.slots.items() if s.span.leads[1] >= most - bound.terms.bit_length() - 1}
    return most - (2 * sum(large.values()) - 1).bit_length() + 1 - ("product" in large)


def _under(bound: Bounds, which: int, word: str, sign: str) -> Event:
    x = bound.arithmetic
    last = x.result.min_exponent - x.result_bits - UNDER_UNIT[which]
    if word in (UNDER[0], UNDER[5]):
        last = x.result.min_exponent - (word == UNDER[5])
    reason = "" if bound.unit <= last else "no sum is so small"
    return Event(f"{word}, {sign}", reason, True)

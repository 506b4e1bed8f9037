"""Events: what the sums of a model can do, by name, and why some of them cannot happen.

After the functional coverage of hardware verification: IBM's FPgen names what a floating-point unit can meet, and counts it;
Berkeley TestFloat crosses what is special of each operand. Events come in families, whose codes `trace` gives to dot products.
What is said to be impossible follows from bounds (`spans`) that hold for all operands. Some events that these allow may still
have no operands (`hard`): a sum's result as a term of the next does not take every value, few products cannot have every bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accprobe.model.tree import FloatArithmetic, FusedSum

Key = tuple[int, str]  # The sum, as `nodes` has them, and the family; -1: the whole dot product.

SIGNS = ("positive", "negative")
ROUNDED = ("exact", "below half", "half beside an even bit", "half beside an odd bit", "above half")
ROUNDED_SHORT = ("exact", "below half", "half", "above half")
NEAR_HALF = ("just below half", "just above half")
LARGEST_TERMS = ("C alone", "an inner sum alone", "the first product alone", "the last product alone", "a middle product alone")
SEVERAL = ("several products", "several, C among them", "several, inner sums among them")
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
OVER = (
    "the largest number",
    "less than half a unit above the largest number",
    "half a unit above the largest number",
    "more than half a unit above the largest number",
    "beyond the largest exponent",
)
UNDER = (
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
# Bits below the smallest subnormal number's that each of UNDER takes; `_under` has those of the first and of the sixth.
UNDER_UNIT = (0, 2, 1, 2, 0, -1, 1, 0, 2, 1, 2)

SPECIAL = ("an infinity, positive", "an infinity, negative", "infinities of both signs", "a NaN")
ODD = ((2, 2), (3, 3), (4, 7), (8, 15), (16, 31), (32, 1 << 30))
CANCELLED = ("a little", "by half of its bits", "to nothing")
EXTREMES = ("positive", "negative", "both signs")

CANCEL_AT = "cancel at"  # Terms of every size that cancel, of all that terms can have: one event a band of exponents.

BANDS = 16  # Of exponents, at most.

NO_BITS = "no term has bits so low"
ONE_LOSSY = "one term at most has bits so low"
TOO_FAR = "no two terms are so far apart"
TOO_SMALL = "the terms do not reach the result's largest number"
ONE_TERM = "the sum has a single term"
ONE_PRODUCT = "there is a single product"
NO_FLOOR = "no term is so small"
NOT_UP = "results are rounded toward zero"
MANY_BITS = "results keep every bit of the sum"


class Event(NamedTuple):
    """name: what happens. impossible: why it cannot; empty: nothing says so. hard: it may have no operands all the same."""

    name: str
    impossible: str = ""
    hard: bool = False


EventFamily = tuple[Event | None, ...]  # Events by code; None: what no model of that kind has.


class Steps(NamedTuple):
    """Numbers of bits that are told apart: from the first to the last of each; the last step is open."""

    ends: tuple[tuple[int, int], ...]

    @property
    def words(self) -> list[str]:
        closed = [str(low) if low == high else f"{low}-{high}" for low, high in self.ends[:-1]]
        return [*closed, f"more than {self.ends[-1][0] - 1}"]

    @property
    def codes(self) -> list[int]:
        """Of 0, 1, 2, … up to the first of the open step."""
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
        edges = [*range(4), 4, 8, 16, 32, 64]
        tail = max(4, limit - 4)
        starts = [x for x in edges if first <= x < tail] + list(range(tail, limit + 1))
        ends = [(x, y - 1) for x, y in zip(starts, [*starts[1:], limit + 1], strict=True)]
    return Steps((*ends, (limit + 1, 1 << 20)))


def bands(count: int) -> list[range]:
    """So many numbers from 0 on, in at most `BANDS` parts of about one size."""
    parts = min(BANDS, count)
    return [range(count * i // parts, count * (i + 1) // parts) for i in range(parts)]


def labels(root: FusedSum) -> list[str]:
    """A short name for each sum, all different: "sum 0-15", "add 0-15 c"."""
    found: list[str] = []
    for node in root.nodes():
        ks = node.products or [k for inner in node.nodes() for k in inner.products]
        words = [node.role, *_ranges(sorted(ks)), *(["c"] if node.has_addend and node.role == "add" else [])]
        name = " ".join(words)
        found.append(name if name not in found else f"{name} ({found.count(name) + 1})")
    return found


def _ranges(ks: Sequence[int]) -> Iterator[str]:
    start = 0
    for i in range(1, len(ks) + 1):
        if i == len(ks) or ks[i] != ks[i - 1] + 1:
            yield str(ks[start]) if i - start == 1 else f"{ks[start]}-{ks[i - 1]}"
            start = i

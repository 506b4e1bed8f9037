"""Events of functional coverage: their names and numbers.

IBM's FPgen names and counts the cases of a floating-point unit; Berkeley TestFloat crosses the special operands. Events come in
families; each event has a code in its family.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Truths
from accprobe.model.tree import FusedSum, number_ranges

Key = tuple[int, str]  # The sum, as `nodes` has them, and the family; -1: the whole dot product.

EventCodes = NDArray[np.integer]

# A family; which of n dot products, or of m terms of each, [n] or [m, n], reach events; and the codes of these.
CodeArrays = Iterator[tuple[str, Truths, EventCodes | int]]

SIGNS = ("positive", "negative")
EXTREMES = (*SIGNS, "both signs")


class Event(NamedTuple):
    """name: what happens. impossible: why it cannot. expected: formats have operands for it, so the search must reach it."""

    name: str
    impossible: str = ""
    expected: bool = False


EventFamily = tuple[Event | None, ...]  # Events by code; None: no event.


def events_of(names: Iterable[str], impossible: str = "") -> EventFamily:
    """Return events of these names; an empty name gives no event."""
    return tuple(Event(name, impossible) if name else None for name in names)


def signed(words: Iterable[str]) -> list[str]:
    """Return each word with either sign."""
    return [f"{word}, {sign}" for word, sign in product(words, SIGNS)]


def labels(root: FusedSum) -> list[str]:
    """Return a short name for each sum, all different: "sum 0-15", "add 0-15 c"."""
    found: list[str] = []
    for node in root.nodes():
        ks = node.products or [k for inner in node.nodes() for k in inner.products]
        words = [node.role, *number_ranges(sorted(ks)), *(["c"] if node.has_addend and node.role == "add" else [])]
        name = " ".join(words)
        found.append(name if name not in found else f"{name} ({found.count(name) + 1})")
    return found

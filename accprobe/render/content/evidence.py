"""The evidence of a row: dot products that the device was asked, by what they decided, and what the signs in them mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accprobe.isa.instructions import Instruction
from accprobe.model.fields import FEATURES
from accprobe.operands.exchange import Exchange
from accprobe.operands.sparse import stored_products
from accprobe.render.content.phrases import GLUE
from accprobe.render.content.verification import elsewhere, exchange_text, pattern_text
from accprobe.report.rows import Row

HEADING = "bit patterns (values) of the products that are not 0 × 0, of C → of D"


class Evidence(NamedTuple):
    """Exchanges that decided some features, and what to see in them."""

    heading: str
    exchanges: list[str]


def shown_for(row: Row) -> Iterator[Evidence]:
    """The evidence, by the features that it decided."""
    for heading, exchanges in _by_heading(row).items():
        yield Evidence(heading, list(_texts(row.instruction, exchanges)))


def _by_heading(row: Row) -> dict[str, tuple[Exchange, ...]]:
    features: dict[tuple[Exchange, ...], list[str]] = {}
    for feature, exchanges in row.evidence.items():
        features.setdefault(exchanges, []).append(feature)
    found = {}
    for exchanges, names in features.items():
        why = [FEATURES[name].evidence for name in names if name in FEATURES and FEATURES[name].evidence]
        found[", ".join(names) + (f": {why[0]}" if why else "")] = exchanges
    return found


def legend(row: Row) -> str:
    """What the signs mean, those that this row's evidence has."""
    sparse = row.instruction.sparse
    told = [f"k: place {'among the products that A stores' if sparse else 'along K'}", "×: A times B", "→: the device's answer"]
    if any("M" in heading.split() for heading in _by_heading(row)):
        told.append("M: a number so large that a small one beside it is lost")
    if sparse:
        told.append("elsewhere: what B has where A stores nothing, told where that alone differs")
    return "; ".join(told)


def _texts(inst: Instruction, exchanges: Sequence[Exchange]) -> Iterator[str]:
    """Each exchange; of those that differ only in what a sparse A leaves out, that."""
    stored = [_stored(inst, shown) if inst.sparse else () for shown in exchanges]
    for i, shown in enumerate(exchanges):
        if inst.sparse and stored.count(stored[i]) > 1:
            first = f"{inst.stored.k} products, C{GLUE}{pattern_text(inst.c, int(shown.c, 16))}"
            about = "the same" if stored[i] in stored[:i] else first
            yield f"{about}; elsewhere {elsewhere(inst, shown)} →{GLUE}{pattern_text(inst.d, int(shown.d, 16))}"
        else:
            yield exchange_text(inst, shown, whole=False)


def _stored(inst: Instruction, shown: Exchange) -> tuple[str, ...]:
    """The question that is left of it without what a sparse A leaves out."""
    asked = stored_products(inst, shown.request(inst))
    return shown.a, asked.b.tobytes().hex(), shown.c, shown.scales_a, shown.scales_b

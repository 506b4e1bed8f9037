"""The tools that accprobe uses: what works here, what does not, and how to install what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from accprobe.build.inventory import Item
from accprobe.render.document import Column, Element, Grid, Heading, Phrase

ABILITIES = {
    "read binaries": ("nvdisasm", "cuobjdump"),
    "measure this processor": ("processor",),
    "measure a GPU": ("driver", "GPU", "cupy", "cuda.core", "nvrtc"),
    "sweep block-K": ("driver", "GPU", "triton", "torch"),
}


NAMES = {"driver": "NVIDIA driver"}  # in a sentence


def abilities_line(items: Iterable[Item]) -> str:
    """ "can read reports, read binaries; cannot measure a GPU: no NVIDIA driver": the tools that each ability needs."""
    found = {item.name: item.found for item in items}
    can, cannot = ["read reports"], dict[str, list[str]]()
    for ability, needs in ABILITIES.items():
        missing = next((name for name in needs if not found.get(name)), None)
        if missing is None:
            can.append(ability)
        else:
            cannot.setdefault(f"no {NAMES.get(missing, missing)}", []).append(ability)
    lacking = (f"cannot {' or '.join(abilities)}: {reason}" for reason, abilities in cannot.items())
    return "; ".join((f"can {', '.join(can)}", *lacking))


def doctor_blocks(items: Sequence[Item]) -> Iterator[Element]:
    """Yield what works; then a line a tool."""
    yield Heading(abilities_line(items), 1)
    columns = (
        Column("tool", whole=True),
        Column("found", least=9),
        Column("for", "context", least=14),
        Column("remark", least=44),
    )
    yield Grid(columns, tuple(_cells(item) for item in items))


def _cells(item: Item) -> tuple[Phrase, ...]:
    remarks = [item.note] if item.found else [item.note, _advice(item.install)]
    found = Phrase(item.version or "missing", "good" if item.found else "bad")
    return Phrase(item.name), found, Phrase(item.purpose), Phrase("; ".join(filter(None, remarks)))


def _advice(install: str) -> str:
    """A command or an address gets a heading; a sentence needs none."""
    return f"install: {install}" if install.startswith(("pip ", "http")) else install

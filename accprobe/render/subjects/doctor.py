"""The tools that accprobe uses: abilities here, and how to install missing tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from accprobe.build.inventory import Item
from accprobe.render.document import Column, Element, Heading, Phrase, tabulate

ABILITIES = {
    "read binaries": ("nvdisasm", "cuobjdump"),
    "measure this processor": ("processor",),
    "measure a GPU": ("driver", "GPU", "cupy", "cuda.core", "nvrtc"),
    "sweep block-K": ("driver", "GPU", "triton", "torch"),
}
"""The tools that each ability needs."""

NAMES = {"driver": "NVIDIA driver"}
"""Names of tools in a sentence, where they differ."""


def abilities_line(items: Iterable[Item]) -> str:
    """Return "can read reports, read binaries; cannot measure a GPU: no NVIDIA driver"."""
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
    """Yield what works here, then a line for each tool."""
    yield Heading(abilities_line(items), 1)
    yield tabulate(COLUMNS, items)


def _remark(item: Item) -> str:
    install = f"install: {item.install}" if item.install.startswith(("pip ", "http")) else item.install
    return "; ".join(filter(None, [item.note, "" if item.found else install]))


COLUMNS = (
    Column("tool", lambda item: item.name, whole=True),
    Column("found", lambda item: Phrase(item.version or "missing", "good" if item.found else "bad"), least=9),
    Column("for", lambda item: item.purpose, "context", least=14),
    Column("remark", _remark, least=44),
)

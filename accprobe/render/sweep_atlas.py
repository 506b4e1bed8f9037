"""The atlas of the sweep's kernel as a table: what each configuration becomes on each architecture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accprobe.sweep.atlas import Entry


def table(entries: Sequence[Entry]) -> RenderableType:
    """Block-Ks that become the same opcode share a line."""
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for header in ("architecture", "operand type", "warps", "block-K", "opcode", "in the cubin", "accumulator"):
        found.add_column(header, justify="right" if header == "warps" else "left", no_wrap=header != "opcode")
    rejected: dict[str, list[Entry]] = {}
    previous = entries[0].architecture
    for (architecture, dtype, warps, opcodes, accumulator, reason), group in groupby(entries, _alike):
        each = list(group)
        if reason and not opcodes:
            rejected.setdefault(reason, []).extend(each)
            continue
        if architecture != previous:
            found.add_section()
            previous = architecture
        counts = ", ".join(" + ".join(str(count) for _, count in entry.opcodes) for entry in each)
        style = "bold magenta" if dtype in ("e4m3", "e5m2") and "HMMA" in opcodes else ""
        found.add_row(
            architecture, dtype, str(warps), _range(each), Text(opcodes, style), counts, accumulator or "not published"
        )
    notes = [Text(f"{'; '.join(_places(what))}: {reason}", "dim") for reason, what in rejected.items()]
    if not found.row_count:
        return Group(*notes)
    return Group(found, *notes, Text("accumulator: fraction bits kept, as published of the opcode; nothing ran.", "dim"))


def _places(rejected: Sequence[Entry]) -> Iterator[str]:
    """In few words: "f32 with 2, 4 warps at block-K 512 on sm_80, sm_90"."""
    alike: dict[tuple[str, int, int], list[str]] = {}
    for each in rejected:
        alike.setdefault((each.dtype, each.num_warps, each.block_k), []).append(each.architecture)
    warps: dict[tuple[str, int, tuple[str, ...]], list[int]] = {}
    for (dtype, count, block_k), on in alike.items():
        warps.setdefault((dtype, block_k, tuple(on)), []).append(count)
    blocks: dict[tuple[str, tuple[int, ...], tuple[str, ...]], list[int]] = {}
    for (dtype, block_k, architectures), counts in warps.items():
        blocks.setdefault((dtype, tuple(counts), architectures), []).append(block_k)
    for (dtype, of, architectures), sizes in blocks.items():
        yield f"{dtype} with {_words(of)} warps at block-K {_words(sizes)} on {', '.join(architectures)}"


def _words(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _alike(entry: Entry) -> tuple[str, str, int, str, str, str]:
    opcodes = " + ".join(opcode for opcode, _ in entry.opcodes)
    return entry.architecture, entry.dtype, entry.num_warps, opcodes, entry.accumulator, entry.reason


def _range(entries: Sequence[Entry]) -> str:
    sizes = [entry.block_k for entry in entries]
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]}-{sizes[-1]}"

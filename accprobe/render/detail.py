"""One instruction of a report in full: what ran, the summation tree, every finding and the exchanges that show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from accprobe.render import sections
from accprobe.render.hanging import Hanging
from accprobe.render.terminal import STATUS_STYLES
from accprobe.report.report import Row
from accprobe.report.words import effective_bits, is_converted, is_narrow


def detail(row: Row) -> RenderableType:
    """Everything that the report says about an instruction."""
    head = Text(row.name, "bold")
    head.append(f"  {row.status}", STATUS_STYLES[row.status])
    head.append(f": {row.reason}" if row.reason else "")
    parts: list[RenderableType] = [head]
    for heading, lines in _sections(row):
        parts += [Text(f"\n{heading}", "bold"), lines]
    return Group(*parts)


def _sections(row: Row) -> Iterator[tuple[str, RenderableType]]:
    if row.lowering:
        yield "ran as", Hanging(list(_lowering(row)))
    if bits := effective_bits(row):
        yield "effective bits", Hanging([Text(bits, "bold yellow" if is_narrow(row) else "bold")])
    if row.model:
        yield "summation tree", _plain(sections.tree(row.model))
        yield "arithmetic", _plain(sections.arithmetics(row, row.model))
    if row.findings:
        yield "findings", _findings(row)
    if row.verification:
        yield "verification", _plain(sections.verification(row))
    if row.rivals:
        yield "rivals", _plain(sections.rivals(row))
    if row.evidence:
        yield "evidence: bit patterns (values) of the products that are not 0 × 0, of C → of D", _plain(_evidence(row))


def _plain(lines: Iterable[str]) -> Hanging:
    return Hanging([Text(line) for line in lines])


def _lowering(row: Row) -> Iterator[Text]:
    yield Text(", ".join(f"{count}×{opcode}" for opcode, count in row.lowering), "bold magenta" if is_converted(row) else "")
    if is_converted(row):
        yield Text("a unit of other formats: the operands were converted for it", "magenta")
    digest = f", cubin sha256 {row.cubin_sha256}" if row.cubin_sha256 else ""
    yield Text(f"{sections.witness(row)}{digest}", "dim")


def _findings(row: Row) -> Group:
    """A table; notes that several findings have stand below it."""
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("feature", "value", "bound", "note"):
        found.add_column(header, overflow="fold", no_wrap=header in ("feature", "bound"))
    lines, notes = sections.findings(row)
    for line in lines:
        found.add_row(line.feature, line.value, line.bound, line.note, style="" if line.is_exact else "yellow")
    return Group(Padding(found, (0, 0, 0, 2), expand=False), _plain(f"{mark} {note}" for mark, note in notes.items()))


def _evidence(row: Row) -> Iterator[str]:
    for heading, exchanges in sections.evidence(row):
        yield heading
        yield from (f"  {exchange}" for exchange in exchanges)

"""One instruction of a report in full: what ran, the summation tree, every finding and the exchanges that show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from accprobe.render.content import details, evidence
from accprobe.render.terminal.console import STYLES, Hanging, ruled
from accprobe.report.rows import Row
from accprobe.report.words import detour, effective_bits, is_narrow


def row_details(row: Row) -> RenderableType:
    """Everything that the report says about an instruction."""
    head = Text(row.name, "bold")
    head.append(f"  {row.status}", STYLES[row.status])
    head.append(f": {reason}" if (reason := details.reason_told(row)) else "")
    parts: list[RenderableType] = [head]
    if proviso := details.proviso(row):
        parts.append(Hanging([Text(proviso, STYLES[row.status])], 0))
    for heading, lines in _sections(row):
        parts += [Text(f"\n{heading}", "bold"), lines]
    return Group(*parts)


def _sections(row: Row) -> Iterator[tuple[str, RenderableType]]:
    if row.lowering:
        yield "ran as", Hanging(list(_lowering(row)))
    if bits := effective_bits(row):
        yield "effective bits", Hanging([Text(bits, "bold yellow" if is_narrow(row) else "bold")])
    if row.model:
        yield "summation tree", _hanging(details.tree(row, row.model))
        yield "arithmetic", _hanging(details.arithmetics(row, row.model))
    if row.findings:
        yield "findings", _findings(row)
    if row.verification or row.explains:
        yield "verification", _hanging(details.verification(row))
    if row.alternatives:
        yield "alternatives", _hanging(details.rivals_left(row))
    if row.evidence:
        yield f"evidence: {evidence.HEADING}", _hanging(_evidence(row))


def _hanging(lines: Iterable[str]) -> Hanging:
    return Hanging([Text(line) for line in lines])


def _lowering(row: Row) -> Iterator[Text]:
    yield Text(", ".join(f"{count}×{opcode}" for opcode, count in row.lowering), "bold magenta" if detour(row) else "")
    if told := detour(row):
        yield Text(told, "magenta")
    digest = f", {details.code_named(row)} sha256 {row.cubin_sha256}" if row.cubin_sha256 else ""
    yield Text(f"{details.opcode_witness(row)}{digest}", "dim")


def _findings(row: Row) -> Group:
    """A table; notes that several findings have stand below it."""
    found = ruled()
    for header in ("feature", "value", "bound", "note"):
        found.add_column(header, overflow="fold", no_wrap=header in ("feature", "bound"))
    lines, notes = details.finding_lines(row)
    for line in lines:
        found.add_row(line.feature, line.value, line.bound, line.note, style="" if line.is_exact else "yellow")
    return Group(Padding(found, (0, 0, 0, 2), expand=False), _hanging(f"{mark} {note}" for mark, note in notes.items()))


def _evidence(row: Row) -> Iterator[str]:
    yield evidence.legend(row)
    for heading, exchanges in evidence.shown_for(row):
        yield heading
        yield from (f"  {exchange}" for exchange in exchanges)

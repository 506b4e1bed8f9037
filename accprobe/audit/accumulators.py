"""The accumulator of a matrix opcode on an architecture: from recorded reports, else from published models, else unknown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from accprobe.errors import UnknownName
from accprobe.isa import architectures, opcodes
from accprobe.isa.formats import FORMATS, Format
from accprobe.isa.opcodes import Kind
from accprobe.model import published
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.records.rows import Row
from accprobe.report.published import recorded_of


@dataclass(frozen=True)
class Accumulator:
    """Precision of a running sum. bits: its fraction bits, None for integers. bound: "exact" or "at_least".

    format: of the result. alignment_bits: F, None for exact sums. wider: the accumulator with a wider result format, if the
    opcode's name does not show the format (fifth generation). source: "measured on an NVIDIA H100 and an NVIDIA H200 (reports
    h100, h200)", or the publication.
    """

    bits: int | None
    bound: str
    format: str
    alignment_bits: int | None
    source: str
    wider: Accumulator | None = None

    @property
    def text(self) -> str:
        """Return "13 (e8m13)", "≥13 (e8m13)", "s32, exact" or "23 (f32) or 10 (f16)"."""
        if self.bits is None:
            return f"{self.format}, exact"
        d = FORMATS[self.format]
        register = d.name if self.bits == d.mantissa_bits else f"e{d.exponent_bits}m{self.bits}"
        either = f"{self.wider.text} or " if self.wider else ""
        return f"{either}{'≥' if self.bound == 'at_least' else ''}{self.bits} ({register})"


_EXACT = "integers are added exactly, modulo 2^32"
_EXACT_SATURATED = "integers are added exactly, and the sum is clamped"


def accumulator(opcode: str, architecture: str) -> Accumulator | None:
    """Return the accumulator of a matrix opcode, None if it is unknown. architecture: "sm_90" or "sm_90a"."""
    matrix = opcodes.parse(opcode)
    if matrix.is_integer:
        return Accumulator(None, "exact", "s32", None, _EXACT_SATURATED if matrix.saturates else _EXACT)
    if matrix.scaled:
        return None
    try:
        name = architectures.get(architecture).name
    except UnknownName:
        return None
    if measured := _measured(name).get(matrix.kind):
        known, sizes = measured
        return replace(known, source=known.source + _describe_other_sizes(matrix.n, sizes))
    return _published(name).get(matrix.kind)


@cache
def _measured(architecture: str) -> dict[Kind, tuple[Accumulator, set[int]]]:
    """Return accumulators from recorded reports of GPUs of this architecture, and every n that was measured.

    Rows count if the expected unit ran. If several rows are of one kind, the one with the fewest bits counts.
    """
    found: dict[Kind, Accumulator] = {}
    sources: dict[Kind, dict[str, str]] = {}
    sizes: dict[Kind, set[int]] = {}
    for name, report in recorded_of(architectures.get(architecture).target).items():
        for row in report.measured:
            if known := _read_accumulator(row):
                kind = opcodes.parse(row.opcodes[0]).kind
                _keep_fewest(found, kind, known)
                sources.setdefault(kind, {})[name] = f"{published.article(report.device.name)} {report.device.name}"
                sizes.setdefault(kind, set()).add(row.instruction.n)
    return {kind: (replace(known, source=_measured_on(sources[kind])), sizes[kind]) for kind, known in found.items()}


def _measured_on(devices: dict[str, str]) -> str:
    """Return the source in words: "measured on an NVIDIA H100 and an NVIDIA H200 (reports h100, h200)"."""
    return f"measured on {' and '.join(devices.values())} (report{'s' * (len(devices) > 1)} {', '.join(devices)})"


def _describe_other_sizes(n: int, measured: set[int]) -> str:
    """Return ", at n = 64 and 256, not at 8"; "" if n was measured, or the opcode has none."""
    known = " and ".join(map(str, sorted(measured)))
    return f", at n = {known}, not at {n}" if n and n not in measured else ""


def _read_accumulator(row: Row) -> Accumulator | None:
    """Return the accumulator of a row, without its source."""
    inst, bits, f = row.instruction, row.findings.get("effective_bits"), row.findings.get("alignment_bits")
    native = [opcodes.relation(inst, opcode) == "native" for opcode in row.opcodes]
    if row.status != "confirmed" or native != [True] or bits is None or not isinstance(bits.value, int):
        return None
    bound = "exact" if bits.bound == "exact" else "at_least"
    alignment = f.value if f is not None and isinstance(f.value, int) else None
    return Accumulator(bits.value, bound, inst.d.name, alignment, "")


@cache
def _published(architecture: str) -> dict[Kind, Accumulator]:
    found: dict[Kind, Accumulator] = {}
    for name, chip in published.CHIPS.items():
        if architectures.get(chip.architecture).name != architecture:
            continue
        for inst, known in published.known_models(name).items():
            native = {opcodes.relation(inst, opcode) for opcode in known.lowering.matrix} == {"native"}
            if native and not inst.is_integer:
                source = known.source.removesuffix(f"; {published.MEASURED}")
                _keep_fewest(found, opcodes.kind_of(inst), _of_model(known.model, inst.d, source))
    return found


def _of_model(model: DotModel, d: Format, source: str) -> Accumulator:
    """Return the accumulator of the model's sum with the fewest bits."""
    sums = [node.arithmetic for node in model.root.nodes() if isinstance(node.arithmetic, FloatArithmetic)]
    alignment = min((a.alignment_bits for a in sums if a.alignment_bits is not None), default=None)
    bits = min(a.result_bits for a in sums)
    return Accumulator(min(bits, alignment or bits), "exact", d.name, alignment, f"published: {source}")


def _keep_fewest(found: dict[Kind, Accumulator], kind: Kind, known: Accumulator) -> None:
    other = found.get(kind)
    if other is None or other == known:
        found[kind] = known
        return
    fewest, most = sorted((other, known), key=lambda a: a.bits or 0)
    found[kind] = replace(fewest, wider=replace(most, wider=None)) if fewest.format != most.format else fewest

"""Names that users type, resolved the same way by every command and by `accprobe.emulate`.

A word means instructions in one of these ways; the first that finds something counts:

    wgmma.m64n8k32.f32.e4m3.e4m3, 'wgmma.*e4m3*'    a name, or a glob on names
    wgmma.mma_async.sync.aligned.m64n8k32…          a full PTX opcode, or a processor's mnemonic
    QGMMA, HMMA.16816                               a SASS opcode that the compiler generates, or its first parts

REPORT:WORD takes the claims of one report: a file, a recorded one, or sim:NAME for published models. A callable may be followed
by other words of the claim: 'torch:mm 16x8x* bf16'. Where one model is needed, `_default` chooses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from accprobe.build.lowerings import compiled
from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction, alike_but_n, architectures_with, parse
from accprobe.model.published import CHIPS, SIM
from accprobe.model.tree import DotModel
from accprobe.operands.protocol import Device
from accprobe.records.claims import Claim, split_title
from accprobe.records.rows import Row
from accprobe.report.published import published
from accprobe.report.recorded import STANDARD_INPUT, no_report, recorded
from accprobe.report.report import AnyClaim, Report

EXAMPLE = "such as QGMMA or h200:wgmma.m64n8k32.f32.e4m3.e4m3"

T = TypeVar("T")
Named = TypeVar("Named", bound=Claim)

OTHERS_LISTED = 4
"""Other operands that a remark lists."""

_SEPARATOR = re.compile(r"(?<!:):(?!:)")
"""A colon between a report and a row; names of instructions have two at a time: "kind::f16"."""


def nearest_n(wanted: Instruction, among: Iterable[Instruction], source: str) -> tuple[Instruction, str] | None:
    """Return the instruction that differs from one in n only, the nearest of several, and a remark; None where there is none.

    The recorded reports have two n of each wgmma, with equal models. No other n was measured, so every use of one is announced.
    source: the user's name of the report.
    """
    alike = list(alike_but_n(wanted, among))
    if not alike:
        return None
    known = " and ".join(map(str, sorted(inst.n for inst in alike)))
    return alike[0], f"{source} has {wanted} at n = {known}, not at {wanted.n}: using the nearest, {alike[0]}"


class NamedModel(NamedTuple):
    """An instruction and its model. source: the report; remark: the instruction chosen and the other operands, or ""."""

    inst: Instruction
    model: DotModel
    source: str
    remark: str

    @property
    def name(self) -> str:
        return f"{self.source}:{self.inst.name}"


def split_row(name: str) -> tuple[str, str]:
    """Return (report, row) of "REPORT:ROW"; the row is "" where a report alone is named, the report "" where none is."""
    if name.startswith(SIM):
        chip, _, row = name.removeprefix(SIM).partition(":")
        return f"{SIM}{chip}", row
    known = (*recorded(), STANDARD_INPUT)
    if name in known or Path(name).exists():
        return name, ""
    for colon in _SEPARATOR.finditer(name):
        source = name[: colon.start()]
        if source in known or Path(source).is_file():
            return source, name[colon.end() :]
    return "", name


def matching(known: Mapping[T, Sequence[str]], word: str) -> list[T]:
    """Return the names or instructions that a word means, in order; may be empty. known: the opcodes of each."""
    if found := [one for one in known if fnmatchcase(str(one), word)]:
        return found
    if re.search(r"[*?[]", word):
        return []
    try:
        canonical = parse(word).name
    except UnknownName:
        start = f"{word.strip().upper()}."
        return [one for one, opcodes in known.items() if any(f"{opcode}.".startswith(start) for opcode in opcodes)]
    return [one for one in known if str(one) == canonical]


def claims_meant(claims: Iterable[Named], word: str) -> list[Named]:
    """Return the claims that a word means: a title, globs of a name and of other words, or an opcode; all for ""."""
    every, given = list(claims), split_title(word)
    if found := [one for one in every if split_title(one.title) == given] or [one for one in every if one.matches(word)]:
        return found
    names = set(matching({one.name: one.opcodes for one in every}, word))
    return [one for one in every if one.name in names]


def selected(device: Device, select: Sequence[str]) -> list[Instruction]:
    """Return the instructions of a device that any word means, in catalog order, then those that no catalog lists.

    Raises UnknownName where a word means none.
    """
    known = list(device.instructions())
    if not select:
        return known
    sequences = {name: became.sequence for name, became in compiled(device.architecture).items()}
    opcodes = {
        inst: [opcode for opcode, _ in sequences.get(inst.name, ())] or [*filter(None, [inst.mnemonic])] for inst in known
    }
    chosen: dict[Instruction, None] = {}
    for word in select:
        chosen |= dict.fromkeys(matching(opcodes, word) or [_unlisted(word, device.architecture, opcodes)])
    return [inst for inst in (*known, *(inst for inst in chosen if inst not in known)) if inst in chosen]


def _unlisted(word: str, architecture: str, known: Mapping[Instruction, Sequence[str]]) -> Instruction:
    """Return an instruction that the catalog leaves out, such as a wgmma of another n."""
    try:
        inst = parse(word)
    except UnknownName:
        every = f"`accprobe list --instructions {architecture}` lists all {len(known)}"
        raise UnknownName(
            f"'{word}' selects no instruction of {architecture}; {suggest_names(word, known)} ({every})"
        ) from None
    if architecture not in architectures_with(inst):
        raise UnknownName(f"{architecture} has no {inst.name}; it is of {', '.join(architectures_with(inst))}")
    return inst


def suggest_names(word: str, known: Mapping[T, Sequence[str]]) -> str:
    """Return "did you mean …": a glob if some names start with the word, else the nearest names and opcodes."""
    names = list(map(str, known))
    if not re.search(r"[*?[]", word) and (begun := [name for name in names if name.startswith(word)]):
        return f"did you mean the glob '{word}*'? It matches {len(begun)}"
    stems = dict.fromkeys(opcode.partition(".")[0] for every in known.values() for opcode in every)
    return nearest(word, list(stems) or names) if word.isupper() else nearest(word.replace("*", ""), names)


def _unknown_claim(claims: Iterable[AnyClaim], source: str, word: str) -> UnknownName:
    """Return the error that a report has no such claim. source: the user's name of the report."""
    every = [one for one in claims if one.status != "skipped"] or list(claims)
    name = word.partition(" ")[0]
    nouns = " or ".join(dict.fromkeys(one.kind for one in every)) or "claim"
    if alike := [one.title for one in every if name != word and one.matches(name)]:
        meant = f"`accprobe show {source} '{name}'` lists all of that name; {nearest(word, alike)}"
    else:
        meant = suggest_names(name, {one.name: one.opcodes for one in every})
    return UnknownName(f"{source} has no {nouns} '{word}'; {meant}")


def rows_named(report: Report, source: str, word: str) -> tuple[Report, str]:
    """Return the report with only the claims that a word means, and a remark where the nearest n stands in.

    source: the user's name of the report. Raises UnknownName.
    """
    found, remark = claims_meant(report.claims, word), ""
    rows = {row.instruction: row for row in report.instructions}
    if not found and (other := _nearest(word, rows, source)):
        found, remark = [rows[other[0]]], other[1]
    if not found:
        raise _unknown_claim(report.claims, source, word)
    selected = sum(isinstance(one, Row) for one in found)
    run = report.run.model_copy(update={"selected": selected, "seconds": 0.0})  # the time of these alone is not known
    return report.with_claims(found, run=run, sweeps=()), remark


def named_claims(name: str, kind: type[Named]) -> list[Named]:
    """Return the claims of a kind that "products-h200:torch:mm 512x512x512" means; all without a word, none without a recorded
    report or file.

    Raises ReportError, and UnknownName where nothing is meant, unless the report has instructions: `named_model` finds the
    nearest n.
    """
    source, word = split_row(name)
    if not source or source.startswith(SIM):
        return []
    report = Report.load(source)
    found = claims_meant(report.claims, word)
    if not found and not report.instructions:
        raise _unknown_claim(report.claims, source, word)
    return [one for one in found if isinstance(one, kind)]


def _nearest(word: str, known: Iterable[Instruction], source: str) -> tuple[Instruction, str] | None:
    try:
        return nearest_n(parse(word), known, source)
    except UnknownName:
        return None


def _operands(inst: Instruction) -> str:
    return inst.a.name if inst.a is inst.b else f"{inst.a}:{inst.b}"


def named_report(source: str) -> Report:
    """Return "sim:h100" (published models), "h200" (recorded) or the report in a file. Raises UnknownName, ReportError."""
    return published(source) if source.startswith(SIM) else Report.load(source)


def named_models(source: str) -> dict[Instruction, DotModel]:
    """Return the models of a named report, by instruction.

    Raises UnknownName, ReportError, and AccprobeError where the report has no model.
    """
    return models_of(named_report(source), source)


def models_of(report: Report, name: str) -> dict[Instruction, DotModel]:
    """Return the models of a report that the user calls `name`. Raises AccprobeError where it has none."""
    models = {row.instruction: row.model for row in report.instructions if row.model is not None}
    if not models:
        raise AccprobeError(f"{name} has no model of any instruction; name a report that has instructions, or sim:NAME")
    return models


@cache
def named_model(word: str, dtype: str = "") -> NamedModel:
    """Return the model that "h200:QGMMA" or "QGMMA" means. Without a report, the recorded reports are searched, h200 before
    h100, then the published models.

    Raises UnknownName, ReportError, and AccprobeError where the report has no model.
    """
    source, name = split_row(word)
    if not source and (colon := _SEPARATOR.search(name)):
        raise no_report(name[: colon.start()], recorded())
    if source and not name:
        raise UnknownName(f"'{word}' names no instruction; give REPORT:INSTRUCTION, {EXAMPLE}")
    of_gpus = (name for name in reversed(recorded()) if Report.load(name).instructions)
    sources = [source] if source else [*of_gpus, *(f"{SIM}{chip}" for chip in CHIPS)]
    near: NamedModel | None = None
    others: list[Instruction] = []
    opcodes: dict[Instruction, Sequence[str]] = {}
    for each in sources:
        report = named_report(each)
        models, of_report = models_of(report, each), {row.instruction: row.opcodes for row in report.instructions}
        found = [inst for inst in matching(of_report, name) if inst in models]
        if fitting := [inst for inst in found if dtype in ("", _operands(inst))]:
            return _chosen(each, models, fitting, word)
        if near is None and (other := _nearest(name, models, each)):
            near = NamedModel(other[0], models[other[0]], each, other[1])
        others, opcodes = others + found, opcodes | of_report
    if others:
        raise UnknownName(f"{word} has no operands of {dtype}; it has {', '.join(dict.fromkeys(map(_operands, others)))}")
    if near is None:
        raise UnknownName(f"{source or 'accprobe'} has no model of '{name}'; {suggest_names(name, opcodes)}")
    return near


def _chosen(source: str, models: Mapping[Instruction, DotModel], found: Sequence[Instruction], word: str) -> NamedModel:
    inst = _default(found)
    if len(found) == 1 and source in word:
        return NamedModel(inst, models[inst], source, "")
    published = ", a published model" * source.startswith(SIM)
    others = list(dict.fromkeys(each.a.name for each in found if each.a is each.b is not inst.a))
    more = f" and {len(others) - OTHERS_LISTED} more" if len(others) > OTHERS_LISTED else ""
    also = (
        f"; other instructions have operands in {', '.join(others[:OTHERS_LISTED])}{more}: name one to choose it"
        if others
        else ""
    )
    return NamedModel(inst, models[inst], source, f"{word}: using {source}:{inst.name}{published}{also}")


def _default(found: Sequence[Instruction]) -> Instruction:
    """Return the instruction to use among several that a word matches.

    Preferred, in this order: an f32 result, C in the format of D, dense, no block scales, A in memory, A and B in one format.
    Then the first in the order of the catalog, with the largest K among those with its operands.
    """

    def unusual(inst: Instruction) -> tuple[bool, ...]:
        differs = (inst.d is not FORMATS["f32"], inst.c is not inst.d, inst.sparse, inst.scale is not None)
        return (*differs, inst.a_registers, inst.a is not inst.b)

    first = min(found, key=unusual)
    alike = [inst for inst in found if unusual(inst) == unusual(first) and inst.a is first.a]
    return max(alike, key=lambda inst: inst.k)

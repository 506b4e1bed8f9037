"""The end of a page: the glossary, and how to measure the report again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from accprobe.isa.instructions import catalog
from accprobe.model.fields import FEATURES
from accprobe.model.published import names, title
from accprobe.render.document import Code, Element, Heading, Paragraph, fact_grid, table
from accprobe.report.report import Report

_WORDS = {
    "instruction": "one PTX matrix multiply-accumulate, D = A·B + C, named by its qualifiers: D, A, B, C of mma.sync;"
    " D, A, B of wgmma and tcgen05, where C is D. .rs is a wgmma that takes A from registers",
    "opcode": "a SASS instruction: HMMA, QGMMA, UTCQMMA, …",
    "lowering": "all of the SASS that one PTX instruction becomes: converts, several matrix opcodes, a separate add of C",
    "e8m13": "a float with 8 exponent and 13 fraction bits; with the sign 22 bits, hence FP22",
    "fused sum": "one hardware addition of many terms: aligned to the largest exponent, truncated to F fraction bits, added"
    " exactly, rounded once",
    "summation tree": "the order of addition: leaves are the K products and C, inner nodes are fused sums",
    "RZ, RNE, RU, RD": "rounding toward zero; to nearest, ties to even; up; down",
    "truncate, floor, nearest, sticky": "treatment of the bits of a term below F: dropped; dropped in two's complement;"
    " rounded; or-ed into the last bit kept",
    "promotion": "adding the matrix unit's partial sum to a separate register every so many products",
    "exact": "of a value: known; of a sum: every bit of every term is kept",
    "≥": "a lower bound: the operands show no more bits",
    "suggested, ~": "in a row that is not confirmed: explains most results; any other value is possible",
    "undetermined, ?": "several values explain every result; the note lists them",
    "any": "not observable, such as the order of integer sums that wrap around",
    "evidence": "dot products that the device was sent, and its results: bit patterns in hex, values in brackets",
    "verification": "random dot products that the model was compared with the device on, bit for bit",
    "tile elements": "results of one instruction: each lies in the register of a lane, and a fault may be in a few of them",
    "events": "functional coverage: shifts, carries, ties, cancellation, overflow that sums of the model can have",
    "alternative": "a model that differs in one field; it survives if no result contradicts it",
    "confirmed": "the expected unit ran, and the model predicts every result, tile element and event",
    "inferred": "there is a model, but a result contradicts it, or coverage is incomplete",
    "unstable": "the device gave two results for one query",
    "unverified": "there is no model, the expected unit did not run, or the unit that ran is not known",
    "simulated": "computed from models, not measured",
}

GLOSSARY: dict[str, str] = _WORDS | {feature.title: feature.says for feature in FEATURES.values()}
"""Words of every report, then its features."""

MOST_SELECTED = 8
"""Largest number of instructions that the command to measure again names."""


def glossary() -> Iterator[Element]:
    yield Heading("Glossary", 2, "glossary")
    yield fact_grid(GLOSSARY.items())


def reproduction(report: Report) -> Iterator[Element]:
    yield Heading("How to reproduce", 2, "reproduce")
    if shell := commands(report):
        yield Code(tuple(shell))
    yield Paragraph("The same versions and seed give the same report, except for the time it took.")
    commit = {"commit": report.tool.commit} if report.tool.commit else {}
    versions = {"accprobe": report.tool.version, **commit, **report.environment, "seed": str(report.seed)}
    yield table(("what", "version"), versions.items())


def commands(report: Report) -> list[str]:
    """Return shell commands; none for a report that no command wrote."""
    dots = [row.verification.random for row in report.measured if row.verification]
    simulated = {f"simulated {title(name)}": f"sim:{name}" for name in names()}
    device = {"cuda": "cuda:0", "cpu": "cpu"}.get(report.device.kind) or simulated.get(report.device.name)
    if not dots or device is None:
        return []
    lines = [f"git checkout {report.tool.commit.removesuffix('-dirty')}"] if report.tool.commit else []
    run = ["accprobe", "run", "--device", device, "--dots", str(max(dots)), "--seed", str(report.seed)]
    if report.run.selected != len(catalog(report.device.architecture)):
        selected = [row.name for row in report.instructions][:MOST_SELECTED]
        run += [word for name in selected for word in ("--select", shlex.quote(name))]
        run += ["--select …"] if len(report.instructions) > MOST_SELECTED else []
    return [*lines, " ".join([*run, "-o", "report.json"]), "accprobe diff THIS_REPORT.json report.json"]

"""The end of a page: what every word of a report means, and how to measure it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from accprobe.isa.instructions import catalog
from accprobe.model.fields import FEATURES
from accprobe.render.document import Code, Element, Heading, Paragraph, fact_grid, table
from accprobe.report.report import Report

_WORDS = {
    "instruction": "one PTX matrix multiply-accumulate, D = A·B + C, named by its qualifiers: D, A, B, C of mma.sync;"
    " D, A, B of wgmma and tcgen05, where C is D. .rs is a wgmma that takes A from registers",
    "PTX, SASS": "the instructions that a kernel is written in, and those that the GPU runs",
    "opcode": "a SASS instruction: HMMA, QGMMA, UTCQMMA, …",
    "lowering": "all of the SASS that one PTX instruction becomes: converts, several matrix opcodes, a separate add of C",
    "cubin": "the compiled file that was launched, and disassembled; its sha256 names it",
    "A, B, C, D": "the operands A and B, of which K products are made, the addend C, and the result D",
    "m, n, k": "the shape of the tiles: D is m × n, and each of its numbers is a sum of k products and C",
    "f16, bf16, tf32, f32, f64": "binary floats; with 10, 7, 10, 23 and 52 fraction bits",
    "e4m3, e5m2": "FP8, floats of 8 bits: exponent bits and fraction bits",
    "e8m13": "a float with 8 exponent and 13 fraction bits; with the sign 22 bits, hence FP22",
    "s8, u8, s32": "signed and unsigned integers",
    "fused sum": "one hardware addition of many terms: aligned to the largest exponent, truncated to F fraction bits, added"
    " exactly, rounded once",
    "summation tree": "the order of addition: leaves are the K products and C, inner nodes are fused sums",
    "RZ, RNE, RU, RD": "rounding toward zero; to nearest, ties to even; up; down",
    "truncate, floor, nearest, sticky": "what becomes of the bits of a term below F: dropped; dropped in two's complement;"
    " rounded; or-ed into the last bit kept",
    "subnormal": "a number too small for a leading one",
    "promotion": "adding the matrix unit's partial sum to a separate register every so many products",
    "exact": "of a value: known; of a sum: every bit of every term is kept",
    "≥": "a lower bound: the operands show no more bits",
    "suggested, ~": "in a row that is not confirmed: explains most results; any other value is possible",
    "undetermined, ?": "several values explain every result; the note lists them",
    "any": "not observable, such as the order of integer sums that wrap around",
    "evidence": "dot products that the device was sent, and its results: bit patterns in hex, values in brackets",
    "M": "in evidence: a number so large that a unit beside it is lost",
    "verification": "random dot products that the model was compared with the device on, bit for bit",
    "operands": "kinds of random ones: uniform bit patterns, normal values, wide, near and close exponents, cancelling, tiny,"
    " huge, sparse and special values",
    "tile elements": "results of one instruction: each lies in the register of a lane, and a fault may be in a few of them",
    "events": "functional coverage: shifts, carries, ties, cancellation, overflow that sums of the model can have",
    "95 %": "the confidence with which n dot products without a mismatch exclude faults in more than 3 of n",
    "alternative": "a model that differs in one field; it survives if no result contradicts it",
    "confirmed": "the expected unit ran, and the model predicts every result, tile element and event",
    "inferred": "there is a model, but a result contradicts it, or coverage is incomplete",
    "unstable": "the device gave two results for one query",
    "unverified": "there is no model, the expected unit did not run, or which one ran is not known",
    "simulated": "computed from models, not measured",
    "words explained": "results that others recorded on the real chip and that the published model predicts bit for bit",
}

GLOSSARY: dict[str, str] = _WORDS | {feature.title: feature.says for feature in FEATURES.values()}
"""By word: those of every report first, then its features."""


def glossary() -> Iterator[Element]:
    yield Heading("Glossary", 2, "glossary")
    yield fact_grid(GLOSSARY.items())


def reproduction(report: Report) -> Iterator[Element]:
    yield Heading("How to reproduce", 2, "reproduce")
    if shell := commands(report):
        yield Code(tuple(shell))
    yield Paragraph("The same versions and seed give the same report, but for the time it took.")
    yield table(("what", "version"), recorded_versions(report).items())


MOST_SELECTED = 8
"""Instructions that are named one by one; of more, the reader is told how many there are."""


def commands(report: Report) -> list[str]:
    """Shell commands, comments among them. None for a report that no command wrote."""
    dots = {row.verification.random for row in report.measured if row.verification}
    device = _device(report)
    if not dots or device is None:
        return []
    lines = [f"git checkout {report.tool.commit.removesuffix('-dirty')}"] if report.tool.commit else []
    run = ["accprobe", "run", "--device", device, "--dots", str(max(dots)), "--seed", str(report.seed)]
    lines.append(" ".join([*run, *_selection(report), "-o", "report.json"]))
    first = report.measured[0].name
    lines.append(f"accprobe show report.json {shlex.quote(first)}  # one instruction; any of the names above")
    lines.append("accprobe diff THIS_REPORT.json report.json")
    return lines


def recorded_versions(report: Report) -> dict[str, str]:
    """What the result may depend on."""
    commit = {"commit": report.tool.commit} if report.tool.commit else {}
    return {"accprobe": report.tool.version, **commit, **report.environment, "seed": str(report.seed)}


def _device(report: Report) -> str | None:
    if report.device.kind in ("cuda", "cpu"):
        return {"cuda": "cuda:0", "cpu": "cpu"}[report.device.kind]
    from accprobe.model.published import names, title

    return next((f"sim:{name}" for name in names() if report.device.name == f"simulated {title(name)}"), None)


def _selection(report: Report) -> list[str]:
    if report.run.selected == len(catalog(report.device.architecture)):
        return []
    names = [row.name for row in report.instructions]
    if len(names) > MOST_SELECTED:
        return [f"--select …  # {len(names)} instructions, those above"]
    return [word for name in names for word in ("--select", shlex.quote(name))]

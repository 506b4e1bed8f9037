"""How the features of an instruction are inferred: one module a feature, run in order by `characterise`.

An experiment sees a device only through the protocol of `accprobe.devices`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from accprobe.devices.protocol import Device
from accprobe.infer.draft import Draft, roles
from accprobe.infer.experiments.exponents import floor, largest_exponent
from accprobe.infer.experiments.integers import integers
from accprobe.infer.experiments.order import order
from accprobe.infer.experiments.precision import precision
from accprobe.infer.experiments.specials import carries, specials
from accprobe.infer.experiments.subnormals import subnormals
from accprobe.infer.findings import Characterisation, Exchange, Finding
from accprobe.infer.refine import dense_roundings, refine, tiny_results
from accprobe.infer.summary import effective, tree_in_words
from accprobe.infer.workbench import Workbench
from accprobe.isa.instructions import Instruction
from accprobe.model.features import Name
from accprobe.model.tree import DotModel, FloatArithmetic

PROVISIONAL_BITS = 30
"""Alignment bits of the draft before they are measured; the rows asked until then need two or three."""


def characterise(device: Device, inst: Instruction, known: Sequence[Exchange] = ()) -> Characterisation:
    """Infer every feature of an instruction, and the model that they make up.

    known: dot products that the model has to explain too, because they contradicted another one.
    Raises DeviceError where the device fails.
    """
    bench = Workbench(device, inst, known)
    if inst.is_integer:
        draft, found = integers(bench)
        model, findings = refine(bench, draft.model(), _by_feature(found))
    else:
        model, findings = _floats(bench)
        findings["carries"] = carries(bench, model)
        findings["effective_bits"] = effective(findings)
    findings |= tree_in_words(model, findings["order"])
    return Characterisation(inst, findings, model, bench.unstable, bench.asked, bench.others)


def _by_feature(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.feature: finding for finding in findings}


def _floats(bench: Workbench) -> tuple[DotModel, dict[str, Finding]]:
    """What a float instruction does. Rules that nothing explained are asked again of the refined draft, once."""
    draft, found = _structure(bench)
    draft, more = _rules(bench, draft)
    model, findings = refine(bench, draft.model(), _by_feature(found + more))
    if any(finding.bound == "undetermined" and not finding.left for finding in findings.values()):
        draft, more = _rules(bench, draft.like(model))
        model, findings = refine(bench, draft.model(), findings | _by_feature(more))
    return tiny_results(bench, model, findings)


def _structure(bench: Workbench) -> tuple[Draft, list[Finding]]:
    """The tree, subnormals, bits and roundings."""
    inst = bench.inst
    tree, found = order(bench)
    findings = [found]
    bits = None if inst.a.name == "f64" else PROVISIONAL_BITS
    any_nan = inst.d.infinity or 0
    summing = FloatArithmetic(inst.d, inst.d.mantissa_bits, "RZ", bits, nan=any_nan + 1)
    adding = FloatArithmetic(inst.d, inst.d.mantissa_bits, "RNE", None, nan=any_nan + 1)
    draft = Draft(inst, tree, summing, adding)
    draft, more = subnormals(bench, draft)
    findings += more
    for role in roles(draft):
        draft, more = precision(bench, draft, role)
        draft, more = dense_roundings(bench, draft, role, more)
        findings += [replace(finding, feature=str(Name(finding.feature, role))) for finding in more]
    return draft, findings


def _rules(bench: Workbench, draft: Draft) -> tuple[Draft, list[Finding]]:
    """Exponents and specials."""
    findings: list[Finding] = []
    for step in (largest_exponent, floor, specials):
        draft, more = step(bench, draft)
        findings += more
    return draft, findings

"""How the features of an instruction are inferred: one module a feature, run in order by `characterise`.

An experiment sees a device only through the protocol of `accprobe.devices`.
"""

from __future__ import annotations

from dataclasses import replace

from accprobe.devices import Device
from accprobe.experiments.draft import Draft, Tree, leaves
from accprobe.experiments.exponents import floor, largest_exponent
from accprobe.experiments.findings import Characterisation, Finding
from accprobe.experiments.integers import integers
from accprobe.experiments.order import order
from accprobe.experiments.precision import precision
from accprobe.experiments.specials import carries, specials
from accprobe.experiments.subnormals import subnormals
from accprobe.experiments.workbench import Workbench
from accprobe.instructions import Instruction
from accprobe.model import DotModel, FloatArithmetic

PROVISIONAL_BITS = 30
"""Alignment bits of the draft before they are measured; the rows asked until then need two or three."""


def characterise(device: Device, inst: Instruction) -> Characterisation:
    """Infer every feature of an instruction, and the model that they make up.

    Raises DeviceError where the device fails.
    """
    bench = Workbench(device, inst)
    draft, found = integers(bench) if inst.is_integer else _floats(bench)
    model = draft.model()
    findings = {finding.feature: finding for finding in [*found, *_summary(inst, draft, model, found)]}
    return Characterisation(inst, findings, model, bench.unstable, bench.asked)


def _floats(bench: Workbench) -> tuple[Draft, list[Finding]]:
    inst = bench.inst
    tree, found = order(bench)
    findings = [found]
    bits = None if inst.a.name == "f64" else PROVISIONAL_BITS
    summing = FloatArithmetic(inst.d, inst.d.mantissa_bits, "RZ", bits)
    adding = FloatArithmetic(inst.d, inst.d.mantissa_bits, "RNE", None)
    draft = Draft(inst, tree, summing, adding)
    draft, more = subnormals(bench, draft)
    findings += more
    bench.subnormals = all(finding.value == "kept" for finding in more)
    draft, more = precision(bench, draft, "sum")
    findings += more
    if any(node.role == "add" for node in draft.nodes()):
        draft, more = precision(bench, draft, "add")
        findings += [_prefixed(finding) for finding in more]
    for step in (largest_exponent, floor, specials):
        draft, more = step(bench, draft)
        findings += more
    findings.append(carries(bench, draft))
    return draft, findings


def _prefixed(finding: Finding) -> Finding:
    return replace(finding, feature=f"add_{finding.feature}")


def _summary(inst: Instruction, draft: Draft, model: DotModel, found: list[Finding]) -> list[Finding]:
    """What follows from the other findings: the tree in words, and the effective bits."""
    known = {finding.feature: finding for finding in found}
    counts = [len(node.products) for node in model.root.nodes() if node.products]
    tree = known["order"]
    findings = [
        replace(tree, value=model.order),
        Finding(
            "products_per_sum", counts[0] if len(set(counts)) == 1 else "+".join(map(str, counts)), tree.bound, note=tree.note
        ),
        Finding("addend", _addend(draft.tree, inst.k), tree.bound, note=tree.note),
    ]
    if not inst.is_integer:
        findings.append(_effective(known))
    return findings


def _addend(tree: Tree, k: int) -> str:
    """Where C joins, in words."""
    path = []
    while not isinstance(tree, int):
        path.append(tree)
        tree = next(child for child in tree if k in leaves(child))
    node = path[-1]
    inner = [child for child in node if not isinstance(child, int)]
    if not any(isinstance(child, int) and child < k for child in node):
        return "own add, last" if len(path) == 1 else "own add"
    if len(path) == 1:
        return "last sum" if inner else "the sum"
    return f"sum {len(path)} from the last" if inner else "first sum"


def _effective(known: dict[str, Finding]) -> Finding:
    """Fraction bits that a running sum keeps: the fewer of alignment bits and result bits."""
    alignment, result = known["alignment_bits"], known["result_bits"]
    limits = [(f.value, f.bound == "exact") for f in (alignment, result) if isinstance(f.value, int)]
    value, exact = min(limits, key=lambda limit: (limit[0], not limit[1]))
    evidence = alignment.evidence[:2] + result.evidence[:2]
    return Finding("effective_bits", value, "exact" if exact else "at least", evidence=evidence)

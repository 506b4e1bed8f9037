"""Inference of the features of an instruction: runs the experiments in order, then refines the model that they make up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from accprobe.infer.distinguishing import Results
from accprobe.infer.draft import Draft, Tree
from accprobe.infer.experiments.exponents import floor, largest_exponent
from accprobe.infer.experiments.integers import integers
from accprobe.infer.experiments.order import lone_products, order, wider_inner_sums
from accprobe.infer.experiments.precision import precision
from accprobe.infer.experiments.specials import carries, control, nan, overflow, subnormals, tininess, zero_signs
from accprobe.infer.query_log import LogEntry, QueryLog
from accprobe.infer.refine import Refined, refine
from accprobe.infer.workbench import Workbench
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, IntegerArithmetic
from accprobe.operands.exchange import Exchange
from accprobe.operands.protocol import Device
from accprobe.records.findings import Findings, effective_bits_of, order_findings

PROVISIONAL_BITS = 30  # Alignment bits of the draft before they are measured; the rows until then need two or three.

# Experiments on floats: the tree, the bits and the roundings, then the other rules.
Experiments = tuple[Callable[[Workbench, Draft], tuple[Draft, Findings]], ...]
STRUCTURE: Experiments = (order, lone_products, wider_inner_sums, subnormals, precision)
RULES: Experiments = (largest_exponent, floor, nan, overflow, tininess, zero_signs)


def characterise(device: Device, inst: Instruction) -> Characterisation:
    """Infer every feature of an instruction and the model that they make up. Raises DeviceError if the device fails."""
    return infer_model(QueryLog(device, inst))


def infer_model(log: QueryLog, counterexamples: Sequence[Exchange] = ()) -> Characterisation:
    """Infer every feature of a subject and the model that they make up.

    counterexamples: dot products that contradicted an earlier model, so that this one has to explain them too.
    """
    inst = log.inst
    bench, before = Workbench(log, counterexamples), len(log.entries)
    draft = _first_draft(inst)
    if inst.is_integer:
        draft, found = integers(bench, draft)
        model, findings, chosen_on = refine(bench, draft.model(), found)
    else:
        draft, found = _run(bench, draft, STRUCTURE)
        bench = bench.within(draft.reach)
        model, findings, chosen_on = _rules(bench, draft, found)
        findings["carries"] = carries(bench, model)
        findings["effective_bits"] = effective_bits_of(findings)
    findings |= control(bench)
    findings |= order_findings(model, findings["order"])
    return Characterisation(inst, findings, model, log.unstable, log.entries[before:], chosen_on)


def _first_draft(inst: Instruction) -> Draft:
    """Return the draft of one sum of all products and C."""
    everything: Tree = (inst.k, *range(inst.k))
    if inst.is_integer:
        return Draft(inst, everything, IntegerArithmetic(inst.d, "wrap"), IntegerArithmetic(inst.d, "wrap"))
    bits = None if inst.a.name == "f64" else PROVISIONAL_BITS
    summing = FloatArithmetic(inst.d, inst.d.mantissa_bits, "RZ", bits, nan=(inst.d.infinity or 0) + 1)
    return Draft(inst, everything, summing, replace(summing, result_rounding="RNE", alignment_bits=None))


def _run(bench: Workbench, draft: Draft, stage: Experiments) -> tuple[Draft, Findings]:
    """Run the experiments of a stage one after another, each within the reach that is known by then."""
    findings: Findings = {}
    for experiment in stage:
        draft, found = experiment(bench.within(draft.reach), draft)
        findings |= found
    return draft, findings


def _rules(bench: Workbench, draft: Draft, findings: Findings) -> Refined:
    """Infer the rules of floats. If nothing explained one of them, run their experiments on the refined draft once more."""
    draft, found = _run(bench, draft, RULES)
    refined = refine(bench, draft.model(), findings | found)
    model, findings, _ = refined
    if not any(finding.bound == "undetermined" and not finding.candidates for finding in findings.values()):
        return refined
    draft, found = _run(bench, draft.like(model), RULES)
    return refine(bench, draft.model(), findings | found)


@dataclass
class Characterisation:
    """All findings of one instruction and the model that they make up (None if no model fits).

    unstable: results that differed when their query was repeated. queries: everything that the device was queried for, which
    alternative models have to explain too. chosen_on: results on which the model was chosen among neighbours that differ in
    several fields; None if it was not.
    """

    instruction: Instruction
    findings: Findings = field(default_factory=dict)
    model: DotModel | None = None
    unstable: int = 0
    queries: list[LogEntry] = field(default_factory=list)
    chosen_on: Results | None = None

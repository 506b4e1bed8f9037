"""How the features of an instruction are inferred: one module a feature, run in order by `characterise`.

An experiment sees a device only through the protocol of `accprobe.devices`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from accprobe.devices.protocol import Device
from accprobe.infer.draft import Draft, Tree
from accprobe.infer.experiments import experiment
from accprobe.infer.experiments.dense import tiny_results
from accprobe.infer.experiments.specials import carries, control
from accprobe.infer.findings import Characterisation, Findings
from accprobe.infer.query_log import QueryLog
from accprobe.infer.refine import Refined, refine
from accprobe.infer.summary import effective, tree_in_words
from accprobe.infer.workbench import Workbench
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import FloatArithmetic, IntegerArithmetic
from accprobe.operands.exchange import Exchange

# Alignment bits of the draft before they are measured; the rows asked until then need two or three.
PROVISIONAL_BITS = 30


def characterise(device: Device, inst: Instruction, known: Sequence[Exchange] = ()) -> Characterisation:
    """Infer every feature of an instruction, and the model that they make up.

    known: dot products that the model has to explain too, because they contradicted another one.
    Raises DeviceError where the device fails.
    """
    log = QueryLog.of(device, inst)
    bench, before = Workbench(log, known), len(log.entries)
    draft = _first_draft(inst)
    if inst.is_integer:
        draft, found = experiment(bench, draft, "integers")
        model, findings, others = refine(bench, draft.model(), found)
    else:
        draft, found = experiment(bench, draft, "structure")
        bench = bench.within(draft.reach)
        model, findings, others = _rules(bench, draft, found)
        model, findings = tiny_results(bench, model, findings)
        findings["carries"] = carries(bench, model)
        findings["effective_bits"] = effective(findings)
    findings |= control(bench)
    findings |= tree_in_words(model, findings["order"])
    return Characterisation(inst, findings, model, log.unstable, log.entries[before:], others)


def _first_draft(inst: Instruction) -> Draft:
    """One sum of everything."""
    everything: Tree = (inst.k, *range(inst.k))
    if inst.is_integer:
        return Draft(inst, everything, IntegerArithmetic(inst.d, "wrap"), IntegerArithmetic(inst.d, "wrap"))
    bits = None if inst.a.name == "f64" else PROVISIONAL_BITS
    any_nan = inst.d.infinity or 0
    summing = FloatArithmetic(inst.d, inst.d.mantissa_bits, "RZ", bits, nan=any_nan + 1)
    return Draft(inst, everything, summing, replace(summing, result_rounding="RNE", alignment_bits=None))


def _rules(bench: Workbench, draft: Draft, findings: Findings) -> Refined:
    """The other rules of floats. Those that nothing explained are asked again of the refined draft, once."""
    draft, found = experiment(bench, draft, "rules")
    refined = refine(bench, draft.model(), findings | found)
    if not any(finding.bound == "undetermined" and not finding.candidates for finding in refined.findings.values()):
        return refined
    draft, found = experiment(bench, draft.like(refined.model), "rules")
    return refine(bench, draft.model(), refined.findings | found)

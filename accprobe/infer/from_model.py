"""What a model says of itself, as findings: no device is asked, so nothing is proved.

Rules that no model has a field for (`carries`, `sums_alike`) are those of the evaluator, which keeps every carry.
"""

from __future__ import annotations

from accprobe.infer.findings import Bound, Finding, Findings, meaningless, unsaid, values
from accprobe.infer.summary import effective, tree_in_words
from accprobe.isa.instructions import Instruction
from accprobe.model.features import Name, finding_names
from accprobe.model.record import Value
from accprobe.model.tree import DotModel, FloatArithmetic, IntegerArithmetic


def findings_of(inst: Instruction, model: DotModel) -> Findings:
    """The findings that `characterise` would have, did every feature of the model show through the instruction."""
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return _integer(inst, model, model.root.arithmetic)
    told = set(finding_names()) - meaningless(model)
    known = {name: value for name, value in values(model).items() if name in told and not unsaid(name, value)}
    findings = {name: Finding(value) for name, value in known.items()}
    findings["nan"] = Finding(values(model)[str(Name("nan", model.root.role))])
    findings["carries"] = Finding("kept")
    findings |= _alike(model)
    findings["effective_bits"] = effective(findings)
    return findings | tree_in_words(model, Finding(None))


def _integer(inst: Instruction, model: DotModel, arithmetic: IntegerArithmetic) -> Findings:
    """Where sums wrap, or only grow, no operands show in which order they are added."""
    grows = inst.a.kind != "signed" and inst.b.kind != "signed"
    bound: Bound = "undetermined" if arithmetic.overflow == "wrap" or grows else "exact"
    values: dict[str, Value] = {"overflow": arithmetic.overflow, "result_bits": inst.d.bits}
    return {name: Finding(value) for name, value in values.items()} | tree_in_words(model, Finding(None, bound))


def _alike(model: DotModel) -> Findings:
    """Whether sums of several places have one arithmetic, where there are several."""
    sums = [node for node in model.root.nodes() if node.products and isinstance(node.arithmetic, FloatArithmetic)]
    if len(sums) < 2:
        return {}
    return {"sums_alike": Finding("yes" if len({node.arithmetic for node in sums}) == 1 else "no")}

"""What follows from other findings: the order in words, and the bits that a running sum keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from accprobe.infer.findings import Bound, Finding, Findings, meaningless, unsaid, values
from accprobe.isa.instructions import Instruction
from accprobe.model.features import finding_names
from accprobe.model.fields import fields_of
from accprobe.model.record import Value
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum, IntegerArithmetic


def tree_in_words(model: DotModel, order: Finding) -> Findings:
    """The order, and what follows from it: products per fused sum, and where C joins."""
    counts = [len(node.products) for node in model.root.nodes() if node.products]
    products = counts[0] if len(set(counts)) == 1 else "+".join(map(str, counts))
    return {
        "order": replace(order, value=model.order),
        "products_per_sum": Finding(products, order.bound, note=order.note),
        "addend": Finding(_addend(model.root), order.bound, note=order.note),
    }


def _addend(root: FusedSum) -> str:
    """Where C joins, in words."""
    path = [root]
    while not path[-1].has_addend:
        path.append(next(child for child in path[-1].children if any(node.has_addend for node in child.nodes())))
    node, from_last = path[-1], len(path)
    if not node.products:
        return "separate add, last" if from_last == 1 else "separate add"
    if from_last == 1:
        return "last sum" if node.children else "fused sum"
    return f"sum {from_last} from the last" if node.children else "first sum"


def effective(findings: Mapping[str, Finding]) -> Finding:
    """Fraction bits that a running sum keeps: the fewest of alignment bits and result bits, those of separate adds too."""
    alignment, result = findings["alignment_bits"], findings["result_bits"]
    links = [_range(alignment), _range(result), *(_range(findings[add]) for add in ("add_result_bits",) if add in findings)]
    value, most = (min(ends) for ends in zip(*links, strict=True))
    exact = value == most
    evidence = alignment.evidence[:2] + result.evidence[:2]
    return Finding(int(value), "exact" if exact else "at_least", evidence=evidence)


def _range(bits: Finding) -> tuple[float, float]:
    """The fewest and the most bits that a finding leaves; an exact sum has as many as there are."""
    left = bits.candidates if bits.bound == "undetermined" and bits.candidates else (bits.value,)
    numbers = [float(value) if isinstance(value, int) else inf for value in left]
    return min(numbers), inf if bits.bound == "at_least" else max(numbers)


def findings_of(inst: Instruction, model: DotModel) -> Findings:
    """The findings that `characterise` would have, did every feature of the model show through the instruction."""
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return _integer(inst, model, model.root.arithmetic)
    told = set(finding_names()) - meaningless(model)
    known = {name: value for name, value in values(model).items() if name in told and not unsaid(name, value)}
    findings = {name: Finding(value) for name, value in known.items()}
    findings["nan"] = Finding(_nan(inst, model.root.arithmetic))
    findings["carries"] = Finding("kept")
    findings |= _alike(model)
    findings["effective_bits"] = effective(findings)
    return findings | tree_in_words(model, Finding(None))


def _nan(inst: Instruction, arithmetic: FloatArithmetic) -> str:
    """The word in D: NaNs of inner sums are of their own format, which may be wider."""
    return fields_of(type(arithmetic))["nan"].text(arithmetic.nan, inst.d.storage_bits // 4)


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

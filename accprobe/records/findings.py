"""Findings: the value of each feature of an instruction, how far it is known, and the exchanges that show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Literal, get_args

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from accprobe.isa.instructions import Instruction
from accprobe.model.fields import Name, fields_of, finding_names, of_alignment, parsed
from accprobe.model.record import Patterns, Value
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, Role
from accprobe.operands.exchange import Exchange

Bound = Literal["exact", "at_least", "undetermined", "equivalent", "suggested"]

SAME_BITS = "these give the same bits on every operand tried"


@dataclass(frozen=True)
class Finding:
    """One feature of an instruction or product; its name is its key in `Findings`.

    value: in the words of the model.
    bound:
    - "exact".
    - "at_least" if the operand format or the data cannot reach further.
    - "undetermined" if several values explain every result: the `candidates`, if they are known. `value` is one of them.
    - "equivalent" if structures with the values `candidates` give the same bits for all operands. `value` is canonical.
    - "suggested" in a row that is not confirmed.
    note: the reason, in one clause. evidence: the exchanges that decided it.
    """

    value: Value
    bound: Bound = "exact"
    candidates: tuple[Value, ...] = ()
    note: str = ""
    evidence: SkipJsonSchema[Annotated[tuple[Exchange, ...], Field(exclude=True)]] = ()

    @classmethod
    def among(cls, values: Iterable[Value], evidence: tuple[Exchange, ...] = (), note: str = SAME_BITS) -> Finding:
        """Return the only value, or the first of several, which then are candidates."""
        first, *others = dict.fromkeys(values)
        if not others:
            return cls(first, evidence=evidence)
        return cls(first, "undetermined", (first, *others), note, evidence)


# By feature.
Findings = dict[str, Finding]


def feature_values(model: DotModel) -> dict[str, Value]:
    """Return every field of a model, by the name of its finding."""
    known: dict[str, Value] = {name: getattr(model, name) for name in fields_of(DotModel)}
    last = {node.role: node.arithmetic for node in model.root.nodes()}
    for role, arithmetic in last.items():
        digits = arithmetic.result.storage_bits // 4
        for name, record in fields_of(type(arithmetic)).items():
            value = getattr(arithmetic, name)
            known[str(Name(name, role))] = record.text(value, digits) if isinstance(record.values, Patterns) else value
    return known


def is_omitted(feature: str, value: Value) -> bool:
    """Return whether reports omit the feature because it has its usual value."""
    field = parsed(feature).field
    return field is not None and field.tacit and field.is_compiled(value)


def irrelevant_features(model: DotModel) -> set[str]:
    """Return the features of alignment of the sums that keep every bit of their terms."""
    known = feature_values(model)
    exact = [role for role in get_args(Role) if known.get(str(Name("alignment_bits", role)), 0) is None]
    return {str(Name(feature, role)) for role in exact for feature in of_alignment()}


def order_findings(model: DotModel, order: Finding) -> Findings:
    """Return the findings of the summation tree; `order` has their bound, note and evidence."""
    counts = [len(node.products) for node in model.root.nodes() if node.products]
    products = counts[0] if len(set(counts)) == 1 else "+".join(map(str, counts))
    return {
        "order": replace(order, value=model.order),
        "products_per_sum": Finding(products, order.bound, note=order.note),
        "addend": Finding(_addend_place(model.root), order.bound, note=order.note),
    }


def _addend_place(root: FusedSum) -> str:
    path = [root]
    while not path[-1].has_addend:
        path.append(next(child for child in path[-1].children if child.adds_c))
    node, from_last = path[-1], len(path)
    if not node.products:
        return "separate add, last" if from_last == 1 else "separate add"
    if from_last == 1:
        return "last sum" if node.children else "fused sum"
    return f"sum {from_last} from the last" if node.children else "first sum"


def effective_bits_of(findings: Mapping[str, Finding]) -> Finding:
    """Return the fraction bits that a running sum keeps: the fewest of alignment, result, and a separate add's result."""
    names = ("alignment_bits", "result_bits", *(name for name in ("add_result_bits",) if name in findings))
    value, most = (min(ends) for ends in zip(*(_range(findings[name]) for name in names), strict=True))
    evidence = findings["alignment_bits"].evidence[:2] + findings["result_bits"].evidence[:2]
    return Finding(int(value), "exact" if value == most else "at_least", evidence=evidence)


def _range(bits: Finding) -> tuple[float, float]:
    """Return the fewest and the most bits that a finding allows; an exact sum has infinitely many."""
    possible = bits.candidates if bits.bound == "undetermined" and bits.candidates else (bits.value,)
    numbers = [float(value) if isinstance(value, int) else inf for value in possible]
    return min(numbers), inf if bits.bound == "at_least" else max(numbers)


def findings_of(inst: Instruction, model: DotModel) -> Findings:
    """Return the findings of a model with only features that are observable through the instruction."""
    if isinstance(model.root.arithmetic, IntegerArithmetic):
        return _integer_findings(inst, model, model.root.arithmetic)
    names = set(finding_names()) - irrelevant_features(model)
    known = {name: value for name, value in feature_values(model).items() if name in names and not is_omitted(name, value)}
    findings = {name: Finding(value) for name, value in known.items()}
    # The NaN has D's format: inner sums may have a wider one.
    nan = fields_of(FloatArithmetic)["nan"].text(model.root.arithmetic.nan, inst.d.storage_bits // 4)
    findings |= {"nan": Finding(nan), "carries": Finding("kept")}
    sums = [node.arithmetic for node in model.root.nodes() if node.products and isinstance(node.arithmetic, FloatArithmetic)]
    if len(sums) > 1:
        findings["sums_alike"] = Finding("yes" if len(set(sums)) == 1 else "no")
    findings["effective_bits"] = effective_bits_of(findings)
    return findings | order_findings(model, Finding(None))


def _integer_findings(inst: Instruction, model: DotModel, arithmetic: IntegerArithmetic) -> Findings:
    """Return the findings of integers. Sums that wrap, or only grow, hide the order of their additions."""
    grows = inst.a.kind != "signed" and inst.b.kind != "signed"
    bound: Bound = "undetermined" if arithmetic.overflow == "wrap" or grows else "exact"
    values = {"overflow": Finding(arithmetic.overflow), "result_bits": Finding(inst.d.bits)}
    return values | order_findings(model, Finding(None, bound))

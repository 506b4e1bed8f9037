"""Models that the search steps to if no single field explains more, because one field hides another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, product, starmap
from typing import get_args

from accprobe.infer.alternatives.alternative import (
    alternatives_with,
    combinations_of,
    float_arithmetics,
    with_features,
)
from accprobe.infer.alternatives.neighbours import alternatives, floors
from accprobe.infer.findings import Findings
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import Name, fields_of, with_values
from accprobe.model.record import Field, Value
from accprobe.model.tree import (
    SUM_BITS,
    AlignmentRounding,
    Arithmetic,
    DotModel,
    FloatArithmetic,
    FusedSum,
    NanPayload,
    Overflow,
    Product,
    Role,
    Rounding,
    ZeroSign,
)

Variants = Callable[[Instruction, DotModel, Findings], Iterable[DotModel]]


def one_field(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models that differ in one field of all sums of a role, or in the order."""
    return (alternative.model for alternative in alternatives(model, findings) if not alternative.where)


def one_field_of_any_sum(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models that differ in one field of all sums of a role or of only one sum, or in the order."""
    return (alternative.model for alternative in alternatives(model, findings))


def every_floor(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models with every lowest exponent of the alignment that may show."""
    for levels in floors(inst, model):
        yield from (alternative.model for alternative in (levels.none, *levels.above, *levels.below) if alternative)


def _grid(model: DotModel, arithmetic: FloatArithmetic, values: Mapping[str, Iterable[Value]]) -> Iterator[DotModel]:
    """Yield the models with every combination of values of an arithmetic's fields, where its sums allow them."""
    return (alternative.model for alternative in alternatives_with(model, arithmetic, combinations_of(values)))


def alignments_or_results(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models with other alignment bits and roundings; with other result bits, roundings and overflow."""
    yield from _alignments(model)
    for arithmetic, _ in float_arithmetics(model):
        widths = range(arithmetic.result.mantissa_bits + 1)
        ways = {"result_bits": widths, "result_rounding": get_args(Rounding), "overflow": get_args(Overflow)}
        yield from _grid(model, arithmetic, ways)


def _alignments(model: DotModel) -> Iterator[DotModel]:
    ways = {"alignment_bits": (*range(SUM_BITS), None), "alignment_rounding": get_args(AlignmentRounding)}
    for arithmetic, _ in float_arithmetics(model):
        yield from _grid(model, arithmetic, ways)


def undetermined_fields(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models that differ in two or three of the undetermined fields."""
    fields = {**fields_of(FloatArithmetic), **fields_of(DotModel)}
    undetermined = [
        (name, field.words)
        for role, (feature, field) in product(get_args(Role), fields.items())
        if field.words and not field.of_f64
        if (finding := findings.get(name := str(Name(feature, role)))) and finding.bound == "undetermined"
    ]
    for chosen in (*combinations(undetermined, 2), *combinations(undetermined, 3)):
        yield from (with_features(model, words) for words in combinations_of(dict(chosen)))


def alignments_and_exponents(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models with other alignment bits and roundings, and other exponents at which terms are truncated, also of zeros."""
    rules = {name: field for name, field in fields_of(FloatArithmetic).items() if field.place == "products"}
    words = product(*(field.words for field in reversed(rules.values())))
    combined = [dict(zip(rules, reversed(some), strict=True)) for some in words]
    exponents = [some for some in combined if all(_is_meaningful(name, rules[name], some) for name in rules)]
    for aligned in _alignments(model):
        yield from (with_features(aligned, changed) for changed in exponents)


def _is_meaningful(name: str, field: Field, words: Mapping[str, str]) -> bool:
    """Return whether the word of the field is the usual one, or may differ beside the other words."""
    return words[name] == field.words[0] or field.only_where is None or words[field.only_where[0]] == field.only_where[1]


def all_bit_fields(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models with other bits and roundings of terms and results, and other exponents that align them."""
    fields = fields_of(FloatArithmetic).items()
    results, terms = ({name: x.words for name, x in fields if x.words and x.decides == what} for what in ("results", "terms"))
    for arithmetic, _ in float_arithmetics(model):
        if (f := arithmetic.alignment_bits) is not None:
            widths = range(arithmetic.result.mantissa_bits + 1)
            ways: dict[str, Iterable[Value]] = {"result_bits": widths, **results, "alignment_bits": (f - 1, f, f + 1), **terms}
            yield from _grid(model, arithmetic, ways)


@dataclass(frozen=True)
class _Beginning:
    """How a chain begins from zero.

    parts: the products of a first sum that are rounded on their own. first, others: the zero sign of single products and of
    other sums. payload: of NaNs. turned: of two chains, the second is read first.
    """

    parts: tuple[int, ...]
    first: ZeroSign
    others: ZeroSign
    payload: NanPayload
    turned: bool

    def of(self, node: FusedSum) -> FusedSum:
        arithmetic = with_values(node.arithmetic, {"zero_sign": self.others, "nan_payload": self.payload})
        single = with_values(arithmetic, {"zero_sign": self.first})
        if not _may_begin(node):
            turned = self.turned and len(node.terms) == 2 == len(node.children)
            return FusedSum(node.terms[::-1] if turned else node.terms, arithmetic)
        if len(node.terms) == 1:
            return FusedSum(node.terms, single)
        split = [FusedSum((leaf,), single) if i in self.parts else leaf for i, leaf in enumerate(node.terms)]
        return FusedSum(tuple(sorted(split, key=lambda term: isinstance(term, Product))), arithmetic)


def chain_beginnings(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models of chains that round their first product before another joins it (AMX), if a sum has at most two products.

    Such a chain looks like one whose first sum has two products if the result can represent the first of them. A product too
    small or too large for that, and whose NaN passes through, distinguish them. A chain that adds its first product to +0 never
    begins with -0, whatever sign its other sums of zeros have.
    """
    nodes = list(model.root.nodes())
    if not any(_may_begin(node) for node in nodes) or not all(_is_exact(node.arithmetic) for node in nodes):
        return
    payloads: tuple[NanPayload, ...] = get_args(NanPayload)
    if not all(fmt.widens_to(inst.d) for fmt in (inst.a, inst.b, inst.c)):
        payloads = ("dropped",)
    signs = get_args(ZeroSign)
    for beginning in starmap(_Beginning, product(((), (0,), (1,), (0, 1)), signs, signs, payloads, (False, True))):
        yield replace(model, root=model.root.map(beginning.of))


def _may_begin(node: FusedSum) -> bool:
    return len(node.terms) <= 2 and all(isinstance(term, Product) for term in node.terms)


def _is_exact(arithmetic: Arithmetic) -> bool:
    return isinstance(arithmetic, FloatArithmetic) and arithmetic.alignment_bits is None

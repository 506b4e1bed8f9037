"""Models that a search may have to step to: where one field hides another, neither alone explains more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations, product
from typing import get_args

from accprobe.infer.alternatives.alternative import Alternative, floats, with_features, with_fields
from accprobe.infer.alternatives.bound_search import floors, max_width
from accprobe.infer.alternatives.single import alternatives
from accprobe.infer.findings import Findings
from accprobe.isa.instructions import Instruction
from accprobe.model.features import Name
from accprobe.model.fields import fields_of
from accprobe.model.record import Field, Value
from accprobe.model.tree import SUM_BITS, AlignmentRounding, DotModel, FloatArithmetic, Overflow, Role, Rounding

Neighbours = Callable[[Instruction, DotModel, Findings], Iterable[DotModel]]


def in_one_respect(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """One field of all sums of a role, or the order."""
    return (alternative.model for alternative in alternatives(model, findings) if not alternative.where)


def in_one_respect_of_any_sum(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """One field of all sums of a role or of one sum alone, or the order."""
    return (alternative.model for alternative in alternatives(model, findings))


def in_the_floor(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Every lowest exponent of the alignment that may show."""
    return (alternative.model for alternative in _every_floor(inst, model))


def _every_floor(inst: Instruction, model: DotModel) -> Iterator[Alternative]:
    for levels in floors(inst, model):
        yield from (*([levels.none] if levels.none else []), *levels.above, *levels.below)


def in_a_floor_of_exact_sums(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Sums that seem to keep every bit, aligned so that they lose the smallest terms alone: every cut and lowest exponent."""
    for arithmetic, role in floats(model):
        if arithmetic.alignment_bits is None and role == "sum":
            lowest, most = arithmetic.result.min_exponent, max_width(model)["alignment_bits"]
            for level, cut in product(range(lowest - most, lowest + 1), get_args(AlignmentRounding)):
                fields = {"alignment_bits": most, "alignment_rounding": cut, "min_exponent": level}
                yield from _changed(model, arithmetic, fields)


def in_the_smallest_results(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """The lowest exponent, and what else decides about the smallest results."""
    fields = fields_of(FloatArithmetic)
    of_small = [name for name, field in fields.items() if field.place == "underflow" and not field.tacit]
    names = ["result_rounding", *of_small]
    combined = [dict(zip(names, words, strict=True)) for words in product(*(fields[name].words for name in names))]
    smallest = inst.d.min_exponent
    for floor in _every_floor(inst, model):
        level = floor.value
        if level is None or (isinstance(level, int) and smallest - 50 <= level < smallest + 10):
            yield from (with_features(floor.model, changed) for changed in combined)


def in_cuts_or_results(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Other ways to cut terms, and other ways to round results: bits and rounding at once, and overflow, which shows both."""
    yield from _cuts(model)
    for arithmetic, _ in floats(model):
        widths = range(arithmetic.result.mantissa_bits + 1)
        for bits, mode, overflow in product(widths, get_args(Rounding), get_args(Overflow)):
            fields = {"result_bits": bits, "result_rounding": mode, "overflow": overflow}
            yield from _changed(model, arithmetic, fields)


def _cuts(model: DotModel) -> Iterator[DotModel]:
    for arithmetic, _ in floats(model):
        for bits, cut in product((*range(SUM_BITS), None), get_args(AlignmentRounding)):
            yield from _changed(model, arithmetic, {"alignment_bits": bits, "alignment_rounding": cut})


def _changed(model: DotModel, arithmetic: FloatArithmetic, fields: Mapping[str, Value]) -> Iterator[DotModel]:
    changed = with_fields(model, arithmetic, fields)
    if changed:
        yield changed


def in_open_fields(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Two or three of the fields that are not known exactly, changed at once."""
    fields = {**fields_of(FloatArithmetic), **fields_of(DotModel)}
    undecided = [
        (name, field.words)
        for role, (feature, field) in product(get_args(Role), fields.items())
        if field.words and not field.of_f64
        if (finding := findings.get(name := str(Name(feature, role)))) and finding.bound == "undetermined"
    ]
    for chosen in (*combinations(undecided, 2), *combinations(undecided, 3)):
        for words in product(*(words for _, words in chosen)):
            yield with_features(model, {name: word for (name, _), word in zip(chosen, words, strict=True)})


def in_alignments(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """How terms are cut, and which exponents, those of zeros too, decide where."""
    rules = {name: field for name, field in fields_of(FloatArithmetic).items() if field.place == "products"}
    words = product(*(field.words for field in reversed(rules.values())))
    combined = [dict(zip(rules, reversed(some), strict=True)) for some in words]
    exponents = [some for some in combined if all(_has_meaning(name, rules[name], some) for name in rules)]
    for cut in _cuts(model):
        yield from (with_features(cut, changed) for changed in exponents)


def _has_meaning(name: str, field: Field, words: Mapping[str, str]) -> bool:
    """Whether its word is the usual one, or may differ beside the others."""
    return words[name] == field.words[0] or field.only_where is None or words[field.only_where[0]] == field.only_where[1]


def in_everything_about_bits(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Bits and rounding of terms and of results, and which exponents align them: one shows through the other."""
    fields = fields_of(FloatArithmetic).items()
    names = [[name for name, field in fields if field.words and field.decides == what] for what in ("results", "terms")]
    every = ("result_bits", *names[0], "alignment_bits", *names[1])
    of_results, of_terms = ([dict(fields)[name].words for name in some] for some in names)
    for arithmetic, _ in floats(model):
        f = arithmetic.alignment_bits
        if f is None:
            continue
        results: Iterable[tuple[Value, ...]] = product(range(arithmetic.result.mantissa_bits + 1), *of_results)
        terms: list[tuple[Value, ...]] = list(product((f - 1, f, f + 1), *of_terms))
        for result, term in product(results, terms):
            yield from _changed(model, arithmetic, dict(zip(every, (*result, *term), strict=True)))

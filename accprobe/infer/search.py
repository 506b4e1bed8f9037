"""Search: from a model that explains most answers of the device to one that explains all of them.

The neighbours of a model are those that differ from it in one field, in its lowest alignment, in two related fields at once, or
in several fields that the crafted rows left open. As long as a neighbour explains more, it takes the model's place. Most
neighbours are ruled out by a few answers, so those that the model gets wrong and a sample of the others come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, islice, product
from typing import get_args

import numpy as np

from accprobe.infer.answers import Answers, spread
from accprobe.infer.findings import Finding
from accprobe.infer.ladders import floors
from accprobe.infer.rivals import Rival, floats, in_all, rivals, with_features
from accprobe.isa.instructions import Instruction
from accprobe.model.features import Name
from accprobe.model.fields import Field, fields_of
from accprobe.model.tree import (
    SUM_BITS,
    AlignmentRounding,
    DotModel,
    FloatArithmetic,
    Overflow,
    ProductExponent,
    Role,
    Rounding,
    fits,
)

STEPS = 12
"""Changes to a model, at most."""
SCREEN = 60
"""Wrong answers that every neighbour is held against first, among four times as many others."""
FINALISTS = 24
"""Neighbours that explain most of those, held against all answers."""

Findings = dict[str, Finding]
Neighbours = Callable[[Instruction, DotModel, Findings], Iterable[Rival]]


def improvements(
    inst: Instruction, model: DotModel, findings: Findings, answers: Answers, thorough: bool
) -> Iterator[DotModel]:
    """Better and better models, each a neighbour of the one before, until all answers are explained or none is better.

    thorough: among the many neighbours that differ in several fields, or in one sum alone, too.
    """
    kinds = NEAR + FAR if thorough else NEAR
    for _ in range(STEPS):
        better = next(filter(None, (_best(inst, model, n(inst, model, findings), answers) for n in kinds)), None)
        if better is None:
            return
        yield better
        model = better


def neighbours(inst: Instruction, model: DotModel, findings: Findings, thorough: bool) -> Iterator[DotModel]:
    """The neighbours whose sums of a role are all alike, but for other floors."""
    for some in (_plain, _cuts_and_results, *((_open_fields, _alignments, _everything_about_bits) if thorough else ())):
        yield from (rival.model for rival in some(inst, model, findings))


def _best(inst: Instruction, model: DotModel, candidates: Iterable[Rival], answers: Answers) -> DotModel | None:
    wrong = answers.wrong(model)
    if not len(wrong):
        return None
    few = np.unique(np.concatenate([spread(wrong, SCREEN), spread(np.arange(len(answers)), 4 * SCREEN)]))
    known, at_most = answers.some(few), len(np.intersect1d(few, wrong))
    screened = [(len(known.wrong(rival.model)), rival) for rival in candidates]
    screened = sorted((pair for pair in screened if pair[0] < at_most), key=lambda pair: pair[0])
    tried = [(len(answers.wrong(rival.model)), rival) for _, rival in islice(screened, FINALISTS)]
    left, best = min(tried, key=lambda pair: pair[0], default=(len(wrong), None))
    return best.model if best and left < len(wrong) else None


def _plain(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[Rival]:
    """Models that differ in one field of all sums of a role, or in the order."""
    return (rival for rival in rivals(model, findings) if " in " not in rival.value)


def _every_floor(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[Rival]:
    """Every lowest exponent of the alignment that may show."""
    for levels in floors(inst, model):
        yield from (*([levels.none] if levels.none else []), *levels.above, *levels.below)


def _floors_and_more(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[Rival]:
    """The lowest exponent, and what else decides about the smallest results."""
    fields = fields_of(FloatArithmetic)
    names = [name for name, field in fields.items() if name == "result_rounding" or field.felt == "underflow"]
    combined = [dict(zip(names, words, strict=True)) for words in product(*(fields[name].words for name in names))]
    smallest = inst.d.min_exponent
    for floor in _every_floor(inst, model, findings):
        level = floor.changes[0][1]
        if level is None or (isinstance(level, int) and smallest - 50 <= level < smallest + 10):
            for changed in combined:
                yield replace(floor, model=with_features(floor.model, changed))


def _cuts_and_results(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[Rival]:
    """Other ways to cut terms, and other ways to round results: bits and rounding at once, and overflow, which shows both."""
    yield from _cuts(model)
    for arithmetic, role in floats(model):
        widths = range(arithmetic.result.mantissa_bits + 1)
        for bits, mode, overflow in product(widths, get_args(Rounding), get_args(Overflow)):
            changed = replace(arithmetic, result_bits=bits, result_rounding=mode, overflow=overflow)
            yield Rival(str(Name("result_bits", role)), str(bits), in_all(model, arithmetic, changed))


def _cuts(model: DotModel) -> Iterator[Rival]:
    for arithmetic, role in floats(model):
        terms = max(len(node.terms) for node in model.root.nodes() if node.arithmetic == arithmetic)
        for bits, cut in product((*range(SUM_BITS), None), get_args(AlignmentRounding)):
            changed = replace(arithmetic, alignment_bits=bits, alignment_rounding=cut)
            if fits(changed, terms):
                yield Rival(str(Name("alignment_bits", role)), str(bits), in_all(model, arithmetic, changed))


def _open_fields(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[Rival]:
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
            changed = {name: word for (name, _), word in zip(chosen, words, strict=True)}
            yield Rival(chosen[0][0], words[0], with_features(model, changed))


def _alignments(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[Rival]:
    """How terms are cut, and which exponents, those of zeros too, decide where."""
    rules = {name: field for name, field in fields_of(FloatArithmetic).items() if field.felt == "products"}
    words = product(*(field.words for field in reversed(rules.values())))
    combined = [dict(zip(rules, reversed(some), strict=True)) for some in words]
    exponents = [some for some in combined if all(_has_meaning(name, rules[name], some) for name in rules)]
    for rival in _cuts(model):
        for changed in exponents:
            yield replace(rival, model=with_features(rival.model, changed))


def _has_meaning(name: str, field: Field, words: Mapping[str, str]) -> bool:
    """Whether its word is the usual one, or may differ beside the others."""
    return words[name] == field.words[0] or field.only_where is None or words[field.only_where[0]] == field.only_where[1]


def _everything_about_bits(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[Rival]:
    """Bits and rounding of terms and of results, and which exponents align them: one shows through the other."""
    for arithmetic, role in floats(model):
        f = arithmetic.alignment_bits
        if f is None:
            continue
        terms = max(len(node.terms) for node in model.root.nodes() if node.arithmetic == arithmetic)
        modes = product(range(arithmetic.result.mantissa_bits + 1), get_args(Rounding))
        cuts = product((f - 1, f, f + 1), get_args(AlignmentRounding), get_args(ProductExponent))
        for (result_bits, mode), (aligned, cut, exponent) in product(modes, list(cuts)):
            changed = replace(
                arithmetic,
                alignment_bits=aligned,
                alignment_rounding=cut,
                result_bits=result_bits,
                result_rounding=mode,
                product_exponent=exponent,
            )
            if fits(changed, terms):
                yield Rival(str(Name("result_bits", role)), str(result_bits), in_all(model, arithmetic, changed))


def _one_sum(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[Rival]:
    """Models that differ in one sum alone, among all that differ in one respect."""
    return rivals(model, findings)


NEAR: tuple[Neighbours, ...] = (_plain, _every_floor, _cuts_and_results)
FAR: tuple[Neighbours, ...] = (_open_fields, _alignments, _floors_and_more, _everything_about_bits, _one_sum)
"""The last resort is one sum that differs from the others."""

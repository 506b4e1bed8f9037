"""The contest: the inferred model against its rivals, and what it leaves of the findings.

A rival is held against random operands of every kind, against everything that the experiments asked, and against operands made
for where it may differ from the model (`separation`). One that explains all of it has survived. The device is asked
all of those operands, so that the model meets them too. A feature is exact where no rival with another value of it survives;
else the survivors' values are what is left of it. Where a neighbouring number survives, the next one is tried too; where
several fields decide together, rivals that change them at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import get_args

import numpy as np

from accprobe.devices.protocol import Device
from accprobe.infer.alternatives.alternative import Alternative
from accprobe.infer.alternatives.bound_search import Floors, coarser_bounds, floors, further, max_width, of_one_cut
from accprobe.infer.alternatives.nonstandard import nonstandard_alternatives
from accprobe.infer.alternatives.several import differing, groups, pairs
from accprobe.infer.alternatives.single import alternatives
from accprobe.infer.distinguishing import Answers, Batch, search_for
from accprobe.infer.findings import Characterisation, Finding, Findings, values
from accprobe.infer.query_log import NONE, Contradictions, LogEntry, QueryLog
from accprobe.infer.summary import effective, tree_in_words
from accprobe.isa.instructions import Instruction
from accprobe.model.features import Name, parsed
from accprobe.model.record import Value
from accprobe.model.tree import DotModel, Role
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import joined

# Dot products of those that an experiment asked at once that every rival meets, at most.
MAX_PER_QUERY = 600

# Random dot products of each kind that every rival meets.
OF_A_KIND = 48

# Operands made for where a rival may differ from the model: first, and where those and all that was asked left it.
FEW, MANY = 1024, 4096

# Which of a row of rivals are asked about too, counted from the first that is contradicted, or a little before.
BEYOND = (0, 1, 2, 4, 7)

# How many a little is: rivals that few operands leave alike may still differ in one dot product of thousands.
LAST_SURVIVING = 2


@dataclass(frozen=True)
class Falsification:
    """How many rivals were tried, and those that explain everything seen as well as the inferred model.

    wrong: what the model does not explain of all that the device was ever asked.
    """

    tried: int
    surviving: tuple[Alternative, ...]
    wrong: Contradictions = NONE


def falsify(device: Device, inst: Instruction, result: Characterisation, seed: int = 0) -> Falsification:
    """Hold every rival of the inferred model against the device, unless that contradicts itself: nothing is settled then.

    Raises DeviceError where the device fails.
    """
    log = QueryLog.of(device, inst)
    if result.model is None or log.unstable:
        return Falsification(0, ())
    trial = _Trial(log, result.model, result.asked, seed)
    beside = (*alternatives(result.model, result.findings), *nonstandard_alternatives(inst, result.model))
    surviving = [alternative for alternative in beside if trial.survives(alternative)]
    for alternative in list(surviving):
        surviving += _while_surviving(list(further(result.model, alternative)), trial)
    for levels in floors(inst, result.model):
        surviving += _surviving_floors(levels, trial)
    for candidates in coarser_bounds(result.model):
        alike = len(_surviving_prefix(candidates, trial))
        _query_near_boundary(candidates[max(alike - LAST_SURVIVING, 0) :], trial)
    left = {(field, value) for alternative in surviving for field, value in alternative.changes}
    for alternative in (*pairs(result.model), *groups(result.model), *differing(result.model, result.others)):
        if not left.issuperset(alternative.changes) and trial.survives(alternative):
            same = [alternative, *_while_surviving(list(of_one_cut(result.model, alternative)), trial)]
            surviving += same
            left |= {change for one in same for change in one.changes}
    return Falsification(trial.tried, tuple(surviving), log.contradictions(result.model))


def _while_surviving(candidates: Sequence[Alternative], trial: _Trial) -> Sequence[Alternative]:
    """Those up to the first that does not survive."""
    alike = list(takewhile(trial.survives, candidates))
    _query_near_boundary(candidates[len(alike) + 1 :], trial)
    return alike


def _query_near_boundary(candidates: Sequence[Alternative], trial: _Trial) -> None:
    """A few of the rivals: a model that is wrong most likely is so where one of them is not."""
    for offset in BEYOND:
        if offset < len(candidates):
            trial.query_for(candidates[offset])


def _surviving_prefix(candidates: Sequence[Alternative], trial: _Trial) -> Sequence[Alternative]:
    """The first of the rivals that survive few operands, where after one that does not no other does: by bisection."""
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        if trial.survives(candidates[middle], thorough=False):
            low = middle + 1
        else:
            high = middle
    return candidates[:low]


def _thoroughly_surviving(candidates: Sequence[Alternative], trial: _Trial) -> Sequence[Alternative]:
    """As `_alike`, the last of them with all operands that can be looked for."""
    alike = _surviving_prefix(candidates, trial)
    while alike and not trial.survives(alike[-1]):
        alike = alike[:-1]
    return alike


def _surviving_floors(levels: Floors, trial: _Trial) -> list[Alternative]:
    """Without a floor every lower one is left too, so the highest stands for all."""
    above = _thoroughly_surviving(levels.above, trial)
    if levels.none is None:
        return list(above[-1:])
    if trial.survives(levels.none):
        return [levels.none, *above[-1:]]
    return [*above, *_thoroughly_surviving(levels.below, trial)]


class _Trial:
    """Where one model's rivals are tried."""

    def __init__(self, log: QueryLog, model: DotModel, asked: list[LogEntry], seed: int) -> None:
        self._log, self._inst, self._model, self._seed = log, log.inst, model, seed
        self._tried: set[Alternative] = set()
        self._search = search_for(log.inst, model, seed)
        self._known = asked
        self._answered: dict[Batch, Answers] = {}
        self._of_field: dict[tuple[str, int], dict[Batch, None]] = {}

    @property
    def tried(self) -> int:
        """Rivals, each counted once."""
        return len(self._tried)

    def survives(self, alternative: Alternative, thorough: bool = True) -> bool:
        """Whether nothing contradicts the rival. thorough: nor any of many more operands looked for."""
        self._tried.add(alternative)
        return (
            self._random.explained_by(alternative.model)
            and self._explains_made(alternative, FEW, narrow=False)
            and (not self._known or self._asked.explained_by(alternative.model))
            and (not thorough or self._explains_made(alternative, MANY))
        )

    def query_for(self, alternative: Alternative) -> None:
        """For the sake of the model, which may be wrong there, even where the rival is contradicted already."""
        self._tried.add(alternative)
        self._made_for(alternative, MANY)

    def _explains_made(self, alternative: Alternative, n: int, narrow: bool = True) -> bool:
        return all(answers.explained_by(alternative.model) for answers in self._made_for(alternative, n, narrow))

    def _made_for(self, alternative: Alternative, n: int, narrow: bool = True) -> list[Answers]:
        """Operands made for the fields in which it differs; the device is asked all of them, as the model may be wrong too.

        A rival that differs in several fields meets those too that were made for one that differs in one of them alone.
        """
        fields = [field for field, _ in alternative.changes]
        made = self._search.made_for(alternative.model, fields, n, narrow)
        self._answered |= {key: self._ask(expected) for key, expected in made.items() if key not in self._answered}
        keys = dict.fromkeys(made)
        if len(fields) == 1:
            self._of_field.setdefault((fields[0], n), {}).update(keys)
        else:
            for field in fields:
                keys |= self._of_field.get((field, n), {})
        return [self._answered[key] for key in keys]

    @cached_property
    def _random(self) -> Answers:
        """Random dot products of every kind."""
        rng = np.random.default_rng(self._seed)
        operands = joined([draw(kind, self._inst, rng, OF_A_KIND) for kind in kinds(self._inst)])
        return self._ask(Answers(self._inst, operands, self._model))

    @cached_property
    def _asked(self) -> Answers:
        """What the experiments asked; of very many dot products at once, every so many."""
        some = [slice(None, None, -(-len(entry.d) // MAX_PER_QUERY)) for entry in self._known]
        operands = joined([entry.request[part] for entry, part in zip(self._known, some, strict=True)])
        d = np.concatenate([entry.d[part] for entry, part in zip(self._known, some, strict=True)])
        return Answers(self._inst, operands, d)

    def _ask(self, expected: Answers) -> Answers:
        """The same with the device's answers, where those are not the expected ones of the model."""
        d = self._log.query(expected.operands, self._model, expected.d)
        return expected if np.array_equal(d, expected.d) else Answers(self._inst, expected.operands, d)


def resolve_findings(findings: Mapping[str, Finding], falsification: Falsification, model: DotModel | None = None) -> Findings:
    """The findings as the contest leaves them.

    model: the one that was challenged, where nothing contradicted it. Features of which no other value survived are then
    exactly as it has them.
    """
    left: dict[str, list[Value]] = {}
    for alternative in falsification.surviving:
        for field, value in alternative.changes:
            if value not in left.setdefault(field, []):
                left[field].append(value)
    known, most = (values(model), max_width(model)) if model else ({}, {})
    changed = dict(findings)
    for field in dict.fromkeys((*findings, *left)):
        finding = findings.get(field, Finding(None))
        if field in left:
            changed[field] = _open(field, replace(finding, value=known.get(field, finding.value)), left[field], most)
        elif field in known and finding.bound != "exact":
            changed[field] = replace(finding, value=known[field], bound="exact", candidates=(), note="")
    if "effective_bits" in changed:
        changed["effective_bits"] = effective(changed)
    if model:
        changed |= tree_in_words(model, changed["order"]) | _alike_sums(model, changed)
    return changed


def _alike_sums(model: DotModel, findings: Mapping[str, Finding]) -> Findings:
    """Whether the sums of a role are alike, where that was asked."""
    changed = {}
    for role in get_args(Role):
        name = str(Name("sums_alike", role))
        finding = findings.get(name)
        if finding and finding.bound != "exact":
            different = {node.arithmetic for node in model.root.nodes() if node.role == role}
            value = "yes" if len(different) == 1 else "no"
            changed[name] = replace(finding, value=value, bound="exact", note="")
    return changed


def _open(feature: str, finding: Finding, others: list[Value], most: Mapping[str, int]) -> Finding:
    """The finding with other values left beside its own; most: the most bits that features can have."""
    note = finding.note or "these give the same bits on every operand tried"
    everything = (finding.value, *others)
    numbers = [value for value in everything if isinstance(value, int)]
    if feature in most and max(numbers) == most[feature]:
        return replace(finding, value=min(numbers), bound="at_least", candidates=(), note=note)
    if parsed(feature).feature == "min_exponent" and None in everything:
        return replace(
            finding,
            value=None,
            bound="undetermined",
            candidates=("none", *(f"at most {max(n)}" for n in [numbers] if n)),
            note=note,
        )
    return replace(finding, bound="undetermined", candidates=tuple("none" if v is None else v for v in everything), note=note)

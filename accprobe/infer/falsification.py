"""Falsification: tests the inferred model against alternative models, and resolves the findings accordingly.

An alternative is compared with the results of random operands of every kind and of a sample of the experiments' queries. It is
also compared on operands on which it may differ from the model (`distinguishing`). One that explains all of them survives. The
device is queried for the random and the made operands, so that the model is tested on them too. A feature is exact if no
alternative with another value of it survives; otherwise the values of the survivors are candidates. If they reach the largest
possible width, the smallest is a lower bound. If a neighbouring number survives, the next one is tried too; if several fields
decide together, alternatives that change them at once are tried, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, takewhile
from typing import get_args

import numpy as np

from accprobe.infer.alternative import Alternative
from accprobe.infer.characterise import Characterisation
from accprobe.infer.distinguishing import Batch, Results, last_search
from accprobe.infer.neighbours import (
    Floors,
    alternatives,
    as_alternatives,
    coarser_bounds,
    field_pairs,
    floors,
    further,
    groups,
    max_width,
    unusual_alternatives,
)
from accprobe.infer.query_log import NONE, Contradictions, LogEntry, QueryLog
from accprobe.infer.refine import several_fields
from accprobe.model.fields import Name, parsed
from accprobe.model.record import Value
from accprobe.model.tree import DotModel, Role
from accprobe.operands.kinds import draw_every_kind
from accprobe.operands.request import alike, joined
from accprobe.records.findings import SAME_BITS, Finding, Findings, effective_bits_of, feature_values, order_findings

MAX_PER_QUERY = 600  # Dot products of one query of the experiments that every alternative is compared with, at most.
RANDOM_PER_KIND = 48  # Random dot products of each kind that every alternative is compared with.
FEW, MANY = 1024, 4096  # Operands made where an alternative may differ from the model: at first, and if it survives these.

# The device is also queried for some contradicted alternatives of a series. Their offsets count from the one after the first
# contradicted, or from LAST_SURVIVING before the first.
BEYOND = (0, 1, 2, 4, 7)

# Alternatives that few operands do not distinguish may still differ in one dot product of thousands: how many before the first
# contradicted one are probed.
LAST_SURVIVING = 2


@dataclass(frozen=True)
class Falsification:
    """The number of alternatives considered, and the surviving ones.

    tried: alternatives that were tested, or only used to choose operands for queries.
    contradictions: what the inferred model does not explain of all results ever received.
    """

    tried: int
    surviving: tuple[Alternative, ...]
    contradictions: Contradictions = NONE


def falsify(log: QueryLog, result: Characterisation, seed: int = 0) -> Falsification:
    """Compare each alternative of the inferred model with the device, if there is a model and no result is unstable.

    Raises DeviceError if the device fails.
    """
    model, inst = result.model, log.inst
    if model is None or log.unstable:
        return Falsification(0, ())
    trial = _Trial(log, model, result.queries, seed)
    single = (*alternatives(model, result.findings), *unusual_alternatives(inst, model))
    surviving = [alternative for alternative in single if trial.survives(alternative)]
    for alternative in list(surviving):
        surviving += _while_surviving(further(model, alternative), trial)
    for levels in floors(inst, model):
        surviving += _surviving_floors(levels, trial)
    # These only choose operands to query. Their survivors passed few operands, so they are not returned.
    for candidates in coarser_bounds(model):
        _query_near_boundary(candidates[max(_surviving_prefix(candidates, trial) - LAST_SURVIVING, 0) :], trial)
    possible = {(field, value) for alternative in surviving for field, value in alternative.changes}
    chosen_on = None if log.contradictions(model).count else result.chosen_on
    others = as_alternatives(model, several_fields(inst, model, result.findings) if chosen_on else ())
    for alternative in chain(field_pairs(model), groups(model), others):
        if possible.issuperset(alternative.changes) or (chosen_on and not chosen_on.explained_by(alternative.model)):
            continue
        if trial.survives(alternative):
            same = [alternative, *_while_surviving(further(model, alternative), trial)]
            surviving += same
            possible |= {change for one in same for change in one.changes}
    return Falsification(trial.tried, tuple(surviving), log.contradictions(model))


def _while_surviving(candidates: Sequence[Alternative], trial: _Trial) -> list[Alternative]:
    """Return the alternatives before the first that does not survive."""
    surviving = list(takewhile(trial.survives, candidates))
    _query_near_boundary(candidates[len(surviving) + 1 :], trial)
    return surviving


def _query_near_boundary(candidates: Sequence[Alternative], trial: _Trial) -> None:
    """Probe a few of the alternatives: a wrong model is most likely wrong where one of them is right."""
    for offset in (offset for offset in BEYOND if offset < len(candidates)):
        trial.query_for(candidates[offset])


def _surviving_prefix(candidates: Sequence[Alternative], trial: _Trial) -> int:
    """Count by bisection the first alternatives that survive few operands, if no other does after one that does not."""
    return bisect_left(candidates, True, key=lambda alternative: not trial.survives(alternative, thorough=False))


def _thoroughly_surviving(candidates: Sequence[Alternative], trial: _Trial) -> list[Alternative]:
    """Return the first alternatives that survive few operands. The last one survives many operands too."""
    surviving = list(candidates[: _surviving_prefix(candidates, trial)])
    while surviving and not trial.survives(surviving[-1]):
        surviving.pop()
    return surviving


def _surviving_floors(levels: Floors, trial: _Trial) -> list[Alternative]:
    """Return the surviving lowest exponents. A model without one allows every lower one: only the highest is returned."""
    above = _thoroughly_surviving(levels.above, trial)
    if levels.none is None:
        return above[-1:]
    if trial.survives(levels.none):
        return [levels.none, *above[-1:]]
    return [*above, *_thoroughly_surviving(levels.below, trial)]


class _Trial:
    """Compares the alternatives of one model with the device. queries: made by the experiments."""

    def __init__(self, log: QueryLog, model: DotModel, queries: list[LogEntry], seed: int) -> None:
        self._log, self._inst, self._model, self._seed = log, log.inst, model, seed
        self._tried: set[Alternative] = set()
        self._search = last_search(alike(log.inst), model, seed)
        self._queries = queries
        self._results: dict[Batch, Results] = {}
        self._of_field: dict[tuple[str, int], dict[Batch, None]] = {}

    @property
    def tried(self) -> int:
        return len(self._tried)

    def survives(self, alternative: Alternative, thorough: bool = True) -> bool:
        """Return whether random, logged and FEW made operands allow the alternative. thorough: and MANY made operands, too."""
        self._tried.add(alternative)
        return (
            self._random.explained_by(alternative.model)
            and self._explains_made(alternative, FEW, narrow=False)
            and (not self._queries or self._of_experiments.explained_by(alternative.model))
            and (not thorough or self._explains_made(alternative, MANY))
        )

    def query_for(self, alternative: Alternative) -> None:
        """Query the device where the alternative differs: the model may be wrong there, even if the alternative is too."""
        self._tried.add(alternative)
        self._made_for(alternative, MANY)

    def _explains_made(self, alternative: Alternative, n: int, narrow: bool = True) -> bool:
        return all(results.explained_by(alternative.model) for results in self._made_for(alternative, n, narrow))

    def _made_for(self, alternative: Alternative, n: int, narrow: bool = True) -> list[Results]:
        """Return the device's results of operands made for the fields in which the alternative differs.

        For an alternative in several fields, also those that were made for one of the fields alone.
        """
        fields = [field for field, _ in alternative.changes]
        made = self._search.made_for(alternative.model, fields, n, narrow)
        self._results |= {key: self._query(expected) for key, expected in made.items() if key not in self._results}
        keys = dict.fromkeys(made)
        if len(fields) == 1:
            self._of_field.setdefault((fields[0], n), {}).update(keys)
        else:
            for field in fields:
                keys |= self._of_field.get((field, n), {})
        return [self._results[key] for key in keys]

    @cached_property
    def _random(self) -> Results:
        rng = np.random.default_rng(self._seed)
        return self._query(Results(self._inst, draw_every_kind(self._inst, rng, RANDOM_PER_KIND), self._model))

    @cached_property
    def _of_experiments(self) -> Results:
        """Return queries of the experiments; of a query of very many dot products, evenly spread ones."""
        parts = [(entry, slice(None, None, -(-len(entry.d) // MAX_PER_QUERY))) for entry in self._queries]
        operands = joined([entry.request[part] for entry, part in parts])
        return Results(self._inst, operands, np.concatenate([entry.d[part] for entry, part in parts]))

    def _query(self, expected: Results) -> Results:
        """Return the device's results of the operands of the model's results `expected`."""
        d = self._log.query(expected.operands, expected.d, self._model)
        return expected if np.array_equal(d, expected.d) else Results(self._inst, expected.operands, d)


def resolve_findings(findings: Mapping[str, Finding], falsification: Falsification, model: DotModel | None = None) -> Findings:
    """Return the findings after falsification.

    model: the tested model, if nothing contradicted it. A feature then has exactly its value if no other value survived.
    """
    others: dict[str, dict[Value, None]] = {}
    for alternative in falsification.surviving:
        for field, value in alternative.changes:
            others.setdefault(field, {})[value] = None
    known, most = (feature_values(model), max_width(model)) if model else ({}, {})
    changed = dict(findings)
    for field in dict.fromkeys((*findings, *others)):
        finding = findings.get(field, Finding(None))
        if field in others:
            changed[field] = _undetermined(field, replace(finding, value=known.get(field, finding.value)), others[field], most)
        elif field in known and finding.bound != "exact":
            changed[field] = replace(finding, value=known[field], bound="exact", candidates=(), note="")
    if "effective_bits" in changed:
        changed["effective_bits"] = effective_bits_of(changed)
    if model:
        changed |= order_findings(model, changed["order"]) | _sums_alike(model, changed)
    return changed


def _sums_alike(model: DotModel, findings: Mapping[str, Finding]) -> Findings:
    """Set whether all sums of one role (sum or add) have the same arithmetic, if there is a finding on it."""
    changed = {}
    for role in get_args(Role):
        name = str(Name("sums_alike", role))
        finding = findings.get(name)
        if finding and finding.bound != "exact":
            different = {node.arithmetic for node in model.root.nodes() if node.role == role}
            value = "yes" if len(different) == 1 else "no"
            changed[name] = replace(finding, value=value, bound="exact", note="")
    return changed


def _undetermined(feature: str, finding: Finding, others: Mapping[Value, None], most: Mapping[str, int]) -> Finding:
    """Return the finding with other values beside its own; most: the most bits that features can have."""
    note = finding.note or SAME_BITS
    everything = (finding.value, *others)
    numbers = [value for value in everything if isinstance(value, int)]
    if feature in most and max(numbers) == most[feature]:
        return replace(finding, value=min(numbers), bound="at_least", candidates=(), note=note)
    candidates: tuple[Value, ...] = tuple("none" if value is None else value for value in everything)
    if parsed(feature).feature == "min_exponent" and None in everything:
        finding = replace(finding, value=None)
        candidates = ("none", *(f"at most {max(n)}" for n in [numbers] if n))
    return replace(finding, bound="undetermined", candidates=candidates, note=note)

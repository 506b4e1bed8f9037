"""The pipeline for one instruction: infer a model, falsify its alternatives, verify it against every result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from accprobe.devices.protocol import Device, StoredProducts
from accprobe.infer.characterise import characterise
from accprobe.infer.falsification import Falsification, falsify, resolve_findings
from accprobe.infer.findings import Characterisation
from accprobe.infer.query_log import Contradictions, QueryLog
from accprobe.isa import tile
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample, Exchange
from accprobe.verify.coverage import cover
from accprobe.verify.outcome import Queries, TileCoverage, Verification
from accprobe.verify.random import verify
from accprobe.verify.shrink import shrink

# Repetitions of the inference for a model that some result contradicts, at most.
RECONSIDERED = 5


def measured(
    log: QueryLog, dots: int, seed: int, stored: StoredProducts | None = None
) -> tuple[Characterisation, Falsification, Verification | None]:
    """Infer, falsify and verify; once more if only the verification contradicts the model. stored: as in `cover`."""
    known: list[Exchange] = []
    for again in range(2):
        result, falsification = settle(log, log.inst, seed, known)
        if result.model is None:
            return result, falsification, None
        contradictions = falsification.contradictions
        done = checked(log, result.model, contradictions, dots, seed + again, stored)
        if not done.mismatches or contradictions.count or log.unstable or not log.budget.remaining:
            break
        known = [log.dense(wrong.exchange) for wrong in log.contradictions(result.model).sample]
    return result, falsification, done


def settle(
    device: Device, inst: Instruction, seed: int = 0, counterexamples: Sequence[Exchange] = ()
) -> tuple[Characterisation, Falsification]:
    """Infer an instruction and falsify the alternatives of its model.

    counterexamples: dot products that the model has to explain too. If any result contradicts the model, the inference is
    repeated with that result; not on an unstable device, not after the budget of the search is spent, and not if it ends with
    the same model.
    """
    log = QueryLog.of(device, inst)
    known, contradicted = list(counterexamples), None
    for again in range(RECONSIDERED + 1):
        result = characterise(log, inst, known)
        falsification = falsify(log, inst, result, seed + again)
        wrong = falsification.contradictions
        if not wrong.count or result.model == contradicted or log.unstable or not log.budget.remaining:
            break
        contradicted = result.model
        known += [log.dense(found.exchange) for found in wrong.sample]
    model = None if wrong.count or log.unstable else result.model
    return replace(result, findings=resolve_findings(result.findings, falsification, model)), falsification


def checked(
    log: QueryLog, model: DotModel, known: Contradictions, dots: int, seed: int, stored: StoredProducts | None = None
) -> Verification:
    """Compare the model with fresh dot products and with those that cover it, then repeat a share of all queries.

    Coverage of a simulated device is not measured: a model compared with itself shows nothing.
    """
    compare = verify if log.kind == "simulated" else partial(cover, stored=stored)
    done = compare(log, log.inst, model, dots, seed)
    log.repeat(np.random.default_rng([seed, dots]))
    found = [*known.sample, *filter(None, [done.counterexample])]
    if found or log.unstable:
        log.localize_fault(found)
    covered = None
    if log.covered.size:
        covered = TileCoverage(int(log.covered.sum()), log.covered.size, tile.smallest_part(log.inst, log.differing))
    return replace(
        done,
        counterexample=_smallest(log, model, found),
        results=log.dots,
        contradicting=known.count + done.mismatches,
        tile=covered,
        queries=Queries(sum(log.sizes.values()), min(log.sizes), max(log.sizes)),
    )


def instability(log: QueryLog) -> str:
    """Return, in words, when and where results changed; "" if none did."""
    if not log.unstable:
        return ""
    part = tile.smallest_part(log.inst, log.differing)
    if part:
        where = f", in {part} of the tile"
    else:
        where = ", occasionally, at no tile element always" if log.covered.size and not log.differing.any() else ""
    return f"{log.unstable:,} dot products gave different bits when repeated, {log.first_change}{where}"


def _smallest(log: QueryLog, model: DotModel, found: list[Counterexample]) -> Counterexample | None:
    """Return the change, if results changed; otherwise a counterexample with as few products as possible."""
    if log.changed or not found:
        return log.changed
    few = min(found, key=lambda one: sum(digit != "0" for digit in one.exchange.a))
    inst = log.instruction(few.exchange)
    return shrink(partial(log.dot, inst), inst, model, few) or few

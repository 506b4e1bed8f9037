"""What is settled of an instruction: a model, held against every answer that the device ever gave, and against fresh ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from accprobe.devices.protocol import Device
from accprobe.devices.stored import StoredProducts
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

# How often a model that some answer contradicts is looked for anew, at most.
RECONSIDERED = 5


def measured(
    log: QueryLog, dots: int, seed: int, stored: StoredProducts | None = None
) -> tuple[Characterisation, Falsification, Verification | None]:
    """What is settled of an instruction, and the verification of its model; settled once more where that alone refutes it.

    stored: as in `cover`.
    """
    known: list[Exchange] = []
    for again in range(2):
        result, falsification = settle(log, log.inst, seed, known)
        if result.model is None:
            return result, falsification, None
        done = checked(log, result.model, falsification.wrong, dots, seed + again, stored)
        if not done.mismatches or falsification.wrong.count or log.unstable or not log.budget.left:
            break
        known = [log.dense(wrong.exchange) for wrong in log.contradictions(result.model).sample]
    return result, falsification, done


def settle(
    device: Device, inst: Instruction, seed: int = 0, known: Sequence[Exchange] = ()
) -> tuple[Characterisation, Falsification]:
    """What is inferred of an instruction, and how its rivals fared. known: dot products that the model has to explain too.

    Where any answer refutes the model, it is inferred anew, so that it explains that one too; not on a device that changes
    its mind, not once the budget of the search is spent, and not where the same model is the nearest again.
    """
    log = QueryLog.of(device, inst)
    known, refuted = list(known), None
    for again in range(RECONSIDERED + 1):
        result = characterise(log, inst, known)
        falsification = falsify(log, inst, result, seed + again)
        if not falsification.wrong.count or result.model == refuted or log.unstable or not log.budget.left:
            break
        refuted = result.model
        known += [log.dense(wrong.exchange) for wrong in falsification.wrong.sample]
    model = None if falsification.wrong.count or log.unstable else result.model
    return replace(result, findings=resolve_findings(result.findings, falsification, model)), falsification


def checked(
    log: QueryLog, model: DotModel, known: Contradictions, dots: int, seed: int, stored: StoredProducts | None = None
) -> Verification:
    """The model against fresh dot products and those that cover it, and a share of all asked against their first answers.

    A simulated device is not covered: of a model against itself that would prove nothing.
    """
    compare = verify if log.kind == "simulated" else partial(cover, stored=stored)
    done = compare(log, log.inst, model, dots, seed)
    log.repeat(np.random.default_rng([seed, dots]))
    found = [*known.sample, *filter(None, [done.counterexample])]
    if found or log.unstable:
        log.localize_fault(found)
    return replace(
        done,
        counterexample=_smallest(log, model, found),
        results=log.dots,
        contradicting=known.count + done.mismatches,
        tile=_cells(log),
        queries=Queries(sum(log.sizes.values()), min(log.sizes), max(log.sizes)),
    )


def instability(log: QueryLog) -> str:
    """When and where answers changed, in words; "" where none did."""
    if not log.unstable:
        return ""
    part = tile.smallest_part(log.inst, log.differing)
    if part:
        where = f", in {part} of the tile"
    else:
        where = ", now and then, in no cell always" if log.read.size and not log.differing.any() else ""
    return f"{log.unstable:,} dot products gave other bits when asked again, {log.first_change}{where}"


def _smallest(log: QueryLog, model: DotModel, found: list[Counterexample]) -> Counterexample | None:
    """The change, where answers changed, else a contradiction with as few products as still show it."""
    if log.changed or not found:
        return log.changed
    few = min(found, key=lambda one: sum(digit != "0" for digit in one.exchange.a))
    inst = log.instruction(few.exchange)
    return shrink(partial(log.dot, inst), inst, model, few) or few


def _cells(log: QueryLog) -> TileCoverage | None:
    if not log.read.size:
        return None
    wrong = tile.smallest_part(log.inst, log.differing)
    return TileCoverage(int(log.read.sum()), log.read.size, wrong)

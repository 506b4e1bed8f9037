"""What is settled of an instruction: a model, held against every answer that the device ever gave, and against fresh ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from accprobe.devices.protocol import Device
from accprobe.devices.stored import StoredProducts
from accprobe.infer.characterise import characterise
from accprobe.infer.contest import Contest, challenge, settled
from accprobe.infer.findings import Characterisation
from accprobe.infer.journal import Contradictions, Journal
from accprobe.isa import tile
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample, Exchange
from accprobe.verify.coverage import cover
from accprobe.verify.outcome import Cells, Queries, Verification
from accprobe.verify.random import verify
from accprobe.verify.shrink import shrink

RECONSIDERED = 5
"""How often a model that some answer contradicts is looked for anew, at most."""


def measured(
    journal: Journal, dots: int, seed: int, stored: StoredProducts | None = None
) -> tuple[Characterisation, Contest, Verification | None]:
    """What is settled of an instruction, and the verification of its model; settled once more where that alone refutes it.

    stored: as in `cover`.
    """
    known: list[Exchange] = []
    for again in range(2):
        result, contest = settle(journal, journal.inst, seed, known)
        if result.model is None:
            return result, contest, None
        done = checked(journal, result.model, contest.wrong, dots, seed + again, stored)
        if not done.mismatches or contest.wrong.count or journal.unstable or not journal.budget.left:
            break
        known = [journal.dense(wrong.exchange) for wrong in journal.contradictions(result.model).some]
    return result, contest, done


def settle(
    device: Device, inst: Instruction, seed: int = 0, known: Sequence[Exchange] = ()
) -> tuple[Characterisation, Contest]:
    """What is inferred of an instruction, and how its rivals fared. known: dot products that the model has to explain too.

    Where any answer refutes the model, it is inferred anew, so that it explains that one too; not on a device that changes
    its mind, not once the budget of the search is spent, and not where the same model is the nearest again.
    """
    journal = Journal.of(device, inst)
    known, refuted = list(known), None
    for again in range(RECONSIDERED + 1):
        result = characterise(journal, inst, known)
        contest = challenge(journal, inst, result, seed + again)
        if not contest.wrong.count or result.model == refuted or journal.unstable or not journal.budget.left:
            break
        refuted = result.model
        known += [journal.dense(wrong.exchange) for wrong in contest.wrong.some]
    model = None if contest.wrong.count or journal.unstable else result.model
    return replace(result, findings=settled(result.findings, contest, model)), contest


def checked(
    journal: Journal, model: DotModel, known: Contradictions, dots: int, seed: int, stored: StoredProducts | None = None
) -> Verification:
    """The model against fresh dot products and those that cover it, and a share of all asked against their first answers.

    A simulated device is not covered: of a model against itself that would prove nothing.
    """
    compare = verify if journal.kind == "simulated" else partial(cover, stored=stored)
    done = compare(journal, journal.inst, model, dots, seed)
    journal.repeat(np.random.default_rng([seed, dots]))
    found = [*known.some, *filter(None, [done.counterexample])]
    if found or journal.unstable:
        journal.look_into(found)
    return replace(
        done,
        counterexample=_smallest(journal, model, found),
        answers=journal.dots,
        contradicting=known.count + done.mismatches,
        cells=_cells(journal),
        queries=Queries(sum(journal.sizes.values()), min(journal.sizes), max(journal.sizes)),
    )


def instability(journal: Journal) -> str:
    """When and where answers changed, in words; "" where none did."""
    if not journal.unstable:
        return ""
    part = tile.smallest_part(journal.inst, journal.differing)
    if part:
        where = f", in {part} of the tile"
    else:
        where = ", now and then, in no cell always" if journal.read.size and not journal.differing.any() else ""
    return f"{journal.unstable:,} dot products gave other bits when asked again, {journal.when}{where}"


def _smallest(journal: Journal, model: DotModel, found: list[Counterexample]) -> Counterexample | None:
    """The change, where answers changed, else a contradiction with as few products as still show it."""
    if journal.changed or not found:
        return journal.changed
    few = min(found, key=lambda one: sum(digit != "0" for digit in one.exchange.a))
    inst = journal.instruction(few.exchange)
    return shrink(partial(journal.dot, inst), inst, model, few) or few


def _cells(journal: Journal) -> Cells | None:
    if not journal.read.size:
        return None
    wrong = tile.smallest_part(journal.inst, journal.differing)
    return Cells(int(journal.read.sum()), journal.read.size, wrong)

"""Comparison of a model with a device on random operands, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.protocol import InstructionSubject
from accprobe.operands.request import Request
from accprobe.records.verification import CODE_PAIRS, Advance, ComparisonCounts, Verification, silent
from accprobe.verify.code_pairs import every_pair, every_scale

BATCH = 1 << 16  # Dot products drawn at once.


class Known(NamedTuple):
    """Dot products of one distribution, and the results of a model, [n]."""

    kind: str
    request: Request
    expected: Bits


def compared(
    subject: InstructionSubject,
    known: Iterable[Known],
    seed: int,
    advance: Advance = silent,
    before: Verification | None = None,
) -> Verification:
    """Compare a model's results with the subject's. before: what was compared already, which counts too."""
    tally = ComparisonCounts(dict.fromkeys(kinds(subject.inst), 0))
    if before is not None:
        tally = ComparisonCounts(dict(before.kinds), before.mismatches, before.counterexample)
    for kind, request, expected in known:
        got = subject.query(request, expected)
        wrong = np.flatnonzero(got != expected)
        tally.count(kind, len(expected), len(wrong))
        if len(wrong) and tally.first is None:
            tally.first = subject.in_full(Counterexample.of(request, int(wrong[0]), got, expected, kind))
        advance(len(expected), len(wrong))
    return tally.verification(seed)


def predicted_batches(inst: Instruction, model: DotModel, dots: int, seed: int) -> Iterator[Known]:
    """Yield the dot products of `batches` with the results that the model predicts."""
    for kind, request in batches(inst, dots, seed):
        yield Known(kind, request, evaluate(model, inst, request))


def known_pairs(inst: Instruction, model: DotModel) -> Iterator[Known]:
    """Yield every pair of codes of operands and of scales, if they are few, with the results that the model predicts."""
    for codes in (every_pair(inst, model), every_scale(inst)):
        if codes is not None:
            yield Known(CODE_PAIRS, codes, evaluate(model, inst, codes))


def batches(inst: Instruction, dots: int, seed: int) -> Iterator[tuple[str, Request]]:
    """Yield `dots` dot products of a dense A, at most BATCH at a time, with the name of their distribution."""
    names = list(kinds(inst))
    counts = dict.fromkeys(names, dots // len(names))
    counts[names[0]] += dots - sum(counts.values())
    for index, (kind, count) in enumerate(counts.items()):
        for start in range(0, count, BATCH):
            rng = np.random.default_rng([seed, index, start])
            yield kind, draw(kind, inst, rng, min(BATCH, count - start))

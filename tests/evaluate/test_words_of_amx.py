"""Recorded results of TDPBF16PS on an Intel Xeon of family 6, model 207: the first of 8,192 of each random kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted_processor import FMA

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.instructions import parse
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, Product
from accprobe.operands.kinds import draw, kinds

INST = parse("TDPBF16PS")
WORDS = np.load(Path(__file__).parents[1] / "recordings" / "tdpbf16ps.npz")
DRAWN, SEED = 8192, 17


def chained(ks: range, step: FloatArithmetic) -> FusedSum:
    node = FusedSum((Product(ks[0]),), step)
    for k in ks[1:]:
        node = FusedSum((node, Product(k)), step)
    return node


def two_chains(step: FloatArithmetic) -> DotModel:
    """Return a model of two chains, of even and odd products, then their sum, then C."""
    both = FusedSum((chained(range(0, INST.k, 2), step), chained(range(1, INST.k, 2), step)), step)
    return DotModel(FusedSum((both, Addend()), step), subnormal_operands="flushed", subnormal_addend="flushed")


def wrong(model: DotModel, kind: str) -> int:
    rng = np.random.default_rng([SEED, list(kinds(INST)).index(kind)])
    request = draw(kind, INST, rng, DRAWN)[: len(WORDS[kind])]
    return int((evaluate(model, INST, request) != WORDS[kind]).sum())


@pytest.mark.parametrize("kind", kinds(INST))
def test_two_chains_from_zero_then_c_explain_every_result(kind: str) -> None:
    """Zeros have the signs of IEEE 754, and the NaN of C counts before that of the chains."""
    assert wrong(two_chains(FMA), kind) == 0


@pytest.mark.parametrize(
    "changed",
    [
        replace(two_chains(FMA), subnormal_addend="kept"),
        two_chains(replace(FMA, zero_sign="positive")),
        two_chains(replace(FMA, underflow_sign="positive")),
        two_chains(replace(FMA, nan_payload="c a b")),
    ],
)
def test_the_results_contradict_alternative_models(changed: DotModel) -> None:
    assert sum(wrong(changed, kind) for kind in ("tiny", "sparse", "special", "C near smallest normal")) > 0

"""Devices with arithmetics and faults of our own choosing: none is confirmed and wrong, no finding is exact and false.

`benchmarks/planted.py` counts hundreds of them; these are some of the same seeds.
"""

from __future__ import annotations

import pytest
from drawn_plants import KINDS, drawn
from judge import judged

SEEDS = {
    6: "usual floats",
    8: "integers",
    21: "integer groups wrap",
    33: "carry of integers lost",
    59: "when asked again",
    60: "when asked anew",
    109: "wrong half",
    110: "at random",
    119: "after some batches",
    166: "wrong cell",
    299: "a rare pattern",
}
"""Seeds whose rows take a second or less."""


@pytest.mark.parametrize("seed", [pytest.param(seed, id=kind) for seed, kind in SEEDS.items()])
def test_nothing_false_is_said_of_a_planted_device(seed: int) -> None:
    assert KINDS[seed % len(KINDS)][0] == SEEDS[seed], "KINDS has changed: choose the seeds anew"
    judgement = judged(drawn(seed))
    assert judgement.verdict == "right" if judgement.family == "inside" else judgement.verdict not in ("wrong", "crashed")
    assert not judgement.false_exact

"""Devices with planted arithmetics and faults: none is confirmed and wrong, no finding is exact and false.

`benchmarks/planted.py` counts hundreds of them; these are some of the same seeds. The harness itself is tested, too.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from departures import Entry, Wide
from drawn_plants import KINDS, drawn
from faulty import Fault, Place, PlantedDevice, cells, placements
from hostile import hostile
from judge import judged
from plants import OPCODES, Plant

from accprobe.isa import opcodes, tile
from accprobe.isa.instructions import parse
from accprobe.model.published import known_models
from accprobe.model.tree import DotModel
from accprobe.records.claims import Alternatives
from accprobe.records.findings import Finding
from accprobe.records.rows import Row
from accprobe.records.verification import Verification

INST = parse("mma.sync.m16n8k32.s32.s8.s8.s32")
MODEL = known_models("h100")[INST].model
OPCODE = OPCODES[INST.name]
ASKED = hostile(INST, 0, each=500)


@pytest.mark.parametrize("name", OPCODES)
def test_dot_products_lie_where_the_probes_put_them(name: str) -> None:
    inst = parse(name)
    assert placements(inst) == tile.placements(inst)
    assert {opcodes.relation(inst, OPCODES[name])} == {"native"}
    for placement in (0, 5, placements(inst) - 1):
        np.testing.assert_array_equal(cells(inst, 1000, placement), tile.cells_of(inst, 1000, placement))


def row(status: Any, model: DotModel | None, dots: int = 16384, **findings: Finding) -> Row:
    return Row(
        name=INST.name,
        status=status,
        opcodes=(OPCODE,),
        model=model,
        lowering=((OPCODE, 1),),
        findings=findings or {"overflow": Finding("wrap", "undetermined")},
        alternatives=Alternatives(tested=1, surviving=()),
        verification=Verification(dots, 0, 0),
    )


SOUND = Plant(INST, MODEL)
ODD = replace(SOUND, wide=Wide(entry=Entry(3, 3, 1)), family="outside")


@pytest.mark.parametrize(
    ("plant", "told", "asking", "verdict", "false"),
    [
        (SOUND, row("confirmed", MODEL), 1, "right", []),
        (ODD, row("confirmed", MODEL), 0, "wrong", []),
        (replace(SOUND, fault=Fault("always", place=Place("cell", 0, 3))), row("confirmed", MODEL), 0, "wrong", []),
        (replace(SOUND, fault=Fault("random", 100)), row("confirmed", MODEL, 299), 0, "excluded", []),
        (replace(SOUND, fault=Fault("from call", 10)), row("confirmed", MODEL), 1, "not begun", []),
        (SOUND, row("confirmed", MODEL, overflow=Finding("saturate")), 1, "right", ["overflow: saturate, wrap"]),
        (ODD, row("inferred", MODEL, overflow=Finding("wrap")), 0, "not confirmed", ["overflow: wrap, of no model"]),
    ],
)
def test_judgements(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, told: Row, asking: int, verdict: str, false: list[str]
) -> None:
    """The verdict on a survey that asked so many times and then tells that row, and its exact findings that are false."""

    def survey(device: PlantedDevice, *_: object) -> SimpleNamespace:
        for _ in range(asking):
            device.dot(INST, ASKED)
        return SimpleNamespace(instructions=(told,))

    monkeypatch.setattr("judge.survey", survey)
    judgement = judged(plant)
    assert (judgement.verdict, judgement.false_exact) == (verdict, false)


SEEDS = {
    6: "usual floats",
    8: "integers",
    10: "accumulator wraps",
    11: "accumulator saturates",
    12: "products cut",
    14: "addend cut first",
    15: "rounded twice",
    19: "overflow before rounding",
    21: "integer groups wrap",
    22: "integer groups saturate",
    33: "carry of integers lost",
    59: "when asked again",
    60: "when asked anew",
    109: "wrong half",
    110: "at random",
    119: "after some batches",
    166: "wrong cell",
    299: "a rare pattern",
}
FAST = (8, 21, 22, 33, 60, 109, 110, 119, 299)
"""Seeds whose rows take a second or less."""


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, id=kind, marks=() if seed in FAST else pytest.mark.slow) for seed, kind in SEEDS.items()]
)
def test_nothing_false_is_said_of_a_planted_device(seed: int) -> None:
    assert KINDS[seed % len(KINDS)][0] == SEEDS[seed], "KINDS has changed: choose the seeds anew"
    judgement = judged(drawn(seed))
    assert judgement.verdict == "right" if judgement.family == "inside" else judgement.verdict not in ("wrong", "crashed")
    assert not judgement.false_exact

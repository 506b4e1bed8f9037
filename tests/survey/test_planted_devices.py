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
from outside import Unit
from plants import OPCODES, Plant

from accprobe.infer.findings import Finding
from accprobe.isa import tile
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import parse
from accprobe.model.published import known_models
from accprobe.model.tree import DotModel, IntegerArithmetic
from accprobe.operands.request import Request
from accprobe.report.claims import Alternatives
from accprobe.report.rows import Row
from accprobe.sass import opcodes
from accprobe.verify.onehot import one_hot
from accprobe.verify.outcome import Verification

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


def wrong(device: PlantedDevice, request: Request = ASKED, placement: int = 0) -> list[int]:
    """Which answers the fault has changed."""
    return np.flatnonzero(device.dot(INST, request, placement) != Unit(INST, MODEL).dot(request)).tolist()


def planted(when: Any, number: int = 1, place: Place | None = None) -> PlantedDevice:
    return PlantedDevice(Unit(INST, MODEL), OPCODE, Fault(when, number, place))


def test_random_faults_are_others_each_time_and_patterns_the_same() -> None:
    random, pattern = planted("random", 10), planted("pattern", 10)
    first, again = wrong(random), wrong(random)
    assert first != again
    assert wrong(pattern) == wrong(pattern)
    for count in (len(first), len(wrong(pattern))):
        assert 0.08 < count / len(ASKED) < 0.12
    assert random.acted == len(first) + len(again)


@pytest.mark.parametrize(
    ("when", "number", "sizes", "acts"),
    [
        ("from call", 2, (50, 50, 50), (0, 0, 1)),
        ("from answer", 60, (50, 50, 50), (0, 1, 1)),
        ("each call", 3, (50,) * 6, (0, 0, 1, 0, 0, 1)),
        ("window", 50, (50,) * 4, (1, 0, 1, 0)),
        ("again", 1, (50, 50, 60, 50), (0, 1, 0, 0)),
        ("anew", 1, (50, 50, 60, 50), (1, 0, 1, 1)),
        ("late in batch", 55, (50, 60), (0, 1)),
        ("until answer", 60, (50, 50, 50), (1, 1, 0)),
        ("until call", 2, (50, 50, 50), (1, 1, 0)),
        ("size remainder", 1, (1, 2, 8, 9, 17), (1, 0, 0, 1, 1)),
        ("size from", 4, (3, 4, 7, 8), (0, 1, 1, 0)),
        ("after equal", 1, (50, 1, 1), (0, 0, 1)),
        ("after pattern", 1, (50,), (1,)),
        ("one hot", 1, (50,), (0,)),
    ],
)
def test_calls_in_which_a_fault_acts(when: Any, number: int, sizes: tuple[int, ...], acts: tuple[int, ...]) -> None:
    device = planted(when, number)
    assert [int(bool(wrong(device, ASKED[:size]))) for size in sizes] == list(acts)


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
SATURATING = DotModel(replace(MODEL.root, arithmetic=IntegerArithmetic(FORMATS["s32"], "saturate")))
ODD = replace(SOUND, wide=Wide(entry=Entry(3, 3, 1)), family="outside")


@pytest.mark.parametrize(
    ("plant", "told", "asking", "verdict", "false"),
    [
        (SOUND, row("confirmed", MODEL), 1, "right", []),
        (SOUND, row("confirmed", SATURATING), 1, "wrong", []),
        (SOUND, row("inferred", SATURATING), 1, "not confirmed", []),
        (SOUND, row("unverified", None).model_copy(update={"reason": "a defect of accprobe: …"}), 1, "crashed", []),
        (ODD, row("confirmed", MODEL), 0, "wrong", []),
        (replace(SOUND, fault=Fault("always", place=Place("cell", 0, 3))), row("confirmed", MODEL), 0, "wrong", []),
        (replace(SOUND, fault=Fault("late in batch", 12_000)), row("confirmed", MODEL), 1, "wrong", []),
        (replace(SOUND, fault=Fault("random", 100)), row("confirmed", MODEL), 1, "wrong", []),
        (replace(SOUND, fault=Fault("random", 100)), row("confirmed", MODEL, 299), 0, "excluded", []),
        (replace(SOUND, fault=Fault("random", 10, Place("column", 0))), row("confirmed", MODEL, 200), 0, "excluded", []),
        (replace(SOUND, fault=Fault("from call", 10)), row("confirmed", MODEL), 1, "not begun", []),
        (SOUND, row("inferred", SATURATING, overflow=Finding("saturate")), 1, "not confirmed", ["overflow: saturate, wrap"]),
        (SOUND, row("inferred", SATURATING, overflow=Finding("saturate", "suggested")), 1, "not confirmed", []),
        (SOUND, row("confirmed", MODEL, order=Finding("[0-31 c]")), 1, "right", []),
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


def test_faults_of_a_self_test_act_on_nothing_else() -> None:
    tests, device = one_hot(INST).request, planted("one hot", 2)
    assert 0.3 < len(wrong(device, tests)) / len(tests) < 0.7
    assert wrong(device) == []


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

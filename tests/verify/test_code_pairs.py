"""Every pair of codes is asked, and a product table that is wrong in one entry contradicts the model."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from departures import Entry, Wide
from marks import some
from outside import Unit
from plants import OPCODES, Plant

from accprobe.devices.protocol import InstructionSubject
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.instructions import parse
from accprobe.model.published import known_models
from accprobe.operands.kinds import PAIRS
from accprobe.verify import bulk, random
from accprobe.verify.code_pairs import every_pair
from accprobe.verify.coverage import cover
from accprobe.verify.outcome import CODE_PAIRS

HOPPER = {inst: known.model for inst, known in known_models("h100").items()}
OF_FEW_CODES = [name for name in OPCODES if parse(name) in HOPPER and parse(name).a.bits == 8]


@pytest.mark.parametrize("name", OF_FEW_CODES)
def test_every_pair_of_codes_is_asked(name: str) -> None:
    inst = parse(name)
    asked = every_pair(inst, HOPPER[inst])
    assert asked is not None
    pairs = asked.a.astype(np.int64) << 8 | asked.b
    assert len(np.unique(pairs)) == 1 << 16
    assert not asked.c.any()
    assert len(asked) < 6100
    assert np.bincount(np.nonzero(pairs)[1], minlength=inst.k).min() > 900


@pytest.mark.parametrize("name", OF_FEW_CODES)
def test_pairs_with_an_infinity_or_a_nan_are_alone(name: str) -> None:
    inst = parse(name)
    asked = every_pair(inst, HOPPER[inst])
    assert asked is not None
    if not inst.is_integer:
        special = (asked.a & 0x7F > inst.a.largest) | (asked.b & 0x7F > inst.b.largest)
        some = asked[special.any(axis=1)]
        assert len(some) == 65536 - (2 * inst.a.largest + 2) * (2 * inst.b.largest + 2)
        assert ((some.a | some.b) != 0).sum(axis=1).max() == 1


@pytest.mark.parametrize("name", OF_FEW_CODES)
def test_one_wrong_entry_of_the_product_table_shows(name: str) -> None:
    inst = parse(name)
    model = HOPPER[inst]
    asked = every_pair(inst, model)
    assert asked is not None
    expected = evaluate(model, inst, asked)
    rng = np.random.default_rng(3)
    for off in (1, -1, 2) * 3:
        a, b = (int(rng.integers(0x20, 0x58)) ^ int(rng.choice([0, 0x80])) for _ in range(2))
        assert (Unit(inst, model, Wide(entry=Entry(a, b, off))).dot(asked) != expected).any(), (a, b, off)


def test_a_device_with_one_wrong_entry_is_found() -> None:
    inst = parse("wgmma.m64n8k32.f16.e5m2.e5m2")
    device = Plant(inst, HOPPER[inst], Wide(entry=Entry(0x45, 0x3B, 1))).device()
    done = cover(InstructionSubject(device, inst), HOPPER[inst], dots=0)
    assert done.kinds[CODE_PAIRS] > 4096
    assert done.mismatches
    assert done.counterexample is not None
    assert done.counterexample.kind == CODE_PAIRS


@pytest.mark.parametrize("name", some(["mma.sync.m16n8k16.s32.s8.u8.s32", "wgmma.sp.m64n8k64.f32.e4m3.e4m3"]))
def test_many_dot_products_have_every_pair_at_every_place(name: str) -> None:
    inst = parse(name).stored
    dots = 2 * PAIRS * inst.k
    drawn = list(islice(random.batches(inst, dots, 1, with_pairs=True), inst.k + 1))
    for k, (kind, asked) in enumerate(drawn[:-1]):
        assert kind == "pairs"
        assert len(np.unique(asked.a[:, k].astype(np.int64) << 8 | asked.b[:, k])) == len(asked) == PAIRS
        assert not np.delete(asked.a, k, 1).any()
        assert not np.delete(asked.b, k, 1).any()
    assert drawn[-1][0] != "pairs"
    for fewer, places in ((dots, range(inst.k)), (dots - 1, [7]), (2 * PAIRS - 1, [])):
        names = [kind for kind, _ in islice(random.batches(inst, fewer, 7 + inst.k, with_pairs=True), inst.k + 1)]
        assert names.count("pairs") == len(places)
        made = list(bulk.batches(inst, fewer, 7 + inst.k))
        assert [batch.recipe.slots for batch in made if batch.kind == "pairs"] == list(places)
        assert [batch.number for batch in made] == list(range(len(made)))
        assert sum(batch.dots for batch in made) >= fewer


def test_other_formats_have_too_many_codes() -> None:
    inst = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
    assert every_pair(inst, HOPPER[inst]) is None

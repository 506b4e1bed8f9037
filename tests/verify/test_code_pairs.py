"""Every pair of codes is asked, and a product table that is wrong in one entry contradicts the model."""

from __future__ import annotations

import numpy as np
import pytest
from departures import Entry, Wide
from outside import Unit
from plants import OPCODES, Plant

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.instructions import parse
from accprobe.model.published import known_models
from accprobe.operands.protocol import InstructionSubject
from accprobe.records.verification import CODE_PAIRS
from accprobe.verify import bulk
from accprobe.verify.code_pairs import every_pair
from accprobe.verify.coverage import cover

HOPPER = {inst: known.model for inst, known in known_models("h100").items()}
OF_FEW_CODES = [name for name in OPCODES if parse(name) in HOPPER and parse(name).a.bits == 8]


@pytest.mark.parametrize("name", OF_FEW_CODES)
def test_every_pair_of_codes_is_asked(name: str) -> None:
    """Those with an infinity or a NaN alone."""
    inst = parse(name)
    asked = every_pair(inst, HOPPER[inst])
    assert asked is not None
    pairs = asked.a.astype(np.int64) << 8 | asked.b
    assert len(np.unique(pairs)) == 1 << 16
    assert not asked.c.any()
    assert len(asked) < 6100
    assert np.bincount(np.nonzero(pairs)[1], minlength=inst.k).min() > 900
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


def test_verification_of_many_dot_products_has_every_pair_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAIRS_FROM", 0)
    inst = parse("wgmma.m64n8k32.f16.e5m2.e5m2")
    done = bulk.verify(Plant(inst, HOPPER[inst], Wide(entry=Entry(0x45, 0x3B, 1))).device(), inst, HOPPER[inst], 0)
    assert done.kinds[CODE_PAIRS] == done.compared
    assert done.mismatches


def test_other_formats_have_too_many_codes() -> None:
    inst = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
    assert every_pair(inst, HOPPER[inst]) is None

"""Golden chains on a real GPU: each unit compares billions of results, and a planted error is found."""

from __future__ import annotations

from functools import partial

import pytest
from emulated_golden import Planted, planted_source
from marks import only_on_a_gpu

from accprobe.devices.cuda import CudaDevice
from accprobe.health.golden import GoldenBench
from accprobe.health.outcome import SmPlace
from accprobe.health.plan import UNITS, chosen
from accprobe.report.names import named_models

pytestmark = only_on_a_gpu


@pytest.mark.parametrize("unit", list(UNITS))
def test_no_word_differs_on_any_sm(h200: CudaDevice, unit: str) -> None:
    models = named_models("h200")
    inst = chosen(h200, models)[unit]
    turn = GoldenBench(h200, inst, models[inst], 0).turn(1.5)
    assert turn.dots > 1e9
    assert turn.sms == h200.describe()["sm_count"]
    assert (turn.wrong_by_sm, turn.vanished) == ({}, 0)


@pytest.mark.parametrize("unit", ["bf16", "fp8-sparse"])
def test_a_planted_error_is_found_named_and_shrunk(h200: CudaDevice, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models = named_models("h200")
    inst = chosen(h200, models)[unit]
    planted = Planted(sm=17, thread=37, register=5, bit=3, word=2, mask=0x1F, a=0x11, b=0x0A)
    monkeypatch.setattr("accprobe.health.golden.golden_source", partial(planted_source, planted=planted))
    faulty = GoldenBench(h200, inst, models[inst], 0)
    turn = faulty.turn(10.0)
    assert list(turn.wrong_by_sm) == ["17"]
    seen = turn.seen[0]
    assert seen.place == SmPlace(sm=17, warp=1, lane=5, register_of_lane=5)
    assert faulty.again(seen, 100) == 100
    assert faulty.smallest(seen) is not None

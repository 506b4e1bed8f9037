"""Devices that evaluate models."""

from __future__ import annotations

import numpy as np
import pytest
from plants import instruction

from accprobe.devices import open_device
from accprobe.devices.simulated import SimulatedDevice
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import catalog, parse
from accprobe.model.published import CHIPS, known_models
from accprobe.model.tree import DotModel, FloatArithmetic, chain
from accprobe.operands.kinds import draw

FP8 = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
MODEL = DotModel(chain([range(32)], FloatArithmetic(FORMATS["f32"], 13, "RZ", 13)))
OTHER = DotModel(chain([range(32)], FloatArithmetic(FORMATS["f32"], 13, "RZ", 12)))


def test_what_it_has_no_model_of() -> None:
    device = SimulatedDevice({FP8: MODEL})
    absent = parse("wgmma.m64n8k32.f32.e5m2.e5m2")
    assert device.why_not(FP8) is None
    assert device.why_not(absent) == "no published model"
    assert absent in device.instructions()
    assert device.lowering(FP8) is None


def test_instruction_of_no_architecture_is_listed() -> None:
    planted = instruction(32, "f32", "e4m3", "e4m3", "f32")
    device = SimulatedDevice({planted: MODEL, FP8: MODEL}, architecture="sm_90a")
    listed = list(device.instructions())
    assert listed == [*catalog("sm_90a"), planted]
    assert len(set(listed)) == len(listed)


def test_same_function_same_identity() -> None:
    registers, mixed = parse("wgmma.m64n8k32.f32.e4m3.e4m3.rs"), parse("wgmma.m64n8k32.f32.e4m3.e5m2")
    device = SimulatedDevice({FP8: MODEL, registers: MODEL, mixed: MODEL})
    assert device.identity(FP8) == device.identity(registers)
    assert device.identity(FP8) != device.identity(mixed)
    changed = SimulatedDevice({FP8: MODEL, registers: OTHER})
    assert changed.identity(FP8) != changed.identity(registers)
    assert hash(changed.identity(FP8)) == hash(device.identity(FP8))


@pytest.mark.parametrize("name", CHIPS)
def test_device_of_a_published_chip(name: str) -> None:
    device = open_device(f"sim:{name}")
    assert device.kind == "simulated"
    assert device.name == f"simulated {CHIPS[name].title}"
    assert device.architecture == CHIPS[name].architecture
    known = known_models(name)
    assert {inst for inst in device.instructions() if device.why_not(inst) is None} == set(known)
    inst, entry = next(iter(known.items()))
    assert device.lowering(inst) == entry.lowering
    operands = draw("wide", inst, np.random.default_rng(0), 5)
    assert np.array_equal(device.dot(inst, operands), evaluate(entry.model, inst, operands))


def test_instructions_with_other_block_scales_are_not_asked_for_one_another() -> None:
    device = open_device("sim:rtx5090")
    fp4 = [inst for inst in device.instructions() if inst.k == 64 and inst.scale and not device.why_not(inst)]
    assert len(fp4) == 4
    assert len({device.identity(inst) for inst in fp4}) == 3  # type: ignore[attr-defined]

"""A processor's own dot products: those of this machine, where it has any, and those of processors that are not here."""

from __future__ import annotations

import numpy as np
import pytest
from marks import some
from planted_processor import FMA, planted

from accprobe.build import machine_code, processor
from accprobe.devices import cpu
from accprobe.devices.cpu import USUAL, CpuDevice
from accprobe.errors import AccprobeError, DeviceError
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.instructions import Instruction, parse
from accprobe.isa.processors import MNEMONICS
from accprobe.model.tree import DotModel, IntegerArithmetic, chain
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.survey.row import Surveyor

here = pytest.mark.skipif(bool(processor.explain_missing_instructions()), reason="it has no dot products")


def one_chain(inst: Instruction) -> DotModel:
    """Products one after another, of each pair the odd one first."""
    return DotModel(chain([[k ^ 1] for k in range(inst.k)], FMA, "first"), "flushed", "flushed")


def integers(inst: Instruction) -> DotModel:
    return DotModel(chain([range(inst.k)], IntegerArithmetic(inst.d, "saturate" if inst.satfinite else "wrap")))


def of_every_kind(inst: Instruction, each: int = 64) -> Request:
    rng = np.random.default_rng(each)
    return joined([draw(kind, inst, rng, each) for kind in kinds(inst)])


@here
def test_this_processor_computes_what_its_manual_says() -> None:
    device = CpuDevice()
    runnable = [inst for inst in device.instructions() if device.explain_unavailable(inst) is None]
    assert runnable
    for inst in runnable:
        if inst.is_integer or inst.mnemonic == "VDPBF16PS":
            asked = of_every_kind(inst, 1000)
            model = integers(inst) if inst.is_integer else one_chain(inst)
            np.testing.assert_array_equal(device.dot(inst, asked), evaluate(model, inst, asked))


def control_now(mnemonic: str) -> int:
    """The control register as a loop finds it, but for the flags that say what happened (MXCSR 0 to 5)."""
    loop = machine_code.load_loop(next(each for each in MNEMONICS if each.mnemonic == mnemonic))
    words, room = np.zeros(machine_code.CONTROL_WORDS, np.uint64), np.zeros(1 << 12, np.uint8)
    words[0] = USUAL
    at = room.ctypes.data
    loop.run(at, at, at, at, 1, words.ctypes.data, cpu._tile_configuration().ctypes.data, 64)
    return int(words[1]) & ~0x3F


@here
def test_the_control_register_is_put_back_after_answers_and_after_errors() -> None:
    device = CpuDevice()
    inst = next(inst for inst in device.instructions() if device.explain_unavailable(inst) is None)
    assert inst.mnemonic
    before, asked = control_now(inst.mnemonic), Request.zeros(inst, 3)
    for setting in device.settings(inst):
        device.dot_under(setting, inst, asked)
        assert control_now(inst.mnemonic) == before
        with pytest.raises(AccprobeError, match="expected"):
            device.dot_under(setting, inst, Request(asked.a[:, :1], asked.b, asked.c))
        assert control_now(inst.mnemonic) == before


INTEGERS = ("VPDPBUSDS", "VPDPWSSD", "TDPBSUD", "TDPBUUD")


@pytest.mark.parametrize("mnemonic", some(INTEGERS, 2))
def test_planted_integers_are_confirmed(monkeypatch: pytest.MonkeyPatch, mnemonic: str) -> None:
    inst = parse(mnemonic)
    row = Surveyor(planted(monkeypatch, {mnemonic: integers(inst)})).row(inst, 1 << 10, 0)
    assert (row.status, row.reason, row.opcodes, row.model) == ("confirmed", "", (mnemonic,), integers(inst))
    assert row.verification
    assert row.verification.tile
    assert row.verification.tile.covered == inst.m * inst.n


def test_planted_chains_are_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    inst = parse("VDPBF16PS")
    row = Surveyor(planted(monkeypatch, {"VDPBF16PS": one_chain(inst)})).row(inst, 1 << 10, 0)
    assert (row.status, row.reason, row.model) == ("confirmed", "", one_chain(inst))
    assert row.alternatives
    assert not row.alternatives.surviving
    assert row.findings["control"].value == "ignored"


def test_a_processor_that_obeys_its_control_register_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    inst = parse("VPDPBUSDS")
    device = planted(monkeypatch, {"VPDPBUSDS": integers(inst)})
    answers = device.dot_under

    def obeying(setting: str, inst: Instruction, request: Request) -> object:
        return answers(setting, inst, request) ^ (setting in ("DAZ", "rounding up"))

    monkeypatch.setattr(device, "dot_under", obeying)
    assert Surveyor(device).row(inst, 1 << 10, 0).findings["control"].value == "rounding up, DAZ"


def test_operands_that_are_laid_out_wrongly_are_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    inst = parse("TDPBSSD")
    device = planted(monkeypatch, {"TDPBSSD": integers(inst)})
    original = cpu.Tiles.__init__

    def transposed(self: cpu.Tiles, inst: Instruction, request: Request, placement: int) -> None:
        original(self, inst, request, placement)
        self.b = np.ascontiguousarray(self.b.reshape(-1, inst.n, inst.k))[:, ::-1].copy()

    monkeypatch.setattr(cpu.Tiles, "__init__", transposed)
    assert Surveyor(device).row(inst, 1 << 10, 0).status != "confirmed"


def test_what_a_processor_lacks_is_skipped_with_its_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    inst = parse("TDPBSSD")
    device = planted(monkeypatch, {"TDPBSSD": integers(inst)})
    assert device.explain_unavailable(inst) is None
    assert device.explain_unavailable(parse("TDPBF16PS")) == "this processor has no flag"
    with pytest.raises(DeviceError, match="cannot be run: this processor has no flag"):
        device.dot(parse("TDPBF16PS"), Request.zeros(parse("TDPBF16PS"), 1))

"""Models of sparse instructions against devices: on random operands, covered, shrunk, and laid out as matrix products."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from marks import some
from sparse_semantics import kept

from accprobe.devices.simulated import SimulatedDevice
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.instructions import parse
from accprobe.model.tree import DotModel, FloatArithmetic, chain
from accprobe.operands.kinds import draw
from accprobe.operands.protocol import InstructionSubject
from accprobe.report.names import named_models
from accprobe.verify.bulk import LaidOut, MatrixProduct, recipes
from accprobe.verify.coverage import cover
from accprobe.verify.random import verify
from accprobe.verify.shrink import shrink

INST = parse("mma.sp.m16n8k16.f32.f16.f16.f32")


def model(bits: int) -> DotModel:
    return DotModel(chain([range(8)], FloatArithmetic(INST.d, 23, "RZ", bits)))


DEVICE = SimulatedDevice({INST: model(25)})


OF_H200 = {(inst.stored.k, inst.a, inst.b, inst.d): inst for inst in named_models("h200") if inst.sparse and not inst.satfinite}


@pytest.mark.parametrize("seed", some(range(3)))
def test_every_event_is_met_though_no_operands_are_random(seed: int) -> None:
    """One row for all that are laid out alike, and no dot product but those that are made for events."""
    for inst in OF_H200.values():
        known = named_models("h200")[inst]
        done = cover(InstructionSubject(SimulatedDevice({inst: known}), inst), known, 0, seed)
        assert done.events is not None
        assert (inst.name, done.events.missing, done.mismatches) == (inst.name, (), 0)


def test_a_wrong_model_is_shown_a_sparse_question_that_shrinks() -> None:
    done = verify(DEVICE, INST, model(22), 2000)
    found = done.counterexample
    assert found is not None
    request = found.exchange.request(INST)
    request.check(INST)
    smallest = shrink(partial(DEVICE.dot, INST), partial(evaluate, model(22), INST), INST, found)
    assert smallest is not None
    small = smallest.exchange.request(INST)
    assert request.metadata is not None
    assert small.metadata is not None
    assert small.metadata.tolist() == request.metadata.tolist()
    assert (small.a != 0).sum() <= (request.a != 0).sum()
    assert DEVICE.dot(INST, small).tolist() == smallest.exchange.result(INST).tolist()
    assert evaluate(model(22), INST, small).tolist() == [int(smallest.expected, 16)]
    stored = kept(INST, request.metadata)[0].tolist()
    left = [k for k in range(INST.k) if k not in stored]
    assert small.b[0, left].tolist() == request.b[0, left].tolist()


def test_matrix_products_are_laid_out_alike_in_every_row() -> None:
    on_gpu = LaidOut(np, INST)
    stored = draw("normal", INST.stored, np.random.default_rng(1), 128).b
    seen = set()
    for number in range(3):
        batch = MatrixProduct(number, "normal", recipes(INST.stored)["normal"], 96, 128)
        metadata, b = on_gpu.metadata(batch), on_gpu.b(batch, stored)
        assert metadata.shape == (96, INST.k // 4)
        assert (metadata == metadata[0]).all()
        np.testing.assert_array_equal(b[:, kept(INST, metadata)[0]], stored)
        left = [k for k in range(INST.k) if k not in kept(INST, metadata)[0]]
        assert len(np.unique(b[:, left], axis=0)) > 100
        seen.add(metadata.tobytes())
    assert len(seen) == 3

"""Verification in bulk, on a GPU: what is recorded holds, and what is planted is found."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from marks import only_on_a_gpu

from accprobe.devices.cuda import CudaDevice
from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.characterise import characterise
from accprobe.isa.instructions import parse
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic
from accprobe.operands.request import Request
from accprobe.report.names import named_models
from accprobe.verify.bulk import Verifier, batches, prepare_to_verify, verify
from accprobe.verify.shrink import shrink

pytestmark = only_on_a_gpu

QGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"
ROWS = (
    QGMMA,
    "wgmma.m64n256k32.f16.e5m2.e4m3.rs",
    "wgmma.m64n8k16.f32.bf16.bf16",
    "mma.sync.m16n8k16.f32.f16.f16.f32",
    "mma.sync.m16n8k8.f32.tf32.tf32.f32",
    "mma.sync.m16n8k32.f32.e4m3.e4m3.f32",
    "mma.sync.m16n8k8.f64.f64.f64.f64",
    "mma.sync.m16n8k32.satfinite.s32.s8.u8.s32",
)


@pytest.fixture(scope="module")
def gpu(h200: CudaDevice) -> CudaDevice:
    prepare_to_verify(h200, {parse(name): named_models("h200")[parse(name)] for name in ROWS})
    return h200


@pytest.mark.parametrize("name", ROWS)
def test_recorded_models_hold(gpu: CudaDevice, name: str) -> None:
    inst = parse(name)
    done = verify(gpu, inst, named_models("h200")[inst], 10**7, 3)
    assert done.mismatches == 0
    assert done.counterexample is None
    assert done.compared >= 10**7
    assert sum(done.kinds.values()) == done.compared
    assert all(done.kinds.values())


@pytest.mark.parametrize("name", ROWS)
def test_evaluator_and_products_are_those_of_the_slow_ones(gpu: CudaDevice, name: str) -> None:
    """On some dot products of every kind: the CPU's model and the probe of independent dot products."""
    import cupy

    inst, model = parse(name), named_models("h200")[parse(name)]
    bench = Verifier(cupy, inst, model, gpu.architecture, 5)
    for batch in batches(inst, 1 << 18):
        a, b, c, d = bench.arrays(batch)
        bench.draw(batch)
        bench.hardware.product(a, b, c, d)
        random = np.random.default_rng(batch.number)
        rows, columns = random.integers(0, batch.rows, 500), random.integers(0, batch.columns, 500)
        x, y, z, got = a.get()[rows], b.get()[columns], c.get()[rows, columns], d.get()[rows, columns]
        np.testing.assert_array_equal(got, gpu.dot(inst, Request(x, y, z)), err_msg=batch.kind)
        bench.evaluator.evaluate(a, b, c, d)
        np.testing.assert_array_equal(d.get()[rows, columns], evaluate(model, inst, Request(x, y, z)), err_msg=batch.kind)


def wrong(model: DotModel) -> DotModel:
    """One bit less of alignment, in every sum that aligns."""

    def change(has: Arithmetic) -> Arithmetic:
        if isinstance(has, FloatArithmetic) and has.alignment_bits is not None:
            return replace(has, alignment_bits=has.alignment_bits - 1)
        return has

    return model.with_arithmetic(change)


@pytest.mark.parametrize("name", [name for name in ROWS if ".f64" not in name and ".s32" not in name])
def test_planted_faults_are_found_and_shrunk(gpu: CudaDevice, name: str) -> None:
    inst = parse(name)
    model = wrong(named_models("h200")[inst])
    done = verify(gpu, inst, model, 10**6)
    assert done.mismatches
    assert done.counterexample
    smallest = shrink(partial(gpu.dot, inst), partial(evaluate, model, inst), inst, done.counterexample)
    asked = smallest.exchange.request(inst)
    terms = sum(x != 0 or y != 0 for x, y in zip(asked.a[0], asked.b[0], strict=True)) + (asked.c[0] != 0)
    assert terms <= inst.k // 4


SPARSE = (
    "mma.sp.m16n8k32.f32.f16.f16.f32",
    "mma.sp.m16n8k64.satfinite.s32.s4.u4.s32",
    "mma.sp.m16n8k8.f32.tf32.tf32.f32",
    "wgmma.sp.m64n8k64.f32.e4m3.e5m2",
    "wgmma.sp.m64n256k32.f16.f16.f16.rs",
)


@pytest.mark.parametrize("name", SPARSE)
def test_products_of_what_is_stored_are_the_model_s(h200: CudaDevice, name: str) -> None:
    inst = parse(name)
    model = characterise(h200, inst).model
    done = verify(h200, inst, model, 10**7, 3)
    assert (done.mismatches, done.counterexample) == (0, None)
    assert all(done.kinds.values())
    if inst.is_integer:
        return
    found = verify(h200, inst, wrong(model), 10**6).counterexample
    smallest = shrink(partial(h200.dot, inst), partial(evaluate, wrong(model), inst), inst, found)
    assert np.count_nonzero(smallest.exchange.request(inst).a) < inst.stored.k

"""What runs on a GPU alone: verification in bulk, every SM, and matrix products with the bits of the hardware's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from accprobe import emulate
from accprobe.build import driver
from accprobe.cli import main
from accprobe.devices import cuda
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.instructions import parse
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic
from accprobe.operands.request import Request
from accprobe.report.models import named_models
from accprobe.report.report import Report
from accprobe.verify.bulk import verify_in_bulk
from accprobe.verify.on_gpu import Bench, batches
from accprobe.verify.shrink import shrink

NO_GPU = driver.why_no_gpu()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU))]

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
GEMM = 4096


@pytest.fixture(scope="module")
def gpu() -> cuda.CudaDevice:
    device = cuda.CudaDevice(0)
    if device.architecture != "sm_90a":
        pytest.skip("the recorded models are of sm_90a")
    device.prepare_to_verify({parse(name): named_models("h200")[parse(name)] for name in ROWS})
    return device


@pytest.mark.parametrize("name", ROWS)
def test_recorded_models_hold(gpu: cuda.CudaDevice, name: str) -> None:
    inst = parse(name)
    done = verify_in_bulk(gpu, inst, named_models("h200")[inst], 10**7, 3)
    assert done.mismatches == 0
    assert done.counterexample is None
    assert done.dots >= 10**7
    assert sum(done.kinds.values()) == done.dots
    assert all(done.kinds.values())


@pytest.mark.parametrize("name", ROWS)
def test_evaluator_and_products_are_those_of_the_slow_ones(gpu: cuda.CudaDevice, name: str) -> None:
    """On some dot products of every kind: the CPU's model and the probe of independent dot products."""
    import cupy

    inst, model = parse(name), named_models("h200")[parse(name)]
    bench = Bench(cupy, inst, model, gpu.architecture, 5)
    for batch in batches(inst, 1 << 18, 5):
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
def test_planted_faults_are_found_and_shrunk(gpu: cuda.CudaDevice, name: str) -> None:
    inst = parse(name)
    model = wrong(named_models("h200")[inst])
    done = verify_in_bulk(gpu, inst, model, 10**6)
    assert done.mismatches
    assert done.counterexample
    smallest = shrink(lambda operands: gpu.dot(inst, operands), inst, model, done.counterexample)
    assert smallest is not None
    asked = smallest.exchange.request(inst)
    terms = sum(x != 0 or y != 0 for x, y in zip(asked.a[0], asked.b[0], strict=True)) + (asked.c[0] != 0)
    assert terms <= 3


def test_planted_fault_at_the_command_line(gpu: cuda.CudaDevice, tmp_path: Path) -> None:
    planted = tmp_path / "wrong.json"
    report = json.loads(Report.load("h200").dumps())
    for row in report["instructions"]:
        if row["name"] == QGMMA:
            row["model"]["arithmetics"][0]["alignment_bits"] -= 1
    planted.write_text(json.dumps(report))
    result = CliRunner().invoke(main, ["verify", str(planted), "--device", "cuda:0", "--select", QGMMA, "--dots", "1e6"])
    assert result.exit_code == 1, result.output
    assert f"! {QGMMA}" in result.output


def test_every_sm_answers_alike(gpu: cuda.CudaDevice) -> None:
    random = np.random.default_rng(4)
    for name in (QGMMA, "mma.sync.m16n8k16.f32.f16.f16.f32"):
        inst = parse(name)
        a, b = (random.integers(0, 1 << fmt.bits, (1000, inst.k), fmt.dtype) for fmt in (inst.a, inst.b))
        c = random.integers(0, 1 << 32, 1000, np.uint32)
        answers = gpu.dot_on_every_sm(inst, Request(a, b, c))
        assert len(answers) == gpu.describe()["sm_count"]
        expected = gpu.dot(inst, Request(a, b, c))
        assert all(np.array_equal(got, expected) for got in answers.values())


@pytest.mark.parametrize(("fast", "promote_every"), [(True, None), (False, 128)])
@pytest.mark.parametrize("values", ["normal", "wide"])
def test_products_are_those_of_torch(gpu: cuda.CudaDevice, fast: bool, promote_every: int | None, values: str) -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator(device="cuda").manual_seed(6)
    a, b = (torch.randn((GEMM, GEMM), device="cuda", generator=generator) for _ in range(2))
    if values == "wide":
        a, b = (x * torch.exp2(torch.randint(-6, 7, x.shape, device="cuda", generator=generator)) for x in (a, b))
    a, b = a.clamp(-448, 448).to(torch.float8_e4m3fn), b.clamp(-448, 448).to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    theirs = torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.float32, use_fast_accum=fast)
    like = "h200:wgmma.m64n256k32.f32.e4m3.e4m3"
    ours = emulate.matmul(a, b.t(), like=like, promote_every=promote_every)
    assert int((ours.view(torch.int32) != theirs.view(torch.int32)).sum()) == 0
    corner = emulate.matmul(a[:32].cpu(), b[:32].t().cpu(), like=like, promote_every=promote_every)
    assert torch.equal(ours[:32, :32].cpu().view(torch.int32), corner.view(torch.int32))


def test_products_with_addend_and_odd_sizes(gpu: cuda.CudaDevice) -> None:
    torch = pytest.importorskip("torch")
    for like, dtype in (
        ("h200:mma.sync.m16n8k16.f32.f16.f16.f32", torch.float16),
        ("h200:wgmma.m64n8k32.f16.e4m3.e4m3", torch.float8_e4m3fn),
        ("h200:wgmma.m64n8k32.f32.e4m3.e4m3", torch.float8_e4m3fn),
    ):
        a, b = torch.randn(70, 333).to(dtype), torch.randn(333, 45).to(dtype)
        a[3, 5] = float("nan")
        for promote_every in (None, 64):
            c = torch.randn(70, 45).to(torch.float16 if ".f16.e4m3" in like and not promote_every else torch.float32)
            ours = emulate.matmul(a.cuda(), b.cuda(), c.cuda(), like, promote_every)
            theirs = emulate.matmul(a, b, c, like, promote_every)
            whole = torch.int16 if theirs.element_size() == 2 else torch.int32
            assert torch.equal(ours.cpu().view(whole), theirs.view(whole))


def test_verify_tells_the_progress(gpu: cuda.CudaDevice) -> None:
    inst, told = parse(QGMMA), []
    done = gpu.verify(inst, named_models("h200")[inst], 10**6, 0, lambda compared, differed: told.append((compared, differed)))
    assert sum(compared for compared, _ in told) == done.dots
    assert not any(differed for _, differed in told)

"""`accprobe reduce` of rms_norm, softmax and norm: torch on a CPU, planted GPU kernels, and predictions from the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import accprobe
from accprobe.cli import main
from accprobe.composites.orders import MERGES, LaneOrder, LaneSums, lane_orders
from accprobe.composites.steps import COMPOSITES, functions_of
from accprobe.evaluate.product import product
from accprobe.isa.formats import FORMATS
from accprobe.model.product import ProductModel, multiply_add

torch = pytest.importorskip("torch")
F32 = FORMATS["f32"]


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "400"}).invoke(main, ["reduce", *arguments])


@pytest.mark.parametrize(
    ("name", "dtype", "computes"),
    [
        ("rms_norm", "f32", "x · rsqrt(S / K + eps) with 1 / sqrt, both rounded"),
        ("rms_norm", "bf16", "x · rsqrt(S / K + eps) with 1 / sqrt, both rounded"),
        ("norm", "f32", "sqrt(S) with sqrt rounded once"),
        ("softmax", "f32", ""),
    ],
)
def test_a_composite_of_torch_is_predicted(name: str, dtype: str, computes: str, tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    found = run(f"torch:{name}", "--shape", "16x64", "--dtype", dtype, "--elements", "4096", "--device", "cpu", "-o", str(file))
    assert found.exit_code == 0, found.output
    assert f"computes    {computes}" in found.stdout
    x = torch.from_numpy(np.random.default_rng(7).standard_normal((16, 64)).astype(np.float32))
    x = x.bfloat16() if dtype == "bf16" else x
    assert torch.equal(accprobe.predict(str(file), x), COMPOSITES[f"torch:{name}"].call(x, 1e-6))


def by_warps(lanes: Any) -> Any:
    """Add halves of each warp, then of the warps, [rows]."""
    for count in (32, lanes.shape[1] // 32):
        lanes = lanes.reshape(len(lanes), -1, count)
        while lanes.shape[2] > 1:
            half = lanes.shape[2] // 2
            lanes = lanes[..., :half] + lanes[..., half:]
        lanes = lanes[..., 0]
    return lanes[:, 0]


def planted_rms_norm(x: Any, eps: float) -> Any:
    """Compute as `vectorized_layer_norm_kernel` of torch does: 4 warps, vectors of 4, fused squares, shuffles, warps."""
    values, rsqrt = x.numpy(), dict(functions_of("rsqrt"))["rsqrt.approx.f32"]
    total = np.zeros((len(values), 128), np.float32)
    for first in range(0, values.shape[1], 512):
        for place in range(4):
            term = values[:, first + place : first + 512 : 4].astype(np.float64)
            total = (term * term + total).astype(np.float32)
    return torch.from_numpy(values * rsqrt(by_warps(total) / np.float32(values.shape[1]) + np.float32(eps))[:, None])


def planted_softmax(x: Any, eps: Any) -> Any:
    """Compute as `softmax_warp_forward` of torch does: every 32nd element is one lane's, and each exponential is divided."""
    values = x.numpy()
    e = dict(functions_of("exp"))["expf of CUDA"](values - values.max(axis=1, keepdims=True))
    total = np.zeros((len(values), 32), np.float32)
    for first in range(0, values.shape[1], 32):
        total = total + e[:, first : first + 32]
    return torch.from_numpy(e / by_warps(total)[:, None])


@pytest.mark.parametrize(
    ("name", "planted", "computes"),
    [
        ("rms_norm", planted_rms_norm, "rsqrt.approx.f32; S in 128 lanes of 4, merged by warps, squares fused"),
        ("softmax", planted_softmax, "e / S with expf of CUDA; S in 32 lanes of 1, merged by halves"),
    ],
)
def test_a_planted_gpu_kernel_is_found(name: str, planted: Any, computes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(COMPOSITES[f"torch:{name}"], call=planted)
    monkeypatch.setitem(COMPOSITES, f"torch:{name}", other)  # type: ignore[arg-type]
    found = run(f"torch:{name}", "--shape", "32x1024", "--elements", "32768", "--device", "cpu")
    assert found.exit_code == 0, found.output
    assert computes in found.stdout


def test_an_unknown_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(COMPOSITES["torch:norm"], call=lambda x, eps: x.square().sum(-1, keepdim=True) * 0.5)
    monkeypatch.setitem(COMPOSITES, "torch:norm", other)  # type: ignore[arg-type]
    found = run("torch:norm", "--shape", "16x64", "--device", "cpu")
    assert found.exit_code == 1
    assert "inferred: the steps around the sum are not explained: in rows of one or two terms" in found.stdout


def test_an_unknown_order_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def norm(x: Any, eps: Any) -> Any:
        return x.square()[:, torch.randperm(64, generator=torch.Generator().manual_seed(0))].cumsum(-1)[:, -1:].sqrt()

    monkeypatch.setitem(COMPOSITES, "torch:norm", replace(COMPOSITES["torch:norm"], call=norm))  # type: ignore[arg-type]
    found = run("torch:norm", "--shape", "16x64", "--device", "cpu")
    assert found.exit_code == 1
    assert "the order of the sum is not explained: none of" in found.stdout


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize(("width", "k", "singly"), [(1, 256, False), (2, 300, False), (4, 604, True)])
def test_the_tree_of_an_order_gives_its_sums(merge: str, width: int, k: int, singly: bool) -> None:
    order = LaneOrder(128, width, merge, singly)
    assert order in list(lane_orders(k))
    x = np.random.default_rng(0).standard_normal((4, k)).astype(np.float32)
    model = ProductModel(F32, F32, k, multiply_add(), order.tree(k), F32)
    expected = product(model, np.ones((1, k), np.float32).view(np.uint32), x.view(np.uint32))[0].view(np.float32)
    assert np.array_equal(LaneSums(np.add, x).of(order), expected)


def test_the_exponentials_are_accurate() -> None:
    x = -np.random.default_rng(0).uniform(0, 80, 4096).astype(np.float32)
    for name, function in functions_of("exp"):
        assert np.max(np.abs(function(x) / np.exp(x.astype(np.float64)) - 1)) < 2.0**-22, name
    assert "expf of CUDA" in dict(functions_of("exp"))

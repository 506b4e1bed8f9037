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


def planted_rms_norm(x: Any, eps: float) -> Any:
    """Compute as `vectorized_layer_norm_kernel` of torch does with 2 warps: vectors of 4, fused squares, shuffles, warps."""
    values = x.numpy()
    total = np.zeros((len(values), 64), np.float32)
    for first in range(0, values.shape[1], 256):
        for place in range(4):
            term = values[:, first + place : first + 256 : 4].astype(np.float64)
            total = (term * term + total).astype(np.float32)
    warps = total.reshape(-1, 2, 32)
    for half in (16, 8, 4, 2, 1):
        warps = warps[..., :half] + warps[..., half : 2 * half]
    sums = (warps[:, 0] + warps[:, 1]) / np.float32(values.shape[1]) + np.float32(eps)
    return torch.from_numpy(values * (1 / np.sqrt(sums.astype(np.float64))).astype(np.float32))


def test_a_planted_gpu_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = replace(COMPOSITES["torch:rms_norm"], call=planted_rms_norm)
    monkeypatch.setitem(COMPOSITES, "torch:rms_norm", planted)  # type: ignore[arg-type]
    found = run("torch:rms_norm", "--shape", "32x512", "--elements", "16384", "--device", "cpu")
    assert found.exit_code == 0, found.output
    assert "with rsqrt rounded once; S in 64 lanes of 4, merged by warps, squares fused" in found.stdout


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

"""`accprobe reduce` of composites, such as rms_norm: torch on a CPU, planted GPU kernels, words of an H200, predictions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import invoke

import accprobe
from accprobe.callables.reductions import COMPOSITE_NAMES
from accprobe.compare.diff import diff, headline
from accprobe.compare.pairs import versus
from accprobe.composites.functions import FUNCTION_VARIANTS, combinations
from accprobe.composites.orders import MERGES, LaneOrder
from accprobe.composites.partial import Schedule, Sum
from accprobe.composites.steps import COMPOSITES, Arguments, Steps, rules_of
from accprobe.evaluate.product import product, sum_as_f32
from accprobe.isa.formats import FORMATS
from accprobe.model.product import ProductModel, multiply_add
from accprobe.report.report import Report

torch = pytest.importorskip("torch")
F32 = FORMATS["f32"]


run = partial(invoke, "reduce", columns=400)


def test_a_composite_of_torch_is_predicted(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    found = run("torch:rms_norm", "--shape", "16x64", "--elements", "4096", "--device", "cpu", "-o", str(file))
    assert found.exit_code == 0, found.output
    assert "computes    x · rsqrt(S / K + eps) with 1 / sqrt, both rounded" in found.stdout
    x = torch.from_numpy(np.random.default_rng(7).standard_normal((16, 64)).astype(np.float32))
    assert torch.equal(accprobe.predict(str(file), x), COMPOSITES["torch:rms_norm"].call(x, Arguments(1e-6)))


def test_a_composite_whose_results_change_is_not_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    composite, calls = COMPOSITES["torch:softmax"], iter(range(1 << 20))

    def changing(x: Any, given: Arguments) -> Any:
        return composite.call(x, given) * (1 + next(calls) % 2)

    monkeypatch.setitem(COMPOSITES, "torch:softmax", replace(composite, call=changing))
    found = run("torch:softmax", "--shape", "16x64", "--elements", "64")
    assert found.exit_code == 1, found.output
    assert "unstable" in found.stdout
    assert "identical calls give other bits" in found.stdout


def by_warps(lanes: Any) -> Any:
    """Add halves of each warp, then of the warps, [rows]."""
    for count in (32, lanes.shape[1] // 32):
        lanes = lanes.reshape(len(lanes), -1, count)
        while lanes.shape[2] > 1:
            half = lanes.shape[2] // 2
            lanes = lanes[..., :half] + lanes[..., half:]
        lanes = lanes[..., 0]
    return lanes[:, 0]


def planted_rms_norm(x: Any, given: Any) -> Any:
    """Compute as `vectorized_layer_norm_kernel` of torch does: 4 warps, vectors of 4, fused squares, shuffles, warps."""
    values, rsqrt = x.numpy(), FUNCTION_VARIANTS["rsqrt"]["rsqrt.approx.f32"]
    total = np.zeros((len(values), 128), np.float32)
    for first in range(0, values.shape[1], 512):
        for place in range(4):
            term = values[:, first + place : first + 512 : 4].astype(np.float64)
            total = (term * term + total).astype(np.float32)
    return torch.from_numpy(values * rsqrt(by_warps(total) / np.float32(values.shape[1]) + np.float32(given.eps))[:, None])


def planted_softmax(x: Any, given: Any) -> Any:
    """Compute as `softmax_warp_forward` of torch does: every 32nd element is one lane's, and each exponential is divided."""
    values = x.numpy()
    e = FUNCTION_VARIANTS["exp"]["expf of CUDA"](values - values.max(axis=1, keepdims=True))
    total = np.zeros((len(values), 32), np.float32)
    for first in range(0, values.shape[1], 32):
        total = total + e[:, first : first + 32]
    return torch.from_numpy(e / by_warps(total)[:, None])


def planted_cross_entropy(x: Any, given: Arguments) -> Any:
    """Compute a loss of each row as `cross_entropy` of torch does on a GPU, then add the losses in turn."""
    values, log = x.numpy(), FUNCTION_VARIANTS["log"]["logf of CUDA"]
    largest = values.max(axis=1)
    e = FUNCTION_VARIANTS["exp"]["expf of CUDA"](values - largest[:, None])
    total = by_warps(e[:, :32] + e[:, 32:])
    losses = -(values[np.arange(len(x)), np.asarray(given.targets)] - largest - log(total))
    if given.reduction == "none":
        return torch.from_numpy(losses[:, None])
    total = np.cumsum(losses, dtype=np.float32)[-1]
    return torch.tensor(total / np.float32(len(x)) if given.reduction == "mean" else total)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_each_reduction_of_cross_entropy_is_predicted(reduction: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, file = replace(COMPOSITES["torch:cross_entropy"], call=planted_cross_entropy), str(tmp_path / "found.json")
    monkeypatch.setitem(COMPOSITES, "torch:cross_entropy", other)
    options = "--elements", "64", "--option", f"reduction={reduction}", "--device", "cpu", "-o", file
    found = run("torch:cross_entropy", "--shape", "16x64", *options)
    assert found.exit_code == 0, found.output
    rng = np.random.default_rng(7)
    x, targets = torch.from_numpy(rng.standard_normal((16, 64)).astype(np.float32)), torch.from_numpy(rng.integers(0, 64, 16))
    expected = planted_cross_entropy(x, Arguments(None, targets, reduction)).reshape(-1)
    assert torch.equal(accprobe.predict(file, x, targets).reshape(-1), expected)


def planted_var(x: Any, given: Any) -> Any:
    """Compute as `reduce_kernel` of torch does with WelfordOps: 32 threads with two adjacent accumulators, merged by halves."""
    values = x.numpy().reshape(len(x), -1, 64)
    mean, m2, n = np.zeros((len(values), 64), np.float32), np.zeros((len(values), 64), np.float32), np.float32(0)
    for turn in values.transpose(1, 0, 2):
        n = n + np.float32(1)
        delta = turn - mean
        mean = mean + delta / n
        m2 = (delta.astype(np.float64) * (turn - mean) + m2).astype(np.float32)
    parts = [(mean[:, 0::2], m2[:, 0::2]), (mean[:, 1::2], m2[:, 1::2])]
    while True:
        (mean, m2), (mean_b, m2_b) = parts
        delta = mean_b - mean
        mean = (delta.astype(np.float64) * 0.5 + mean).astype(np.float32)
        m2 = ((delta * delta * n).astype(np.float64) * 0.5 + (m2 + m2_b)).astype(np.float32)
        n, half = 2 * n, mean.shape[1] // 2
        if not half:
            return torch.from_numpy(m2 / np.float32(x.shape[1] - 1))
        parts = [(mean[:, :half], m2[:, :half]), (mean[:, half:], m2[:, half:])]


@pytest.mark.parametrize(
    ("name", "planted", "computes"),
    [
        ("rms_norm", planted_rms_norm, "rsqrt.approx.f32; S in 128 lanes of 4, merged by warps, squares fused"),
        ("softmax", planted_softmax, "e / S with expf of CUDA; S in 32 lanes of 1, merged by halves"),
        (
            "var",
            planted_var,
            "fused multiply-adds, merged as WelfordOps does in 64 lanes of 1, merged 2 adjacent lanes, then threads",
        ),
    ],
)
def test_a_planted_gpu_kernel_is_found(name: str, planted: Any, computes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(COMPOSITES[f"torch:{name}"], call=planted)
    monkeypatch.setitem(COMPOSITES, f"torch:{name}", other)
    found = run(f"torch:{name}", "--shape", "32x512", "--elements", "4096", "--device", "cpu")
    assert found.exit_code == 0, found.output
    assert computes in found.stdout


def test_functions_that_16_bits_seldom_show_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that contradict the first function choose among the others; a few rows confirm none."""
    other = replace(COMPOSITES["torch:rms_norm"], call=lambda x, given: planted_rms_norm(x.float(), given).bfloat16())
    monkeypatch.setitem(COMPOSITES, "torch:rms_norm", other)
    for elements, function in ((4096, "1 / sqrt, both rounded"), (1 << 18, "rsqrt.approx.f32")):
        drawn = "--elements", str(elements), "--seed", "0"
        found = run("torch:rms_norm", "--shape", "32x512", "--dtype", "bf16", "--device", "cpu", *drawn)
        assert found.exit_code == 1
        assert f"{function} explains every result, but bf16 seldom shows its difference from" in found.stdout
        assert "give --elements 33554432" in found.stdout


def half_norm(x: Any, given: Any) -> Any:
    return x.square().sum(-1, keepdim=True) * 0.5


def shuffled_norm(x: Any, given: Any) -> Any:
    return x.square()[:, torch.randperm(64, generator=torch.Generator().manual_seed(0))].cumsum(-1)[:, -1:].sqrt()


def two_pass_var(x: Any, given: Any) -> Any:
    return (x - x.mean(-1, keepdim=True)).square().sum(-1, keepdim=True) / 63


@pytest.mark.parametrize(
    ("name", "planted", "why"),
    [
        ("norm", half_norm, "inferred\nthe steps around the sum are not explained: with one or two terms"),
        ("norm", shuffled_norm, "the order of the sum is not explained: none of"),
        ("var", two_pass_var, "the mean and M2 are not explained: none of"),
    ],
)
def test_an_unknown_step_or_order_is_named(name: str, planted: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPOSITES, f"torch:{name}", replace(COMPOSITES[f"torch:{name}"], call=planted))
    found = run(f"torch:{name}", "--shape", "16x64", "--device", "cpu")
    assert found.exit_code == 1
    assert why in found.stdout
    assert planted is half_norm or "the nearest has" in found.stdout


@pytest.mark.parametrize(("width", "k", "singly"), [(1, 1200, False), (2, 2048, False), (1, 1025, True)])
def test_the_tree_of_an_order_gives_its_sums(width: int, k: int, singly: bool) -> None:
    x = np.random.default_rng(0).standard_normal((4, k)).astype(np.float32)
    for order in [LaneOrder(1024, width, merge, singly) for merge in list(MERGES)[::5]]:
        model = ProductModel(F32, F32, k, multiply_add(), order.tree(k), F32)
        expected = product(model, np.ones((1, k), np.float32).view(np.uint32), x.view(np.uint32))[0].view(np.float32)
        assert np.array_equal(Schedule(order.tree(k)).result(Sum(), np.ascontiguousarray(x.T))[0], expected)


@pytest.mark.parametrize(("name", "exact"), [("exp", np.exp), ("log", np.log)])
def test_functions_are_accurate(name: str, exact: Any) -> None:
    x = np.random.default_rng(0).uniform(-80, 0, 4096).astype(np.float32)
    x = x if name == "exp" else np.exp2(-x)
    for kind, function in FUNCTION_VARIANTS[name].items():
        assert np.max(np.abs(function(x) / exact(x.astype(np.float64)) - 1)) < 2.0**-22, kind
    assert f"{name}f of CUDA" in FUNCTION_VARIANTS[name]


def test_messages_name_every_composite() -> None:
    assert set(COMPOSITE_NAMES) == set(COMPOSITES)


def test_a_comparison_names_the_steps_around_the_sums_that_differ() -> None:
    """Rows with the same sums differed in eps, or in a bias that one of them adds, and the line said that nothing differs."""
    norm = next(row for row in Report.load("reductions-h200").products if row.name == "torch:rms_norm")
    other = norm.model_copy(update={"composite": norm.composite.model_copy(update={"eps": 0.1})})
    assert versus(norm, norm)[0]
    assert versus(norm, other) == (False, "a repeated run changed eps: 1e-06 -> 0.1")
    either = norm.composite.model_copy(update={"finish": "x · r", "same_bits": ("x / s",)})
    assert versus(norm, norm.model_copy(update={"composite": either}))[1].startswith("a repeated run may have changed result: ")
    a, b = (Report.load("reductions-h200").with_claims([row]) for row in (norm, other))
    assert headline(diff(a, b)).endswith(": eps 1e-06 → 0.1")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["rms_norm", "logsumexp", "layer_norm", "var"])
def test_a_gpu_predicts_the_words_that_numpy_predicts(name: str) -> None:
    """Arrays of cupy go through the same steps, with fused multiply-adds of the GPU."""
    cupy = pytest.importorskip("cupy")
    composite, rng = COMPOSITES[f"torch:{name}"], np.random.default_rng(1)
    x = (rng.standard_normal((64, 1027)) * 2.0 ** rng.integers(-20, 20, (64, 1))).astype(np.float32).view(np.uint32)
    schedule = Schedule(LaneOrder(64, 1, "2 adjacent lanes, then threads by halves").tree(1027))
    for function, compute in combinations(composite.functions):
        for rule, _, _ in rules_of(composite, F32):
            steps = Steps(composite, function, compute, next(iter(composite.finishes)), composite.eps)
            expected = steps.words(rule, schedule, x, F32, F32)
            found = cupy.asnumpy(steps.words(rule, schedule, cupy.asarray(x), F32, F32))
            np.testing.assert_array_equal(found, expected)


def test_compiled_multiply_adds_equal_those_of_numpy() -> None:
    lanes = pytest.importorskip("accprobe.evaluate.lanes", reason="numba is not installed")
    words = np.random.default_rng(0).integers(0, 1 << 32, (3, 1 << 16), dtype=np.uint32)
    words[:, ::2] &= 0xBFFF_F000  # many sums lie in the middle between two numbers
    x, y, z = words.view(np.float32)
    with np.errstate(all="ignore"):
        found, expected, rounded_twice = lanes.multiply_add_singles(x, y, z), sum_as_f32(x.astype(np.float64) * y, z), x * y + z
    np.testing.assert_array_equal(found, expected)
    assert np.count_nonzero(found != rounded_twice) > 1 << 8

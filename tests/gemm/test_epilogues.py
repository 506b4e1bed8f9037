"""Epilogues of products: C, alpha, beta and activations, planted and of torch on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import invoke

import accprobe
from accprobe.callables.adapter import CallableAdapter
from accprobe.callables.arrays import open_arrays
from accprobe.callables.epilogues import Activation, Epilogue, activation_named
from accprobe.callables.spec import Spec
from accprobe.gemm import epilogue
from accprobe.gemm.characterise import characterise
from accprobe.gemm.epilogue import infer_epilogue
from accprobe.gemm.findings import ProductOutcome, findings, status
from accprobe.isa.formats import FORMATS

torch = pytest.importorskip("torch")
BF16 = FORMATS["bf16"]
SPEC = Spec(16, 16, 32, BF16, BF16, BF16)


def summed(a: Any, b: Any, total: Any = 0.0) -> Any:
    """Add products in f32, in turn."""
    for k in range(a.shape[1]):
        total = total + a[:, k, None].float() * b[k].float()
    return total


PLANTED: dict[str, Callable[..., Any]] = {
    "sum + C in f32, rounded once to bf16": lambda a, b, c: (summed(a, b) + c.float()).bfloat16(),
    "sum rounded to bf16, then C added and rounded": lambda a, b, c: summed(a, b).bfloat16() + c,
    "C as the first term of the sum, rounded once to bf16": lambda a, b, c: summed(a, b, c.float()).bfloat16(),
}


def adapter_of(call: Callable[..., Any], activation: Activation | None = None) -> CallableAdapter:
    library, shape = open_arrays("torch", "cpu"), (SPEC.m, SPEC.n)
    planted = Epilogue(lambda a, b, c, alpha, beta: call(a, b, c), SPEC, library, shape, {}, activation=activation)
    return CallableAdapter(SPEC, planted, library, "planted")


@pytest.fixture(autouse=True)
def _few_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epilogue, "ELEMENTS", 1 << 12)


@pytest.fixture(scope="module")
def product() -> ProductOutcome:
    """Return the outcome of the product that every planted epilogue has.

    C = +0 instead of -0 would make a result of -0 positive: bf16 sums, such as those of small negative numbers, are -0.
    """
    return characterise(adapter_of(PLANTED["sum rounded to bf16, then C added and rounded"]), elements=512)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_epilogue_is_found(name: str, product: ProductOutcome) -> None:
    product.epilogue, product.stopped = None, ""
    infer_epilogue(adapter_of(PLANTED[name]), product, 0)
    assert status(product) == ("confirmed", "")
    found = findings(product)["epilogue"]
    assert (found.value, found.bound) == (name, "exact")


def test_an_activation_follows_the_rounding(product: ProductOutcome) -> None:
    product.epilogue, product.stopped = None, ""
    adapter = adapter_of(PLANTED["sum + C in f32, rounded once to bf16"], activation_named("gelu_tanh"))
    infer_epilogue(adapter, product, 0)
    assert findings(product)["epilogue"].value == "sum + C in f32, rounded once to bf16; gelu(tanh) of the rounded result"


def test_an_unknown_epilogue_is_named(product: ProductOutcome) -> None:
    product.epilogue, product.stopped = None, ""
    infer_epilogue(adapter_of(lambda a, b, c: (summed(a, b) * (1 + c.float())).bfloat16()), product, 0)
    state, reason = status(product)
    assert state == "inferred"
    assert reason.startswith("the epilogue is not explained")


def planted_linear(a: Any, w: Any, bias: Any) -> Any:
    return (summed(a, w.t()) + bias.float()).bfloat16()


def test_a_bias_is_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own linear adds in another order on each kind of processor."""
    monkeypatch.setattr(torch.nn.functional, "linear", planted_linear)
    file = tmp_path / "linear.json"
    arguments = ["torch:linear", "--shape", "16x24x32", "--dtype", "bf16", "--elements", "1024", "--device", "cpu", "-o"]
    found = invoke("gemm", *arguments, str(file), columns=200)
    assert found.exit_code == 0, found.output
    assert "epilogue    sum + C in f32, rounded once to bf16" in found.stdout
    rng = np.random.default_rng(3)
    a, w, bias = (torch.from_numpy(rng.standard_normal(shape)).bfloat16() for shape in ((16, 32), (24, 32), (24,)))
    assert torch.equal(accprobe.predict(str(file), a, w.T.contiguous(), bias), planted_linear(a, w, bias))


def test_a_function_with_a_bias_is_given_one(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def f(a, b, bias):\n    return sum(a[:, k, None] * b[k] for k in range(a.shape[1])) + bias\n")
    arguments = ["--arrays", "torch", "--shape", "16x16x32", "--elements", "512", "--device", "cpu"]
    found = invoke("gemm", f"{file}:f", *arguments, columns=200)
    assert found.exit_code == 0, found.output
    assert "epilogue    sum + C in f32; " in found.stdout

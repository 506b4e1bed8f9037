"""Small modules with one planted difference: the origin and its cause are named, and consequences are not origins."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from accprobe.errors import AccprobeError  # noqa: E402
from accprobe.trace import ProgramRun, run_both  # noqa: E402
from accprobe.trace.causes import TraceFindings  # noqa: E402
from accprobe.trace.replay import RecordedCall, copy_operand  # noqa: E402

K = 256


class Plain(torch.nn.Module):
    """Two linear layers with a planted function between them."""

    def __init__(self, middle: Callable[[Any], Any]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = torch.nn.Linear(64, K, bias=False), torch.nn.Linear(K, 64, bias=False)
        self.middle = Middle(middle)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.last(self.middle(self.first(x))))


class Middle(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def program(middle: Callable[[Any], Any]) -> Callable[[], Any]:
    model = Plain(middle)
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(2))
    return lambda: model(x).detach()


def differences(one: Callable[[Any], Any], other: Callable[[Any], Any]) -> TraceFindings:
    with torch.no_grad():
        return run_both(ProgramRun(function=program(one)), ProgramRun(function=program(other)))


def same(x: Any) -> Any:
    return x * 1.5


def flipped(x: Any) -> Any:
    """One bit, where no operation sees it."""
    result = x * 1.5
    result.numpy().view(np.uint32)[3, 5] ^= 1 << 7
    return result


def two_halves(x: Any) -> Any:
    return x[:, : K // 2].sum(-1, keepdim=True) + x[:, K // 2 :].sum(-1, keepdim=True) + x


MIDDLES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str, str]] = {
    "reduction": (lambda x: x.sum(-1, keepdim=True) + x, two_halves, "reduction", "aten.sum"),
    "cast": (same, lambda x: (x * 1.5).bfloat16().float(), "cast", "aten._to_copy"),
    "activation": (torch.relu, torch.nn.functional.silu, "function", "aten.silu"),
    "approximate": (
        torch.nn.functional.gelu,
        lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        "argument",
        "aten.gelu",
    ),
    "dropout": (same, lambda x: torch.nn.functional.dropout(x * 1.5), "dropout", "aten.bernoulli_"),
    "fused": (lambda x: x * 1.5 + x, lambda x: torch.addcmul(x, x, torch.tensor(1.5)), "fusion", "aten.addcmul"),
}


@pytest.mark.parametrize("name", MIDDLES)
def test_a_planted_difference_is_the_one_origin(name: str) -> None:
    one, other, kind, operation = MIDDLES[name]
    found = differences(one, other)
    assert [(x.cause.kind, operation in x.origin.operation) for x in found.origins] == [(kind, True)]
    assert found.origins[0].origin.module == "middle"
    assert found.comparison.count("consequence") >= 2
    assert found.origins[0].cause.verified == (kind != "reduction")


def test_equal_runs_are_equal() -> None:
    found = differences(same, same)
    assert found.comparison.equal
    assert found.comparison.operations == (4, 4)


class Split(torch.nn.Linear):
    """A product of two slices of K."""

    def forward(self, x: Any) -> Any:
        half, weight = self.in_features // 2, self.weight.t()
        return x[:, :half] @ weight[:half] + x[:, half:] @ weight[half:]


def test_a_split_product_is_explained_and_verified() -> None:
    def program(kind: type[Any]) -> Callable[[], Any]:
        torch.manual_seed(1)
        layers = torch.nn.Sequential(kind(512, 64, bias=False), torch.nn.ReLU(), torch.nn.Linear(64, 8))
        x = torch.randn(16, 512)
        return lambda: layers(x).detach()

    with torch.no_grad():
        found = run_both(ProgramRun(function=program(torch.nn.Linear)), ProgramRun(function=program(Split)))
    (origin,) = found.origins
    assert (origin.origin.module, origin.cause.kind, origin.cause.verified) == ("0", "split_k", True)
    assert "split-K 2 (f32 partial sums)" in origin.cause.text


def test_one_flipped_bit_is_not_explained() -> None:
    (origin,) = differences(same, flipped).origins
    assert origin.cause.kind == "unknown"
    assert "bit 7" in origin.cause.text


def test_an_operation_that_differs_from_itself_is_unstable() -> None:
    @torch.library.custom_op("accprobe_test::unstable", mutates_args=())
    def unstable(x: torch.Tensor) -> torch.Tensor:
        return x + float(np.random.default_rng().integers(1, 1 << 20))

    (origin,) = differences(unstable, unstable).origins
    assert (origin.cause.kind, origin.origin.operation) == ("atomics", "accprobe_test.unstable")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch._inductor
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
def test_compiled_code_rounds_once() -> None:
    x, w = torch.randn(64, 256).bfloat16(), torch.randn(256).bfloat16()

    def function() -> Any:
        return (x * w + x) * w

    (origin,) = run_both(ProgramRun(function=function), ProgramRun(function=function, backend="inductor")).origins
    assert (origin.origin.operation, origin.cause.kind) == ("aten.mul + aten.add + aten.mul on side A only", "fusion")
    assert origin.cause.verified
    assert origin.cause.text == "3 operations fused on side B: computed in f32 and rounded once"


def test_undefined_results_of_an_attention_do_not_make_it_unstable() -> None:
    """On an H200 the state of cuDNN's random generator differed in each repetition, which was called atomics."""
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    heads = torch.randn(1, 2, 8, 16)
    operand, (output, other) = copy_operand(0, heads, {}), attention(heads, heads, heads)
    results = [copy_operand(1, output, {}), copy_operand(2, other + 1, {})]
    assert RecordedCall(attention, (operand,) * 3, {}, {}, results).repeats()
    results[0] = copy_operand(1, output + 1, {})
    assert not RecordedCall(attention, (operand,) * 3, {}, {}, results).repeats()


def fails() -> None:
    torch.set_default_dtype(torch.float64)
    raise ValueError("no such layer\nsecond line")


@pytest.mark.parametrize(
    ("function", "sentence"), [(fails, "ValueError: no such layer; nothing"), (list, "nothing to compare")]
)
def test_a_program_that_fails_or_computes_nothing_is_one_sentence(function: Callable[[], Any], sentence: str) -> None:
    """The type that it set as torch's default does not stay."""
    with pytest.raises(AccprobeError, match=sentence):
        run_both(ProgramRun(function=function), ProgramRun(function=function))
    assert torch.get_default_dtype() == torch.float32

"""Small modules with one planted difference: the origin and its cause are named, and consequences are not origins."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accprobe.errors import AccprobeError
from accprobe.trace import ProgramRun, causes, compare_folders, functions, record, run_both
from accprobe.trace.compare import TraceComparison
from accprobe.trace.replay import RecordedCall, copy_operand, count_differing
from accprobe.trace.summary import trace_headline

torch = pytest.importorskip("torch")

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


def program(middle: Callable[[Any], Any], change: Callable[[Any], Any] = lambda model: model) -> Callable[[], Any]:
    model = change(Plain(middle))
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(2))
    return lambda: model(x).detach()


def differences(one: Callable[[Any], Any], other: Callable[[Any], Any]) -> TraceComparison:
    with torch.no_grad():
        return run_both(ProgramRun(function=program(one)), ProgramRun(function=program(other)))


def of_folders(folder: Path, one: Callable[[], Any], other: Callable[[], Any], save: Sequence[str] = ()) -> TraceComparison:
    for name, run in (("a", one), ("b", other)):
        with torch.no_grad(), record(folder / name, save=save):
            torch.manual_seed(0)
            run()
    return compare_folders(folder / "a", folder / "b")


def same(x: Any) -> Any:
    return x * 1.5


def flipped(x: Any) -> Any:
    """One bit, where no operation sees it."""
    result = x * 1.5
    result.numpy().view(np.uint32)[3, 5] ^= 1 << 7
    return result


def two_halves(x: Any) -> Any:
    return x[:, : K // 2].sum(-1, keepdim=True) + x[:, K // 2 :].sum(-1, keepdim=True) + x


def polynomial(x: Any) -> Any:
    return x * (0.5 + x / 4 - x**3 / 48)


def tanh_gelu(x: Any) -> Any:
    return torch.nn.functional.gelu(x, approximate="tanh")


BIAS = torch.linspace(-1, 1, K)
SQUARE = torch.randn(K, K, generator=torch.Generator().manual_seed(3))
NARROW_BIAS, NARROW_SQUARE = BIAS.bfloat16(), SQUARE.bfloat16()
"""With bf16 operands, mm rounds before the bias is added, and addmm after it; in f32 some processors give equal bits."""

MIDDLES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str, str]] = {
    "reduction": (lambda x: x.sum(-1, keepdim=True) + x, two_halves, "reduction", "1 × aten.sum against 2 × aten.sum"),
    "cast": (same, lambda x: (x * 1.5).bfloat16().float(), "cast", "cast to bfloat16 and back to float32 (aten._to_copy)"),
    "one cast": (
        lambda x: x * BIAS,
        lambda x: x.bfloat16() * BIAS,
        "cast",
        "side B has an extra cast to bfloat16 (aten._to_copy)",
    ),
    "activation": (torch.relu, torch.nn.functional.silu, "function", "relu against "),
    "polynomial": (torch.nn.functional.silu, polynomial, "function", "aten.silu against aten.div"),
    "approximate": (torch.nn.functional.gelu, tanh_gelu, "argument", "approximate 'none' against 'tanh'"),
    "dropout": (same, lambda x: torch.nn.functional.dropout(x * 1.5, 0.1), "dropout", "dropout is on in side B (p 0.1)"),
    "chance": (
        lambda x: torch.nn.functional.dropout(x, 0.5),
        lambda x: torch.nn.functional.dropout(x, 0.25),
        "dropout",
        "aten.bernoulli_ draws random numbers on both sides, with p 0.5 against 0.75",
    ),
    "fused": (lambda x: x * 1.5 + x, lambda x: torch.addcmul(x, x, torch.tensor(1.5)), "fusion", "operations"),
    "bias": (
        lambda x: torch.addmm(NARROW_BIAS, x.bfloat16(), NARROW_SQUARE).float(),
        lambda x: (x.bfloat16() @ NARROW_SQUARE + NARROW_BIAS).float(),
        "fusion",
        "aten.mm then aten.add: the bias",
    ),
    "split": (
        lambda x: x @ SQUARE,
        lambda x: x[:, :99] @ SQUARE[:99] + x[:, 99:] @ SQUARE[99:],
        "split_k",
        "side B is split-K 2: it adds 2 GEMMs of K = 99 + 157",
    ),
}


@pytest.mark.parametrize("name", MIDDLES)
def test_a_planted_difference_is_the_one_origin(name: str, tmp_path: Path) -> None:
    """In one process, and by the files of two: without operands the cause is named, with operands it is verified."""
    one, other, kind, text = MIDDLES[name]
    found = [
        differences(one, other),
        of_folders(tmp_path / "saved", program(one), program(other), ["*"]),
        of_folders(tmp_path / "plain", program(one), program(other)),
    ]
    for each, verified in zip(found, (True, True, False), strict=True):
        (origin,) = each.origins
        assert origin.module == "middle"
        assert each.count("consequence") >= 2
        assert origin.cause.verified == verified
        if verified or name != "fused":  # that the two operations are one is seen in the words alone
            assert origin.cause.kind == kind
            assert text in origin.cause.text


def test_a_block_ends_before_the_same_operation_of_both_sides() -> None:
    """The product that reads the sum hid the split: "another formula"."""
    last = torch.rand(K, 4)
    one, other = (ProgramRun(function=lambda f=f: f(SQUARE) @ last) for f in MIDDLES["split"][:2])
    (origin,) = run_both(one, other).origins
    assert (origin.operation, origin.cause.kind) == ("aten.mm against aten.mm + aten.mm + aten.add", "split_k")


def test_elements_of_other_types_are_compared_by_value() -> None:
    """Words of 32 and of 16 bits were compared: 3 of 3 elements differed."""
    assert count_differing(torch.tensor([1.0, 1.25, 1.001]), torch.tensor([1.0, 1.25, 1.001]).bfloat16()) == 1
    found = run_both(ProgramRun(function=NARROW_SQUARE.clone), ProgramRun(function=lambda: NARROW_SQUARE.float().clone()))
    assert trace_headline(found).endswith("has an extra cast to float32 (aten._to_copy), read by aten.clone; values equal")


def test_functions_of_both_sides_are_named() -> None:
    """Each is explained by the words alone, and verified if one explanation gives all of them."""
    silu = torch.nn.functional.silu
    cases: list[tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = [
        (torch.exp, lambda x: torch.from_numpy(np.exp(x.numpy())), "exp: torch's exp in f32 against numpy's exp in f32"),
        (torch.relu, silu, "relu against silu: relu, rounded once (RNE) against torch's silu in f32"),
        (torch.nn.functional.gelu, tanh_gelu, "; gelu against gelu_tanh: torch's gelu in f32 against torch's gelu of 'tanh'"),
        (
            lambda x: silu(x.bfloat16()).float(),
            lambda x: (x.bfloat16() * torch.sigmoid(x.bfloat16())).float(),
            "silu: silu, rounded once (RNE) against torch's x · sigmoid(x) in bf16; results differ by up to 1 ulp",
        ),
    ]
    for one, other, text in cases:
        (origin,) = differences(one, other).origins
        assert text in origin.cause.text
        assert origin.cause.verified


def test_a_function_of_some_words_is_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second word was left out of a large result, and a difference in the others was called verified."""

    def one_wrong(x: Any) -> Any:
        found = np.exp(x.numpy())
        found.reshape(-1)[1] *= np.float32(1.001)
        return torch.from_numpy(found)

    monkeypatch.setattr(functions, "TOGETHER", 64)
    (origin,) = differences(torch.exp, one_wrong).origins
    assert "exp: torch's exp in f32 against exp with errors of up to 1.12e+04 ulp" in origin.cause.text
    assert not origin.cause.verified
    monkeypatch.setattr(functions, "MOST_WORDS", 64)
    (origin,) = differences(torch.exp, one_wrong).origins
    assert "numpy's exp in f32, in the 64 of" in origin.cause.text
    assert not origin.cause.verified


def softmax_by_hand(x: Any) -> Any:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


@pytest.mark.parametrize(("terms", "kind"), [(2, "function"), (64, "reduction")])
def test_sums_beside_another_formula_are_not_verified(terms: int, kind: str) -> None:
    """Two terms have one reduction tree, and exp may differ too."""
    x = torch.randn(64, terms, generator=torch.Generator().manual_seed(0))
    one, other = (ProgramRun(function=lambda f=f: f(x)) for f in (lambda x: torch.softmax(x, -1), softmax_by_hand))
    (origin,) = run_both(one, other).origins
    assert (origin.cause.kind, origin.cause.verified) == (kind, False)
    assert origin.cause.text.startswith("another formula")


def test_an_argument_of_an_operation_in_place_is_the_cause() -> None:
    """Other eps of a norm: they were "another formula: aten.add_ against aten.add"."""
    x = torch.rand(8, 1)
    for other in (lambda: (x * 1).add_(1e-5), lambda: x * 1 + 1e-5):
        (origin,) = run_both(ProgramRun(function=lambda: (x * 1).add_(1e-6)), ProgramRun(function=other)).origins
        assert (origin.cause.kind, origin.cause.text) == ("argument", "other 1e-06 against 1e-05")
        assert origin.cause.verified


def rounded(model: Any) -> Any:
    return model.bfloat16().float()


def with_flipped_bit(model: Any) -> Any:
    model.last.weight.data.numpy().view(np.uint32)[3, 5] ^= 1 << 7
    return model


@pytest.mark.parametrize(
    ("change", "weight", "text"),
    [
        (with_flipped_bit, "last.weight", "1 of 16,384 elements differs, in bit 7"),
        (rounded, "first.weight", "elements differ: side B has the values of side A rounded to bfloat16"),
    ],
)
def test_a_weight_that_differs_is_named(change: Callable[[Any], Any], weight: str, text: str, tmp_path: Path) -> None:
    runs = program(same), program(same, change)
    origin = of_folders(tmp_path / "plain", *runs).origins[0]
    assert origin.cause.text.startswith(f"weight {weight} differs; for its values, record both sides again with --save '")
    origin = of_folders(tmp_path / "saved", *runs, [weight.removesuffix(".weight")]).origins[0]
    assert (origin.cause.kind, origin.cause.verified) == ("input", True)
    assert origin.cause.text.startswith(f"weight {weight}: ")
    assert origin.cause.text.endswith(text)


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (lambda x: x.to_sparse() @ x, lambda x: x.to_sparse() @ x, "equal results: 1 operation equal, 1 not comparable"),
        (
            lambda x: (x.to_sparse() @ x) * 2,
            lambda x: (x.to_sparse() @ x) * 3,
            "first difference: aten.mul [2,2]: other 2 against 3",
        ),
        (
            lambda x: x.to("meta"),
            lambda x: x.to("meta"),
            "not comparable: aten._to_copy reads or gives a sparse, nested, meta, conjugated or negated tensor",
        ),
        (
            torch.clone,
            lambda x: x.bfloat16().clone(),
            "extra cast to bfloat16 (aten._to_copy), read by aten.clone; values equal",
        ),
        (lambda x: x.cdouble() * (1 + 2j), lambda x: x.cdouble() * (1 + 3j), "other '(1+2j)' against '(1+3j)'"),
    ],
)
def test_unusual_tensors_are_compared_or_not_called_equal(one: Any, other: Any, text: str) -> None:
    """A sparse tensor ended the program: it has no storage. So did complex numbers. Two meta tensors were equal."""
    x = torch.eye(2)
    assert text in trace_headline(run_both(ProgramRun(function=lambda: one(x)), ProgramRun(function=lambda: other(x))))


def test_one_flipped_bit_is_not_explained(tmp_path: Path) -> None:
    (origin,) = differences(same, flipped).origins
    assert origin.cause.kind == "unknown"
    assert "bit 7" in origin.cause.text
    (origin,) = of_folders(tmp_path, program(same), program(flipped)).origins
    assert origin.cause.text.endswith("; for the cause, record both sides again with --save 'last'")


@pytest.mark.parametrize("error", [RuntimeError, RecursionError])
def test_an_error_is_the_reason_why_a_cause_is_unknown_unless_it_is_a_defect(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error("too little\nmemory")

    monkeypatch.setattr(causes, "_cause", fails)
    with pytest.raises(RecursionError) if error is RecursionError else nullcontext():
        (origin,) = differences(same, flipped).origins
        assert (origin.cause.kind, origin.cause.text) == ("unknown", "not explained: too little memory")


def test_an_operation_that_differs_from_itself_is_unstable() -> None:
    @torch.library.custom_op("accprobe_test::unstable", mutates_args=())
    def unstable(x: torch.Tensor) -> torch.Tensor:
        return x + float(np.random.default_rng().integers(1, 1 << 20))

    (origin,) = differences(unstable, unstable).origins
    assert (origin.cause.kind, origin.operation) == ("atomics", "accprobe_test.unstable")


@pytest.mark.slow  # torch imports its compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch._inductor
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
def test_compiled_code_rounds_once() -> None:
    x, w = torch.randn(64, 256).bfloat16(), torch.randn(256).bfloat16()

    def function() -> Any:
        return (x * w + x) * w

    (origin,) = run_both(ProgramRun(function=function), ProgramRun(function=function, backend="inductor")).origins
    assert (origin.operation, origin.cause.kind) == ("aten.mul + aten.add + aten.mul on side A only", "fusion")
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


def with_flag(name: str) -> ProgramRun:
    return ProgramRun(function=lambda: torch.ones(2) + 1, flags={f"torch.backends.cuda.matmul.{name}": "abc"})


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (ProgramRun(function=fails), "ValueError: no such layer second line; nothing"),
        (ProgramRun(function=list), "nothing to compare"),
        (ProgramRun(function=lambda: torch.empty(0)), "nothing to compare"),
        (with_flag("allow_tf33"), "there is no flag"),
        (with_flag("allow_tf32"), "allow_tf32 cannot be set to abc"),
        (ProgramRun(function=fails, keywords={"x": 1}), "TypeError: .* unexpected keyword argument 'x'; nothing was compared"),
    ],
)
def test_a_program_that_cannot_be_compared_is_one_sentence(run: ProgramRun, sentence: str) -> None:
    """The type that it set as torch's default does not stay."""
    with pytest.raises(AccprobeError, match=sentence):
        run_both(run, run)
    assert torch.get_default_dtype() == torch.float32


def test_a_side_with_other_bits_in_a_second_run_has_no_other_cause() -> None:
    runs: list[int] = []

    def drifting() -> Any:
        runs.append(1)
        return torch.ones(4) * float(len(runs))

    found = run_both(ProgramRun(function=drifting), ProgramRun(function=drifting))
    causes = [(each.cause.kind, each.cause.text.rpartition(": ")[2]) for each in found.origins]
    assert causes == [("atomics", "seen in a second run")]


def test_equal_results_of_code_that_is_not_seen_are_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was compared but what both sides return."""

    def eager() -> Any:
        return torch.ones(4) + 1

    made = eager()
    monkeypatch.setattr(torch, "compile", lambda function, backend: lambda: made)
    with pytest.raises(AccprobeError, match="no operation of side B was recorded"):
        run_both(ProgramRun(function=eager), ProgramRun(function=eager, backend="inductor"))

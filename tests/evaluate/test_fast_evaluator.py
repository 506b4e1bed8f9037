"""The compiled evaluator gives the bits of the numpy one, whatever the model, the operands and their layout."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import Planted, float_models, instruction, integer_models

from accprobe.evaluate import evaluator
from accprobe.evaluate.evaluator import evaluate
from accprobe.evaluate.reference import Evaluation
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.published import CHIPS, known_models
from accprobe.model.tree import (
    DotModel,
    FloatArithmetic,
    IntegerArithmetic,
    NanPayload,
    ProductExponent,
    Subnormals,
    ZeroTerms,
    chain,
)
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined

fast_evaluator = pytest.importorskip("accprobe.evaluate.compiled", reason="numba is not installed")


def assert_agrees(inst: Instruction, model: DotModel, operands: Request) -> None:
    expected = evaluator.with_numpy(model, inst, operands)
    got = fast_evaluator.evaluate(model, inst, operands)
    assert got.dtype == expected.dtype
    wrong = np.flatnonzero(got != expected)
    if len(wrong):
        a, b, c = (x[wrong[0]] for x in operands)
        pytest.fail(f"{model} a={a} b={b} c={c:#x}: {got[wrong[0]]:#x}, numpy {expected[wrong[0]]:#x}")


def every_kind(inst: Instruction, seed: int, n: int) -> Request:
    rng = np.random.default_rng(seed)
    return joined([draw(kind, inst, rng, n) for kind in kinds(inst)])


@settings(max_examples=300, deadline=None)
@given(float_models(compiled=True), st.integers(0, 2**32 - 1))
def test_any_float_model(planted: Planted, seed: int) -> None:
    assert_agrees(planted.instruction, planted.model, every_kind(planted.instruction, seed, 20))


@settings(max_examples=100, deadline=None)
@given(integer_models(compiled=True), st.integers(0, 2**32 - 1))
def test_any_integer_model(planted: Planted, seed: int) -> None:
    assert_agrees(planted.instruction, planted.model, every_kind(planted.instruction, seed, 50))


@pytest.mark.parametrize("zero_terms", get_args(ZeroTerms))
@pytest.mark.parametrize("rule", get_args(ProductExponent))
@pytest.mark.parametrize("subnormals", get_args(Subnormals))
def test_zeros_and_subnormals_in_the_alignment(zero_terms: str, rule: str, subnormals: str) -> None:
    """The combinations that no planted model has."""
    inst = instruction(16, "f32", "e5m2", "e4m3", "f32")
    arithmetic = FloatArithmetic(FORMATS["f32"], 20, "RU", 21, product_exponent=rule, zero_terms=zero_terms)
    model = DotModel(chain([range(8), range(8, 16)], arithmetic), subnormals, subnormals)
    assert_agrees(inst, model, every_kind(inst, 4, 2000))


@pytest.mark.parametrize("chip", CHIPS)
def test_every_published_model(chip: str) -> None:
    groups = {(known.model, inst.a, inst.b, inst.c, inst.d): inst for inst, known in known_models(chip).items()}
    for (model, *_), inst in groups.items():
        assert_agrees(inst, model, every_kind(inst, 5, 200))


@pytest.mark.parametrize("payload", get_args(NanPayload))
def test_nan_payloads(payload: str) -> None:
    inst = instruction(4, "f64", "f64", "f64", "f64")
    arithmetic = FloatArithmetic(FORMATS["f64"], 52, "RNE", None, nan=0xFFF8 << 48, nan_payload=payload)
    for groups in ([[0], [1], [2], [3]], [[0, 1], [2, 3]]):
        assert_agrees(inst, DotModel(chain(groups, arithmetic)), draw("special", inst, np.random.default_rng(2), 3000))


@pytest.mark.parametrize("rounding", ["RZ", "RNE", "RU", "RD"])
@pytest.mark.parametrize(
    ("operand", "result"),
    [("f64", "f64"), ("f16", "f32"), ("bf16", "f32"), ("e5m2", "f16"), ("tf32", "f32"), ("bf16", "bf16"), ("f16", "f64")],
)
@pytest.mark.parametrize("size", [1, 2, 8])
def test_exact_sums(operand: str, result: str, rounding: str, size: int) -> None:
    inst = instruction(8, result, operand, operand, result)
    fmt = FORMATS[result]
    arithmetic = FloatArithmetic(fmt, fmt.mantissa_bits, rounding, None, zero_sign="ieee", nan=(fmt.infinity or 0) + 1)
    for bits in (fmt.mantissa_bits, 3):
        model = DotModel(chain([range(i, i + size) for i in range(0, 8, size)], replace(arithmetic, result_bits=bits)))
        assert_agrees(inst, model, every_kind(inst, 1, 300))


def specials(fmt: Format) -> list[int]:
    """Zeros, the smallest and largest subnormal and normal numbers, infinities and NaNs, of both signs."""
    low = fmt.ignored_low_bits
    step, normal = 1 << low, 1 << (fmt.mantissa_bits + low)
    top = (
        [fmt.largest, fmt.largest + step, fmt.largest + 2 * step, fmt.sign_bit - 1] if fmt.specials != "none" else [fmt.largest]
    )
    magnitudes = {x for x in (0, step, normal - step, normal, normal + step, *top) if x < fmt.sign_bit}
    return sorted(x | sign for x in magnitudes for sign in (0, fmt.sign_bit))


@pytest.mark.parametrize("operand", ["e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "f16", "bf16", "tf32"])
@pytest.mark.parametrize("zero_sign", ["positive", "ieee"])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("alignment_bits", [None, 13, 25])
def test_every_triple_of_special_values(operand: str, zero_sign: str, flushed: bool, alignment_bits: int | None) -> None:
    """Each A with each B and each C; and each A with each C, where two products of opposite signs meet."""
    inst = instruction(4, "f32", operand, operand, "f32")
    values = [np.array(specials(fmt), fmt.dtype) for fmt in (inst.a, inst.b, inst.c)]
    a, b, c = (x.reshape(-1) for x in np.meshgrid(*values))
    operands = Request(*(np.zeros((len(c), 4), inst.a.dtype) for _ in range(2)), c)
    operands.a[:, 1], operands.b[:, 1] = a, b
    opposite = Request(operands.a.copy(), operands.b.copy(), c)
    opposite.a[:, 3], opposite.b[:, 3] = a[::-1], b
    kept = "flushed" if flushed else "kept"
    arithmetic = FloatArithmetic(FORMATS["f32"], 23, "RZ", alignment_bits, zero_sign=zero_sign, subnormal_results=kept)
    model = DotModel(chain([range(2), range(2, 4)], arithmetic), kept, kept)
    assert_agrees(inst, model, operands)
    assert_agrees(inst, model, opposite)


def test_all_pairs_of_8_bit_codes() -> None:
    inst = instruction(32, "f32", "e4m3", "e5m2", "f32")
    a, b = (x.reshape(-1).astype(np.uint8) for x in np.meshgrid(np.arange(256), np.arange(256)))
    operands = Request(*(np.zeros((len(a), 32), np.uint8) for _ in range(2)), np.full(len(a), 0x3F800000, np.uint32))
    operands.a[:, 5], operands.b[:, 5] = a, b
    model = DotModel(chain([range(32)], FloatArithmetic(FORMATS["f32"], 13, "RZ", 13, min_exponent=-133)))
    assert_agrees(inst, model, operands)


def test_many_dot_products_are_shared_among_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_evaluator, "SHARE", 1000)
    monkeypatch.setattr(fast_evaluator, "CHUNK", 300)
    monkeypatch.setattr(fast_evaluator, "cores", lambda: 3)
    fast_evaluator._pool.cache_clear()
    inst = instruction(16, "f32", "f16", "f16", "f32")
    model = DotModel(chain([range(16)], FloatArithmetic(FORMATS["f32"], 23, "RZ", 25)))
    assert_agrees(inst, model, every_kind(inst, 3, 101))
    fast_evaluator._pool.cache_clear()


def test_layout_of_the_operands_does_not_matter() -> None:
    inst = instruction(8, "f32", "bf16", "bf16", "f32")
    model = DotModel(chain([range(0, 8, 2), range(1, 8, 2)], FloatArithmetic(FORMATS["f32"], 23, "RZ", 24)))
    a, b, c = every_kind(inst, 6, 30).columns
    expected = fast_evaluator.evaluate(model, inst, Request(a, b, c))
    turned = [np.asfortranarray(x) for x in (a, b)]
    np.testing.assert_array_equal(fast_evaluator.evaluate(model, inst, Request(*turned, np.repeat(c, 2)[::2])), expected)
    read_only = [np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape) for x in (a, b, c)]
    np.testing.assert_array_equal(fast_evaluator.evaluate(model, inst, Request(*read_only)), expected)


def test_no_dot_products() -> None:
    inst = instruction(8, "s32", "s8", "s8", "s32")
    model = DotModel(chain([range(8)], IntegerArithmetic(FORMATS["s32"], "wrap")))
    nothing = np.zeros((0, 8), np.uint8)
    assert len(fast_evaluator.evaluate(model, inst, Request(nothing, nothing, np.zeros(0, np.uint32)))) == 0


class Patient:
    """`evaluate` with a choice of its own, and who evaluated what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, patience: float) -> None:
        self.choice = evaluator._Choice()
        self.choice._patience = patience
        self.asked: list[tuple[str, int]] = []
        for name, module, attribute in (("numpy", evaluator, "with_numpy"), ("numba", fast_evaluator, "evaluate")):
            monkeypatch.setattr(module, attribute, self._noting(name, getattr(module, attribute)))
        monkeypatch.setattr(evaluator, "KEPT", 0)
        monkeypatch.setattr(evaluator, "_choice", self.choice)

    def _noting(self, name: str, evaluate: evaluator.Implementation) -> evaluator.Implementation:
        def noting(model: DotModel, inst: Instruction, request: Request) -> Bits:
            self.asked.append((name, len(request)))
            return evaluate(model, inst, request)

        return noting


INST = instruction(8, "f32", "bf16", "bf16", "f32")
MODEL = DotModel(chain([range(8)], FloatArithmetic(FORMATS["f32"], 23, "RZ", 24)))


def test_numpy_evaluates_until_compiled_code_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "STEP", 800)
    patient = Patient(monkeypatch, 1e-9)
    operands = every_kind(INST, 0, 20)
    expected = Evaluation(INST, operands).of(MODEL)
    np.testing.assert_array_equal(evaluate(MODEL, INST, operands), expected)
    assert patient.asked == [("numpy", 100), ("numba", 180)]
    evaluate(MODEL, INST, operands)
    assert patient.asked[2:] == [("numba", 280)]


def test_what_compiled_code_does_not_know_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = Patient(monkeypatch, -1.0)
    evaluate(MODEL, INST, every_kind(INST, 0, 20))
    evaluate(MODEL.with_arithmetic(lambda has: replace(has, result_rounding="RNA")), INST, every_kind(INST, 0, 20))  # type: ignore[arg-type]
    assert patient.asked == [("numba", 280), ("numpy", 280)]


def test_little_work_never_loads_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = Patient(monkeypatch, 1e9)
    evaluate(MODEL, INST, every_kind(INST, 0, 20))
    assert patient.asked == [("numpy", 280)]


@pytest.mark.parametrize(
    "trouble",
    ["ModuleNotFoundError('numba')", "ImportError('needs an older numpy')", "RuntimeError('cannot cache function')"],
)
def test_without_a_numba_that_works_numpy_evaluates_everything(trouble: str, tmp_path: Path) -> None:
    """In a process of its own, however long it takes."""
    (tmp_path / "numba.py").write_text(f"raise {trouble}\n")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import numpy as np
from accprobe.evaluate import evaluator
from accprobe.isa.instructions import parse
from accprobe.model.published import known_models
from accprobe.operands.request import Request
evaluator._choice._patience = 0.0
evaluator.STEP, evaluator.KEPT = 1000, 0
inst = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
zeros = np.zeros((100, 32), np.uint8)
d = evaluator.evaluate(known_models("h100")[inst].model, inst, Request(zeros, zeros, np.full(100, 0x404073FF, np.uint32)))
assert (d == 0x40407000).all()
print("accprobe.evaluate.compiled" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")

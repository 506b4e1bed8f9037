"""Chains by compiled code equal the numpy evaluator or are marked doubtful."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from compiled import chained_by_numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from plants import Plant, float_models, instruction

from accprobe.evaluate import tiles
from accprobe.evaluate.evaluator import evaluate
from accprobe.evaluate.product import product
from accprobe.evaluate.steps import step_of
from accprobe.isa.formats import FORMATS, Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.product import Chain, ProductModel, chained, in_chunks, multiply_add
from accprobe.model.published import CHIPS, known_models
from accprobe.model.tree import (
    AlignmentRounding,
    DotModel,
    FloatArithmetic,
    ProductExponent,
    Rounding,
    Subnormals,
    ZeroTerms,
    chain,
)
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import joined
from accprobe.report.names import named_models

pytest.importorskip("accprobe.evaluate.lanes", reason="numba is not installed")


def lines(inst: Instruction, seed: int, each: int, steps: int = 3, only: str = "") -> tuple[Bits, Bits, Bits]:
    """A [M, K], B [M, K] and C [M, M] of every kind, or of one: where a row meets its own column, as the kind has it."""
    rng = np.random.default_rng(seed)
    of_steps = [joined([draw(kind, inst, rng, each) for kind in kinds(inst) if only in kind]) for _ in range(steps)]
    a, b = (np.concatenate([getattr(step, x) for step in of_steps], axis=1) for x in "ab")
    c = np.stack([np.roll(of_steps[0].c, shift) for shift in range(len(a))])
    return a, b, c


def assert_agrees(model: DotModel, inst: Instruction, a: Bits, b: Bits, start: Bits) -> float:
    """Returns the share of those that are doubtful."""
    how = step_of(model, inst)
    got, doubtful = tiles.sums(how, inst, a, b, start)
    expected = chained_by_numpy(model, inst, a, b, start)
    _assert_same(model, got, doubtful, expected)
    each = np.arange(min(*start.shape, 70))  # more than a panel
    alone, odd = tiles.sums(how, inst, a[each, None], b[each, None], start[each, each, None, None])
    np.testing.assert_array_equal(odd[:, 0, 0], doubtful[each, each])
    _assert_same(model, alone[..., 0], odd[..., 0], expected[each, each, None])
    return np.count_nonzero(doubtful) / max(1, doubtful.size)


def _assert_same(model: DotModel, got: Bits, doubtful: Bits, expected: Bits) -> None:
    assert got.dtype == expected.dtype
    wrong = np.argwhere((got != expected) & ~doubtful)
    if len(wrong):
        first = tuple(wrong[0])
        pytest.fail(f"{model}: {len(wrong)} differ, first {first}: {got[first]:#x}, numpy {expected[first]:#x}")


@settings(max_examples=40, deadline=None)
@given(float_models(), st.integers(0, 2**32 - 1))
def test_any_float_model(planted: Plant, seed: int) -> None:
    assert step_of(planted.model, planted.instruction) is not None
    assert_agrees(planted.model, planted.instruction, *lines(planted.instruction, seed, 3))


@pytest.mark.parametrize("zero_terms", get_args(ZeroTerms))
@pytest.mark.parametrize("rule", get_args(ProductExponent))
@pytest.mark.parametrize("subnormals", get_args(Subnormals))
def test_zeros_and_subnormals_in_the_alignment(zero_terms: str, rule: str, subnormals: str) -> None:
    """The combinations that no planted model has, and A and B of two formats."""
    inst = instruction(16, "f32", "e5m2", "e4m3", "f32")
    arithmetic = FloatArithmetic(FORMATS["f32"], 20, "RU", 21, product_exponent=rule, zero_terms=zero_terms)
    model = DotModel(chain([range(8), range(8, 16)], arithmetic), subnormals, subnormals)
    a, b, c = lines(inst, 4, 20)
    a[::3, ::2] = 0
    assert_agrees(model, inst, a, b, c)


@pytest.mark.parametrize("alignment", get_args(AlignmentRounding))
@pytest.mark.parametrize("rounding", get_args(Rounding))
def test_every_rounding_of_terms_near_the_last_kept_bit(alignment: str, rounding: str) -> None:
    """Ties, of both signs, on either side; and of results."""
    inst = instruction(4, "f32", "f16", "f16", "f32")
    model = DotModel(chain([range(4)], FloatArithmetic(FORMATS["f32"], 6, rounding, 8, alignment)))
    rng = np.random.default_rng(0)
    exponents = rng.integers(-6, 3, (120, 8))
    a = (rng.integers(-9, 10, exponents.shape) * 2.0**exponents).astype(np.float16).view(np.uint16)
    ones = np.float16([1, -1, 0.5])[rng.integers(0, 3, (70, 8))].view(np.uint16)
    assert assert_agrees(model, inst, a, ones, np.zeros((120, 70), np.uint32)) == 0


def test_every_published_model() -> None:
    """Only models that scale several products at once are evaluated by numpy."""
    for inst, model in distinct((inst, known.model) for chip in CHIPS for inst, known in known_models(chip).items()):
        if any(isinstance(x, FloatArithmetic) and x.scaled_products is not None for x in model.arithmetics):
            assert step_of(model, inst) is None, inst.name
        else:
            assert_agrees(model, inst, *lines(inst, 5, 2))


def test_every_recorded_model() -> None:
    """Models of the H200, with stored products for a sparse A; ordinary operands are not doubtful."""
    for inst, model in distinct((inst.stored, model) for inst, model in named_models("h200").items()):
        assert_agrees(model, inst, *lines(inst, 6, 2))
        assert assert_agrees(model, inst, *lines(inst, 7, 40, only="normal")) < 0.01


def distinct(models: Iterable[tuple[Instruction, DotModel]]) -> list[tuple[Instruction, DotModel]]:
    """Return one instruction for each float model in chains and its formats."""
    chained = ((inst, model) for inst, model in models if not inst.is_integer and inst.c is inst.d)
    found = {(model, inst.a, inst.b, inst.c): (inst, model) for inst, model in chained}
    return list(found.values())


@pytest.mark.parametrize("operand", ["e5m2", "bf16", "f32"])
@pytest.mark.parametrize("fused", [True, False])
def test_multiply_adds(operand: str, fused: bool) -> None:
    model = multiply_add(fused=fused)
    of_product = ProductModel(
        FORMATS[operand], FORMATS[operand], 42, model, in_chunks(range(42), 42, (0,), model.root.arithmetic), FORMATS["f32"]
    )
    a, b, c = lines(of_product.instruction, 8, 4, steps=42)
    how = step_of(model, of_product.instruction)
    assert how.fused is fused
    got, doubtful = tiles.sums(how, of_product.instruction, a, b, c)
    expected = product(of_product, a, b, c)
    _assert_same(model, got, doubtful, expected)
    alone, odd = tiles.sums(how, of_product.instruction, a[:, None], b[:, None], np.diagonal(c)[:, None, None])
    _assert_same(model, alone[:, 0, 0], odd[:, 0, 0], np.diagonal(expected))


@pytest.mark.parametrize(
    ("m", "n", "threads"), [(1, 1, 1), (3, 200, 3), (200, 3, 3), (65, 64, 1), (64, 129, 3), (0, 5, 1), (5, 0, 1)]
)
def test_any_shape(m: int, n: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "cores", lambda: threads)
    tiles._pool.cache_clear()
    inst = parse("wgmma.m64n8k32.f32.e5m2.e4m3")
    a, b, c = lines(inst, 9, 20)
    assert_agrees(named_models("h200")[inst], inst, a[:m], b[:n], c[:m, :n])
    tiles._pool.cache_clear()


def test_integers_and_wide_sums_use_numpy() -> None:
    models = named_models("h200")
    integers = parse("wgmma.m64n8k32.s32.s8.s8")
    assert step_of(models[integers], integers) is None
    wide = instruction(4, "f64", "f64", "f64", "f64")
    pairs = FloatArithmetic(FORMATS["f64"], 52, "RNE", None, zero_sign="ieee", nan=0xFFF8 << 48)
    assert step_of(DotModel(chain([[0], [1], [2], [3]], pairs)), wide) is not None
    assert step_of(DotModel(chain([[0, 1], [2, 3]], pairs)), wide) is None


def test_doubtful_outputs_of_a_product_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaNs, infinities and overflow in some rows and columns, promoted."""
    inst = parse("wgmma.m64n8k32.f16.e5m2.e4m3")
    model = replace(chained(inst, named_models("h200")[inst], 128, 64), result=FORMATS["f32"])
    a, b, c = lines(inst, 10, 5, steps=4)
    start = c.astype(np.uint32) << 16
    evaluated = []
    for there in (False, True):
        sizes: list[int] = []
        monkeypatch.setattr(tiles, "pays", lambda n, there=there: there)
        monkeypatch.setattr(
            "accprobe.evaluate.product.evaluate", lambda *x, sizes=sizes: sizes.append(len(x[2])) or evaluate(*x)
        )
        evaluated.append((product(model, a, b, start), sum(sizes)))
    (expected, every), (found, some) = evaluated
    np.testing.assert_array_equal(found, expected)
    assert 0 < some < every


@pytest.mark.parametrize(
    "trouble",
    ["ImportError('needs an older numpy')", "RuntimeError('cannot cache function')"],
)
def test_without_a_numba_that_works_numpy_evaluates_everything(trouble: str, tmp_path: Path) -> None:
    """In a process of its own, however much it is."""
    (tmp_path / "numba.py").write_text(f"raise {trouble}\n")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import numpy as np
from accprobe.evaluate import tiles
from accprobe.evaluate.product import product
from accprobe.isa.instructions import parse
from accprobe.model.product import chained
from accprobe.model.published import known_models
tiles.WORTH = 0
inst = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
zeros = np.zeros((10, 64), np.uint8)
d = product(chained(inst, known_models("h100")[inst].model, 64), zeros, zeros, np.full((10, 10), 0x404073FF, np.uint32))
assert (d == 0x40407000).all()
print("accprobe.evaluate.lanes" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_operands_may_lie_in_memory_any_way() -> None:
    model, rng = multiply_add(), np.random.default_rng(3)
    f32 = FORMATS["f32"]
    whole = ProductModel(f32, f32, 5, model, Chain(0, 5, (0,)), f32)
    a, b = (rng.standard_normal((lines, 5)).astype(np.float32).view(np.uint32) for lines in (6, 70))
    step, start = step_of(model, whole.instruction), np.zeros((6, 70), np.uint32)
    expected, _ = tiles.sums(step, whole.instruction, a, b, start)
    found, _ = tiles.sums(step, whole.instruction, np.asfortranarray(a), np.asfortranarray(b), np.asfortranarray(start))
    assert np.array_equal(found, expected)

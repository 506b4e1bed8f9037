"""The GPU evaluator without a GPU: compiled for the CPU it agrees with numpy, and NVRTC compiles it."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from compiled import Differences, Job, chained_by_numpy, evaluator_library, needs, needs_compiler
from marks import some
from plants import instruction

from accprobe.build import compiler
from accprobe.build.cache import Cubin
from accprobe.errors import AccprobeError, ToolMissing
from accprobe.evaluate.cuda.source import can_promote, plan, source
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.product import addition
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, Product, chain
from accprobe.operands.kinds import draw, kinds
from accprobe.report.names import named_models
from accprobe.sass.reading import functions

ROWS, COLUMNS = 21, 19

QGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"
TF32 = "mma.sync.m16n8k8.f32.tf32.tf32.f32"
F64 = "mma.sync.m16n8k8.f64.f64.f64.f64"
INT8 = "mma.sync.m16n8k32.satfinite.s32.s8.u8.s32"
SPLIT = "mma.sync.m16n8k32.f32.e4m3.e4m3.f32"


def recorded(name: str, **changes: Any) -> tuple[Instruction, DotModel]:
    """The H200's model of an instruction, some fields of every arithmetic that has them changed."""
    inst = parse(name)
    model = named_models("h200")[inst]
    return inst, model.with_arithmetic(lambda has: replace(has, **changes)) if changes else model


def planted(d: str, operand: str, k: int, size: int, added: bool = False, **changes: Any) -> tuple[Instruction, DotModel]:
    """Return an invented model: a chain of sums of `size` products. added: C is added by a separate addition."""
    inst = instruction(k, d, operand, operand, d)
    summing = replace(FloatArithmetic(inst.d, inst.d.mantissa_bits, "RZ", 20), **changes)
    groups = [list(range(i, k, k // size)) for i in range(k // size)]
    return inst, DotModel(chain(groups, summing, "separate add", addition()) if added else chain(groups, summing))


CASES = {
    "QGMMA": recorded(QGMMA),
    "wide exponents": recorded("wgmma.m64n8k32.f32.e5m2.e5m2"),
    "sticky": recorded(QGMMA, alignment_rounding="sticky"),
    "normalised product": recorded(QGMMA, product_exponent="normalised product"),
    "f16 results": recorded("wgmma.m64n8k32.f16.e5m2.e4m3"),
    "two sums and an add": recorded(SPLIT),
    "two sums": planted("f32", "tf32", 8, 4, alignment_bits=24, alignment_rounding="sticky", overflow="largest"),
    "tf32": recorded(TF32),
    "f16": recorded("mma.sync.m16n8k16.f32.f16.f16.f32"),
    "bf16": recorded("mma.sync.m16n8k16.f32.bf16.bf16.f32"),
    "normalised bf16": planted("f32", "bf16", 16, 16, alignment_bits=24, product_exponent="normalised product"),
    "floor": recorded("mma.sync.m16n8k16.f32.f16.f16.f32", alignment_rounding="floor", underflow_sign="kept"),
    "four sums": planted("f32", "e4m3", 16, 4, alignment_bits=13, result_bits=13),
    "sums and an add": planted("f32", "e4m3", 16, 8, True, alignment_bits=13, result_bits=13),
    "bf16, added": planted("f32", "bf16", 8, 8, True, alignment_bits=24),
    "f64": recorded(F64),
    "integers": recorded(INT8),
    "planted": planted("f32", "bf16", 16, 4, product_exponent="normalised operands", zero_sign="ieee", overflow="largest"),
    "zeros aligned": planted("f32", "f16", 8, 8, subnormal_results="flushed", zero_terms="aligned", min_exponent=-100),
    "FP4": planted("f32", "e2m1", 16, 16),
    "one by one": planted("f32", "e5m2", 4, 4, alignment_bits=None),
}
ON_MATRIX_UNITS = ("QGMMA", "sticky", "wide exponents")
IN_CHAINS = tuple(name for name, (inst, model) in CASES.items() if plan(model, inst, chained=True).links)
"""Cases whose operands are decoded once for a chain."""
WAYS = {(True, True): ON_MATRIX_UNITS, (True, False): IN_CHAINS, (False, False): tuple(CASES)}
"""Arguments of `compiled`: chained, matrix_units."""
FAST = {
    "QGMMA": (True, True),
    "two sums and an add": (True, False),
    "f64": (False, False),
    "FP4": (False, False),
}
"""Cases that every run has. Each compilation takes a second: all tests share them."""
PROMOTED = ("QGMMA", "two sums and an add")


@cache
def compiled(name: str, chained: bool = False, matrix_units: bool = False) -> ctypes.CDLL:
    """The evaluator of a case for the CPU, where sums of matrix units are computed one by one."""
    inst, model = CASES[name]
    return evaluator_library(source(model, inst, chained, matrix_units))


def run(library: ctypes.CDLL, inst: Instruction, a: Bits, b: Bits, c: Bits | None, blocks: int = 1, promote: int = 0) -> Bits:
    """a [M, blocks * K], b [N, blocks * K], c [M, N] -> [M, N]."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    d = np.full((len(a), len(b)), 0x55, np.uint32 if promote else inst.d.dtype)
    pointers = [None if x is None else x.ctypes.data for x in (a, b, c, d)]
    job = Job(*pointers, len(a), len(b), blocks, promote)
    library.evaluate_on_host(ctypes.byref(job), ctypes.byref(Differences()))
    return d


def matrices(kind: str, inst: Instruction, seed: int, blocks: int = 1) -> tuple[Bits, Bits, Bits]:
    """a [ROWS, blocks * K], b [COLUMNS, blocks * K], c [ROWS, COLUMNS]."""
    random = np.random.default_rng(seed)
    a = np.hstack([draw(kind, inst, random, ROWS).a for _ in range(blocks)])
    b = np.hstack([draw(kind, inst, random, COLUMNS).b for _ in range(blocks)])
    return a, b, draw(kind, inst, random, ROWS * COLUMNS).c.reshape(ROWS, COLUMNS)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param(name, how, marks=() if FAST.get(name) == how else pytest.mark.slow)
        for how, names in WAYS.items()
        for name in names
    ],
)
def test_bits_are_those_of_numpy(name: str, how: tuple[bool, bool]) -> None:
    """All kinds of operands, including special values, in matrices that do not fill a tile; and chains."""
    inst, model = CASES[name]
    library, blocks = compiled(name, *how), 5
    for seed, kind in enumerate(kinds(inst)):
        a, b, c = matrices(kind, inst, seed)
        np.testing.assert_array_equal(run(library, inst, a, b, c), chained_by_numpy(model, inst, a, b, c), err_msg=kind)
        zero = np.zeros_like(c)
        np.testing.assert_array_equal(run(library, inst, a, b, None), chained_by_numpy(model, inst, a, b, zero), err_msg=kind)
    of_floats = "normal", "cancelling", "huge", "C near smallest normal", "special"
    for seed, kind in enumerate(("uniform", "extreme") if inst.is_integer else of_floats):
        a, b, c = matrices(kind, inst, seed, blocks)
        expected = chained_by_numpy(model, inst, a, b, c)
        np.testing.assert_array_equal(run(library, inst, a, b, c, blocks), expected, err_msg=kind)


@needs_compiler
@pytest.mark.parametrize("name", some(ON_MATRIX_UNITS))
def test_addends_smaller_than_every_product_beside_zeros(name: str) -> None:
    """Sums of powers are never below the power of the smallest product."""
    inst, model = CASES[name]
    random = np.random.default_rng(0)
    a, b = (
        fmt.sign_bit * random.integers(0, 2, (lines, inst.k), np.uint8) for fmt, lines in ((inst.a, ROWS), (inst.b, COLUMNS))
    )
    a[::2, 3], b[::3, 3] = 1, 1
    c = (
        random.integers(0, 1 << 32, (ROWS, COLUMNS), np.uint32) & 0x807FFFFF
        | random.integers(60, 140, (ROWS, COLUMNS), np.uint32) << 23
    )
    got = run(compiled(name, True, True), inst, a, b, c)
    np.testing.assert_array_equal(got, chained_by_numpy(model, inst, a, b, c))


@needs_compiler
@pytest.mark.parametrize("name", PROMOTED)
def test_promoted_chains(name: str) -> None:
    """Two blocks, then the last one, each added to a float32 sum."""
    inst, model = CASES[name]
    library = compiled(name, *FAST[name])
    for seed, kind in enumerate(("normal", "special")):
        a, b, _ = matrices(kind, inst, seed, 3)
        total = draw("normal", parse(QGMMA), np.random.default_rng(seed), ROWS * COLUMNS).c.reshape(ROWS, COLUMNS)
        got = run(library, inst, a, b, total, 3, 2)
        for first, end in ((0, 2), (2, 3)):
            ks = slice(first * inst.k, end * inst.k)
            running = chained_by_numpy(model, inst, a[:, ks], b[:, ks], np.zeros((ROWS, COLUMNS), inst.c.dtype))
            with np.errstate(all="ignore"):
                values = total.view(np.float32) + inst.d.values(running).astype(np.float32)
            total = np.where(np.isnan(values), np.uint32(0x7FFFFFFF), values.view(np.uint32))
        np.testing.assert_array_equal(got, total, err_msg=kind)


@needs_compiler
@pytest.mark.parametrize(("name", "promote"), some([("bf16, added", 0), ("normalised bf16", 1)]))
def test_a_sum_that_vanishes_keeps_its_sign_where_float32s_are_added(name: str, promote: int) -> None:
    inst, _ = CASES[name]
    a, b = (np.full((lines, inst.k), sign | 27 << 7, np.uint16) for lines, sign in ((ROWS, 0), (COLUMNS, 1 << 15)))
    for sign in (0, 1 << 31):
        c = np.full((ROWS, COLUMNS), sign, np.uint32)
        np.testing.assert_array_equal(run(compiled(name, True), inst, a, b, c, 1, promote), c)


@needs_compiler
def test_differences_are_counted_and_the_first_are_kept() -> None:
    inst, model = CASES["f16 results"]
    library = compiled("f16 results")
    a, b, c = matrices("normal", inst, 0)
    expected = chained_by_numpy(model, inst, a, b, c)
    right = expected.copy()
    wrong = [(0, 0), (3, 18), (20, 5)]
    for row, column in wrong:
        expected[row, column] ^= 1
    count, found = np.zeros(1, np.uint64), np.zeros((2, 4), np.uint64)
    job = Job(a.ctypes.data, b.ctypes.data, c.ctypes.data, None, ROWS, COLUMNS, 1, 0)
    differences = Differences(expected.ctypes.data, count.ctypes.data, found.ctypes.data, len(found))
    library.evaluate_on_host(ctypes.byref(job), ctypes.byref(differences))
    assert count[0] == 3
    for row, column, got, pattern in found.tolist():
        assert (row, column) in wrong
        assert (got, pattern) == (expected[row, column], right[row, column])


def test_sums_that_are_not_a_chain() -> None:
    """Results that are not truncated float32; flushed addends; unequal sums; C in the middle."""
    inst, model = CASES["tf32"]
    arithmetic = model.root.arithmetic
    half = tuple(map(Product, range(4)))
    rest = tuple(map(Product, range(4, 8)))

    def links(root: FusedSum, **changes: Any) -> int:
        return plan(replace(DotModel(root), **changes), inst, chained=True).links

    assert links(model.root) == 1
    assert links(FusedSum((FusedSum((Addend(), *half), arithmetic), *rest), arithmetic)) == 2
    added = FusedSum((*half, *rest), arithmetic)
    assert links(FusedSum((added, Addend()), addition())) == 1
    assert links(FusedSum((added, Addend()), replace(addition(), result_rounding="RZ"))) == 0
    assert links(FusedSum((FusedSum((Addend(), *half, *rest), arithmetic), Addend()), addition())) == 0
    assert links(FusedSum((FusedSum(half, arithmetic), Addend(), *rest), arithmetic)) == 0
    assert links(FusedSum((FusedSum((Addend(), *half[:2]), arithmetic), *half[2:], *rest), arithmetic)) == 0
    assert links(model.root, subnormal_addend="flushed") == 0
    for changes in ({"result_rounding": "RNE"}, {"result_bits": 22}, {"zero_sign": "ieee"}, {"subnormal_results": "flushed"}):
        assert links(FusedSum(model.root.terms, replace(arithmetic, **changes))) == 0


def test_unsupported_models_are_refused() -> None:
    inst, model = CASES["QGMMA"]
    with pytest.raises(AccprobeError, match="has 8 products, the model 32"):
        source(model, parse(TF32))
    away = model.with_arithmetic(lambda has: replace(has, result_rounding="RNA"))
    with pytest.raises(AccprobeError, match="result_rounding RNA has no GPU evaluator; numpy evaluates it, on the CPU"):
        source(away, inst)
    assert not can_promote(parse(F64))
    assert not can_promote(parse(INT8))
    assert can_promote(inst)


def cubin(name: str, target: str, single: bool, matrix_units: bool = False) -> Cubin:
    inst, model = CASES[name]
    try:
        return compiler.compile_source(source(model, inst, single, matrix_units), target, name)
    except ToolMissing as e:
        pytest.skip(str(e))


@pytest.mark.parametrize(
    ("name", "target", "single"),
    [
        ("tf32", "sm_75", False),
        pytest.param("QGMMA", "sm_80", True, marks=pytest.mark.slow),
        pytest.param("two sums and an add", "sm_120a", True, marks=pytest.mark.slow),
    ],
)
def test_compiles_for_every_architecture(name: str, target: str, single: bool) -> None:
    needs("nvdisasm")
    made = list(functions(cubin(name, target, single).path, targets=False))
    assert {function.name for function in made} >= {"evaluate", "describe"}
    assert {function.architecture for function in made} == {target}

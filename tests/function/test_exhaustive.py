"""The kernel that verifies all operands of an instruction, run on the CPU, and compiled tables, against numpy."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import pytest
from compiled import library

from accprobe.build.probes import device_code
from accprobe.function import exhaustive
from accprobe.function.candidates import Hypothesis, candidate_of
from accprobe.function.model import SCALINGS, FunctionModel
from accprobe.function.quadratic import Table
from accprobe.function.records import model_of, model_record
from accprobe.function.reductions import Exponential, Logarithm, Octaves, Power, Turns
from accprobe.function.reference import exact_values
from accprobe.function.statistics import Pass, measure_pass
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.report.functions import ConversionRecord, TableModelRecord
from accprobe.report.report import Report

ON_HOST = """
#include <cmath>
#include <cstring>
#define __device__
#define __global__
#define APPLY(y, x) y = planted[(x) - planted_from]
#define REFERENCE(x) (is_exp2 ? exp2(x) : (x))
using Result = unsigned;
struct Index { unsigned x; };
static Index blockIdx, threadIdx, blockDim{1};
static const unsigned* planted;
static unsigned planted_from;
static bool is_exp2;
template <class To, class From> To bits(From x) { To to; memcpy(&to, &x, sizeof to); return to; }
static double __longlong_as_double(long long x) { return bits<double>(x); }
static long long __double_as_longlong(double x) { return bits<long long>(x); }
static float __uint_as_float(unsigned x) { return bits<float>(x); }
static unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
CODE
extern "C" void verify_on_host(const Model* m, const i64* c, Counts* counts, unsigned begin, unsigned each, unsigned threads,
                               const unsigned* words, bool exp2) {
    planted = words, planted_from = begin ? begin - 1 : 0, is_exp2 = exp2;
    for (blockIdx.x = 0; blockIdx.x < threads; blockIdx.x++) verify(m, c, counts, begin, each);
}
"""

OF_ARRAYS = ON_HOST.replace("#define APPLY(y, x) y = planted[(x) - planted_from]", "#define GIVEN").replace(
    "const unsigned* words, bool", "const unsigned* words, const unsigned* of_model, bool"
)
OF_ARRAYS = OF_ARRAYS.replace("begin, each);", "begin, each, words, of_model, planted_from);")

THREADS, EACH = 16, 256
# Borders: of subnormal numbers, f16, powers of two, tables, overflow and infinity, and halves between numbers.
STARTS = (0, 0x7FF800, 0x387FF800, 0x3F7FF800, 0x3F87F800, 0x40490000, 0x40FFF800, 0x42FBF800, 0x477FF800, 0x4EFFF800)
BEGINS = [sign << 31 | start for sign in (0, 1) for start in (*STARTS, 0x7E7FF800, 0x7F7FF800)]

F32 = FORMATS["f32"]


def recorded(name: str) -> FunctionModel:
    row = next(row for row in Report.load("functions-h200").functions if row.name == name)
    assert isinstance(row.model, TableModelRecord)
    return model_of(row.model)


@cache
def models() -> dict[str, FunctionModel]:
    """Return models of every reduction and scaling; the table of 2^x serves all."""
    exp2, tanh = recorded("ex2.approx.ftz.f32"), recorded("tanh.approx.f32")
    exact = Table(exp2.tables[0].bits, exp2.tables[0].coefficients, "exact")
    reductions = (Exponential(), Logarithm(), Turns(0), Turns(1), Power(1, -1))
    found = {f"{each}": FunctionModel(each, exp2.tables, exp2.units, exp2.specials) for each in reductions}
    found |= {f"scaling {i}": FunctionModel(Exponential(), (exact,), (-37,), {}, scalings=s) for i, s in enumerate(SCALINGS)}
    two = FunctionModel(
        Power(2, -1), (*exp2.tables, exact), (-38, -39), {"nan": 7}, {0x40000000: 9}, {0: 3 << 37}, flushed=False
    )
    assert isinstance(tanh.reduction, Octaves)
    return found | {"two tables": two, "octaves": tanh}


def conversion(result: str, **values: Any) -> Hypothesis:
    record = ConversionRecord(
        function="identity", **({"rounding": "RNE", "overflow": "infinity", "infinite": "infinity"} | values)
    )
    return candidate_of(record, F32, FORMATS[result])


CONVERSIONS: dict[str, Hypothesis] = {
    "f16": conversion("f16", rounding="RZ", overflow="largest", flushed=True, relu=True),
    "bf16": conversion("bf16", rounding="RU", nan="0x7fff"),
    "tf32": conversion("tf32", rounding="RNA", flushed_operands=True, keeps_nan=True),
    "e4m3": conversion("e4m3", overflow="largest", infinite="largest", nan="0x7f"),
    "s32": conversion("s32", rounding="RD", nan="0x80000000"),
    "u32": conversion("u32", rounding="RU"),
}


def verified(model: Hypothesis, result: Format, begin: int, planted: Bits, is_exp2: bool, wanted: Bits | None = None) -> Pass:
    """Return what the kernel finds from `begin` on; planted, wanted: results from the operand before that on."""
    code = library((ON_HOST if wanted is None else OF_ARRAYS).replace("CODE", device_code("verify_function.cu")))
    numbers, coefficients = exhaustive.kernel_parameters(model if wanted is None else None, F32, result)
    if wanted is not None:
        numbers["kind"], numbers["any_nan"] = exhaustive.FROM_ARRAY, model.any_nan
    counts = np.zeros(THREADS, exhaustive.COUNTS)
    given = (ctypes.c_void_p(each.ctypes.data) for each in (numbers, np.ascontiguousarray(coefficients), counts))
    arrays = [ctypes.c_void_p(each.ctypes.data) for each in (planted, wanted) if each is not None]
    code.verify_on_host(*given, begin, EACH, THREADS, *arrays, is_exp2)
    return exhaustive.as_pass(exhaustive.summed(counts), lambda words: planted[words - max(begin - 1, 0)], model)


@pytest.mark.parametrize("name", models())
def test_compiled_tables_compute_what_numpy_computes(name: str) -> None:
    pytest.importorskip("numba")
    from accprobe.function.compiled import WORDS_TOGETHER, table_words

    ranges = [np.arange(begin, begin + 64) for begin in BEGINS]
    words = np.concatenate([*ranges, np.arange(0, 1 << 32, (1 << 32) // (2 * WORDS_TOGETHER + 1))]).astype(np.uint32)
    model = models()[name]
    assert np.array_equal(table_words(model_record(model), words), model.words(words))


@pytest.mark.parametrize("name", [*models(), *CONVERSIONS])
def test_the_kernel_counts_what_numpy_counts(name: str) -> None:
    """Mismatches, digest and errors of ranges in which one result in 97 is wrong."""
    result, of = FORMATS.get(name, F32), models().get(name)
    model = CONVERSIONS[name] if of is None else Hypothesis(name, of.words, record=model_record(of))
    exact = exact_values("identity" if of is None else "exp2", F32)
    for begin in BEGINS:
        words = np.arange(max(begin - 1, 0), begin + THREADS * EACH).astype(np.uint32)
        planted = (model.words(words) ^ (words % 97 == 5)).astype(np.uint32)
        found = verified(model, result, begin, planted, of is not None)
        if name == "two tables":  # of arrays
            assert found == verified(model, result, begin, planted, True, model.words(words).astype(np.uint32))
        results = planted[-THREADS * EACH :].astype(result.dtype)
        expected = measure_pass([words[-THREADS * EACH :]], lambda _, results=results: results, model, exact, result)
        assert (found.mismatches, found.digest) == (expected.mismatches, expected.digest), hex(begin)
        assert found.first[:1] == expected.first[:1]
        assert (found.errors.count, found.errors.at) == (expected.errors.count, expected.errors.at)
        assert found.errors.total == pytest.approx(expected.errors.total)
        assert abs(found.errors.correct - expected.errors.correct) <= (of is not None)  # 2^x of two libraries
        assert abs(found.errors.against - expected.errors.against) <= 1  # the kernel compares the operand before, too

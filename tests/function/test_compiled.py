"""Compiled table models against numpy."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest

from accprobe.function.model import SCALINGS, FunctionModel
from accprobe.function.quadratic import Table
from accprobe.function.records import model_of
from accprobe.function.reductions import Exponential, Logarithm, Octaves, Power, Turns
from accprobe.records.functions import TableModelRecord
from accprobe.report.report import Report

# Borders: of subnormal numbers, f16, powers of two, tables, overflow and infinity, and halves between numbers.
STARTS = (0, 0x7FF800, 0x387FF800, 0x3F7FF800, 0x3F87F800, 0x40490000, 0x40FFF800, 0x42FBF800, 0x477FF800, 0x4EFFF800)
BEGINS = [sign << 31 | start for sign in (0, 1) for start in (*STARTS, 0x7E7FF800, 0x7F7FF800)]


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


@pytest.mark.parametrize("name", models())
def test_compiled_tables_compute_what_numpy_computes(name: str) -> None:
    pytest.importorskip("numba")
    from accprobe.function.compiled import WORDS_TOGETHER, ordinary_words

    ranges = [np.arange(begin, begin + 64) for begin in BEGINS]
    words = np.concatenate([*ranges, np.arange(0, 1 << 32, (1 << 32) // (2 * WORDS_TOGETHER + 1))]).astype(np.uint32)
    model = models()[name]
    assert np.array_equal(model.words(words, partial(ordinary_words, model)), model.words(words))

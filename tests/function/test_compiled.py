"""Compiled table models against numpy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from accprobe.function.model import SCALINGS, FunctionModel
from accprobe.function.quadratic import IN_CACHE
from accprobe.records.functions import TableModelRecord
from accprobe.report.report import Report

# Borders: of subnormal numbers, f16, powers of two, tables, overflow and infinity, and halves between numbers.
STARTS = (0, 0x7FF800, 0x387FF800, 0x3F7FF800, 0x3F87F800, 0x40490000, 0x40FFF800, 0x42FBF800, 0x477FF800, 0x4EFFF800)
BEGINS = [sign << 31 | start for sign in (0, 1) for start in (*STARTS, 0x7E7FF800, 0x7F7FF800)]


REDUCTIONS: tuple[dict[str, Any], ...] = (
    {"reduction": "exp2"},
    {"reduction": "log2"},
    *({"reduction": "turns", "parameters": {"quarters": quarters}} for quarters in (0, 1)),
    {"reduction": "power", "parameters": {"period": 1, "direction": -1}},
)


def recorded(name: str) -> TableModelRecord:
    row = next(row for row in Report.load("functions-h200").functions if row.name == name)
    assert isinstance(row.model, TableModelRecord)
    return row.model


@cache
def models() -> dict[str, FunctionModel]:
    """Return models of every reduction and scaling; the table of 2^x serves all."""
    exp2, tanh = recorded("ex2.approx.ftz.f32"), recorded("tanh.approx.f32")
    table = exp2.tables[0]
    exact = table.model_copy(update={"square": "exact", "unit": -37})
    found = {f"{each}": exp2.model_copy(update=each) for each in REDUCTIONS}
    found |= {f"scaling {i}": exp2.model_copy(update={"tables": (exact,), "scalings": s}) for i, s in enumerate(SCALINGS)}
    found["two tables"] = TableModelRecord(
        reduction="power",
        parameters={"period": 2, "direction": -1},
        tables=(table, exact.model_copy(update={"unit": -39})),
        specials={"nan": "0x7"},
        exact={"0x40000000": "0x9"},
        first={"0": 3 << 37},
        flushed=False,
    )
    assert tanh.reduction == "octaves"
    return {name: FunctionModel(record) for name, record in (found | {"octaves": tanh}).items()}


@pytest.mark.parametrize("name", models())
def test_compiled_tables_compute_what_numpy_computes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    ranges = [np.arange(begin, begin + 64) for begin in BEGINS]
    words = np.concatenate([*ranges, np.arange(0, 1 << 32, (1 << 32) // (IN_CACHE + 1))]).astype(np.uint32)
    model, found = models()[name], []
    for is_compiled in (True, False):
        monkeypatch.setattr("accprobe.evaluate.tiles.pays", lambda seconds, pays=is_compiled: pays)
        found.append(model.words(words))
    assert np.array_equal(*found)

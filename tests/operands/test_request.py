"""Requests: what is asked, with metadata and scales where an instruction has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from requests_of_all_kinds import DENSE, SCALED, SPARSE, request

from accprobe.devices.recording import query_key
from accprobe.errors import AccprobeError
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import joined


@pytest.mark.parametrize("inst", [DENSE, SPARSE, SCALED], ids=str)
def test_rows_and_parts_keep_every_column(inst: Instruction) -> None:
    whole = request(inst)
    whole.check(inst)
    assert len(whole.columns) == {DENSE: 3, SPARSE: 4, SCALED: 5}[inst]
    again = joined([whole[:2], whole[np.array([2])], whole[np.array([False, False, False, True, True])]])
    again.check(inst)
    assert all(np.array_equal(x, y) for x, y in zip(whole.columns, again.columns, strict=True))


@pytest.mark.parametrize("inst", [DENSE, SPARSE, SCALED], ids=str)
def test_every_column_is_part_of_the_question(inst: Instruction) -> None:
    asked = request(inst)
    known = query_key(inst, asked, 0)
    assert query_key(inst, request(inst), 0) == known
    for column in asked.columns:
        column.reshape(-1)[0] ^= column.dtype.type(1)
        assert query_key(inst, asked, 0) != known
        column.reshape(-1)[0] ^= column.dtype.type(1)


@pytest.mark.parametrize(
    ("inst", "changes", "reason"),
    [
        (DENSE, {"metadata": np.zeros((5, 4), np.uint8)}, "metadata is given, and the instruction has none"),
        (SPARSE, {"metadata": None}, "metadata is missing"),
        (SCALED, {"scales_b": None}, "scales_b is missing"),
        (SCALED, {"scales_a": np.zeros((5, 2), np.uint8)}, r"scales_a is uint8\[5, 2\], expected uint8\[5, 4\]"),
        (DENSE, {"a": np.zeros((5, 16), np.uint8)}, r"a is uint8\[5, 16\], expected uint16\[5, 16\]"),
        (SPARSE, {"a": np.zeros((5, 32), np.uint16)}, r"a is uint16\[5, 32\], expected uint16\[5, 16\]"),
    ],
)
def test_what_does_not_fit_is_told(inst: Instruction, changes: dict[str, np.ndarray | None], reason: str) -> None:
    with pytest.raises(AccprobeError, match=f"{inst.name.replace('.', '[.]')}: {reason}"):
        replace(request(inst), **changes).check(inst)

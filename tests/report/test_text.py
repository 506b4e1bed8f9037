"""How the JSON text of a report is laid out."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from accprobe.report.text import ALONE, SHARED, written

EXCHANGE = ["0" * 64, "1" * 64, "2" * 8, "3" * 8]
NOTE = "why " * 40


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ({"candidates": ["none", -124], "note": NOTE}, 1),
        ({"candidates": ["none", -124], "note": NOTE * 3}, 4),
        ([[bits, 4_194_304] for bits in range(24)], 1),
        ([[bits, 4_194_304] for bits in range(48)], 50),
        (list(range(1000)), 1),
        ([EXCHANGE], 3),
        ([EXCHANGE[2:], EXCHANGE[2:]], 1),
        ({"order": {"value": "[c 0-7]"}, "nan": {"value": "0x7FFFFFFF"}}, 1),
        ({"order": {"value": "[c 0-7]"}, "nan": {"note": NOTE}}, 4),
        ([], 1),
        ({}, 1),
    ],
    ids=str,
)
def test_what_is_one_thing_stands_on_a_line(value: Any, lines: int) -> None:
    text = written(value)
    assert json.loads(text) == value
    assert text.count("\n") == lines


def test_plain_values_share_lines_up_to_what_is_none() -> None:
    counts: dict[str, object] = {f"count {i}": i for i in range(100)}
    lines = written({"few": {}, **counts, "exchanges": [EXCHANGE], "last": 1}).splitlines()
    assert lines[1] == ' "few": {},'
    filled = lines[2 : lines.index(' "exchanges": [')]
    assert max(map(len, filled)) <= SHARED + 1
    assert all(len(line) + len(first.split(",")[0]) > SHARED for line, first in pairwise(filled))
    assert lines[-2:] == [' "last": 1', "}"]


def test_a_line_of_one_thing_is_as_wide_as_it_may_be() -> None:
    assert [written({"note": "x" * n}).count("\n") for n in (ALONE - 12, ALONE - 11)] == [1, 3]

"""The JSON text of a report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accprobe.report.text import LINE_COLUMNS, written

EXCHANGE = ["0" * LINE_COLUMNS, "1" * LINE_COLUMNS, "2" * 8, "3" * 8]


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ({"candidates": ["none", -124], "note": "why"}, 1),
        ({"candidates": ["none", -124], "note": "why" * LINE_COLUMNS}, 4),
        (list(range(1000)), 1),
        ([EXCHANGE], 3),
        ([EXCHANGE, EXCHANGE], 4),
        ({"order": [EXCHANGE]}, 5),
        ([], 1),
        ({}, 1),
    ],
    ids=["short object", "long object", "numbers", "exchange", "exchanges", "nested", "empty list", "empty object"],
)
def test_a_line_has_one_exchange_finding_or_arithmetic(value: Any, lines: int) -> None:
    text = written(value)
    assert json.loads(text) == value
    assert text.count("\n") == lines

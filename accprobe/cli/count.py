"""Counts on the command line: of dot products there may be many."""

from __future__ import annotations

from typing import Any

import click

from accprobe.cli.parameter import ParamType

LARGEST_COUNT = 10**15
"""What a GPU compares in half a day."""


class PositiveCount(ParamType[int]):
    """A positive whole number, also as 1e10 or 10_000_000."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            try:
                number = int(float(value))
            except (ValueError, OverflowError):
                number = 0
            else:
                number = number if number == float(value) else 0
        if number < 1:
            self.fail(f"'{value}' is not a positive whole number, such as 1e9 or 10_000_000")
        if number > LARGEST_COUNT:
            self.fail(f"'{value}' is more than any GPU gets through; give at most {LARGEST_COUNT:.0e}")
        return number

"""A report for other programs: comma-separated values, and one JSON object a line."""

from __future__ import annotations

import csv
import io
import json

from accprobe.report.columns import records
from accprobe.report.report import Report


def comma_separated(report: Report) -> str:
    """A header and a line an instruction (RFC 4180, lines end in a line feed); nothing known is an empty cell."""
    every = list(records(report))
    text = io.StringIO()
    writer = csv.DictWriter(text, every[0].keys() if every else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(every)
    return text.getvalue()


def json_lines(report: Report) -> str:
    """One flat JSON object an instruction, all with the same keys; nothing known is null."""
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records(report))

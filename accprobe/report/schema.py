"""The report's JSON Schema: `report.schema.json` in this package is this text, for readers in other languages.

It tells names, types and ranges. What only arithmetic can tell (that an order is a tree of all products, that an exchange has
its instruction's width) is checked where a report is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from accprobe.report.report import SCHEMA, Report

FILE = Path(__file__).parent / "report.schema.json"


def schema() -> dict[str, Any]:
    """The schema of the reports that this accprobe writes, in draft 2020-12."""
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"accprobe report, schema {SCHEMA}"}
    return title | {key: value for key, value in Report.model_json_schema(by_alias=True).items() if key != "title"}


def text() -> str:
    """The file's text."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"

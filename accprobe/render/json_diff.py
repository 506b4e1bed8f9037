"""A comparison for other programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from accprobe.compare.diff import Diff, Difference, Pair, generation
from accprobe.compare.headline import headline
from accprobe.report.report import Report, Row


def diff_json(diff: Diff) -> str:
    """One object: both sides, the headline, environment, counts by verdict, every pair with the fields in which it differs."""
    data = {
        "headline": headline(diff),
        "differs": diff.differs,
        "a": _side(diff.a),
        "b": _side(diff.b),
        "environment": [asdict(change) for change in diff.environment],
        "counts": dict(diff.counts),
        "unmeasured": diff.unmeasured,
        "pairs": [_pair(pair) for pair in diff.pairs],
    }
    return json.dumps(data, indent=1, ensure_ascii=False)


def _side(report: Report) -> dict[str, Any]:
    device = report.device
    return {
        "name": device.name,
        "kind": device.kind,
        "architecture": device.architecture,
        "generation": generation(report),
        "instructions": len(report.measured),
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "verdict": pair.verdict,
        "by": pair.by,
        "role": str(pair.role),
        "a": pair.a and pair.a.name,
        "b": pair.b and pair.b.name,
        "marks": list(pair.marks),
        "note": pair.note,
        "fields": [_difference(pair, difference) for difference in pair.differences],
    }


def _difference(pair: Pair, difference: Difference) -> dict[str, Any]:
    return {
        "field": difference.field,
        "verdict": difference.verdict,
        "a": _value(pair.a, difference.field, difference.a),
        "b": _value(pair.b, difference.field, difference.b),
        "means": difference.means,
    }


def _value(row: Row | None, field: str, text: str) -> dict[str, Any]:
    """The value as the report has it, and as tables show it."""
    finding = row.findings.get(field) if row else None
    if finding is None:
        return {"text": text}
    return {"value": finding.value, "bound": finding.bound, "left": list(finding.left), "text": text}

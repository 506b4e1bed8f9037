"""The content of reports, to compare replays of recordings with them."""

from __future__ import annotations

import json
from typing import Any

from accprobe.report.report import Report


def content(report: Report) -> dict[str, Any]:
    """Return the content of a report, except times, the kind of device, and `explains`, which no recording has."""
    data = json.loads(report.dumps())
    data["device"].pop("kind")
    data["run"] = data["run"]["selected"]
    data.pop("sweeps", None)
    for row in data["claims"]:
        row.pop("seconds", None)
        row.pop("explains", None)
    return data

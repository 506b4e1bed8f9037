"""What two runs must tell alike."""

from __future__ import annotations

import json
from typing import Any

from accprobe.report.report import Report


def told(report: Report) -> dict[str, Any]:
    """What `accprobe run` told, but for what the clock says, what kind of device it is, and words that no recording has."""
    data = json.loads(report.dumps())
    data["device"].pop("kind")
    data["run"] = data["run"]["selected"]
    data.pop("sweeps", None)
    for row in data["instructions"]:
        row.pop("seconds", None)
        row.pop("explains", None)
    return data

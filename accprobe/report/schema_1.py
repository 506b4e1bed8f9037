"""Reports of schema 1, as accprobe 0.1 wrote them, turned into such as are written today.

What differs: rivals that survived were a field and a text, "12 in the sum with product 0 and alignment_rounding floor"; rows
of simulated devices were confirmed, inferred or unverified.
"""

from __future__ import annotations

import json
from typing import Any

SCHEMA = 1


def converted(text: bytes) -> str:
    """The file's text as one of schema 2. What is wrong with it otherwise is left for the reader to tell."""
    data = json.loads(text)
    data["schema"] = 2
    rows, device = data.get("instructions"), data.get("device")
    simulated = isinstance(device, dict) and device.get("kind") == "simulated"
    for row in rows if isinstance(rows, list) else ():
        if simulated and isinstance(row, dict) and row.get("status") in ("confirmed", "inferred", "unverified"):
            row["status"] = "simulated"
        alternatives = row.get("rivals") if isinstance(row, dict) else None
        if isinstance(alternatives, dict) and isinstance(alternatives.get("survived"), list):
            alternatives["survived"] = [_deviation(alternative) for alternative in alternatives["survived"]]
    return json.dumps(data)


def _deviation(alternative: Any) -> Any:
    if not isinstance(alternative, dict) or not all(isinstance(alternative.get(key), str) for key in ("field", "value")):
        return alternative
    first, *others = alternative["value"].split(" and ")
    value, _, where = first.partition(" in ")
    changes = [[alternative["field"], _value(value)]]
    for other in others:
        name, _, value = other.partition(" ")
        changes.append([name, _value(value)])
    return {"changes": changes, **({"where": where} if where else {})}


def _value(text: str) -> int | str | None:
    if text == "none":
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text

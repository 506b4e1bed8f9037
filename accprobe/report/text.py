"""JSON text of a report: lists of plain values on one line each."""

from __future__ import annotations

import json


def written(data: object) -> str:
    """The text, with its last line end."""
    text: list[str] = []
    _write(data, "", text)
    return "".join(text) + "\n"


def _write(value: object, indent: str, text: list[str]) -> None:
    """The parts of the value's JSON text, appended."""
    if isinstance(value, dict) and value:
        items = [(f"{json.dumps(key)}: ", item) for key, item in value.items()]
        brackets = "{}"
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        items = [("", item) for item in value]
        brackets = "[]"
    else:
        text.append(json.dumps(value))
        return
    whole = json.dumps(value) if _is_small(value) else None
    if whole and len(indent) + len(whole) <= 120:
        text.append(whole)
        return
    inner = indent + " "
    text.append(brackets[0])
    for i, (key, item) in enumerate(items):
        text.append(f"{',' if i else ''}\n{inner}{key}")
        _write(item, inner, text)
    text.append(f"\n{indent}{brackets[1]}")


def _is_small(value: dict[str, object] | list[object]) -> bool:
    """Whether it may fit on a line: no container of containers of containers."""
    items = value.values() if isinstance(value, dict) else value
    inner = [item for item in items if isinstance(item, dict | list)]
    return not any(isinstance(x, dict | list) for item in inner for x in (item.values() if isinstance(item, dict) else item))

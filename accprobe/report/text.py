"""JSON text of a report: lists of plain values on one line each; and what others wrote, with nothing that steers a terminal."""

from __future__ import annotations

import json
import re

_PICTURES = 0x2400
"""Unicode's pictures of control characters, in their order: U+240A shows that a line end is there."""

_ESCAPED = re.compile(rb"\\(?:u00(?P<code>[01][0-9A-Fa-f])|(?P<letter>[bfnrt])|.)", re.DOTALL)
_LETTERS = dict(zip(b"bfnrt", b"\b\f\n\r\t", strict=True))


def pictured(text: bytes) -> bytes:
    """The same JSON text, but that no string has a control character or a line end: a picture of each stands there.

    JSON has them escaped alone. So whatever is shown of a report (a name, a reason, a note) is as long as it says.
    """
    return _ESCAPED.sub(_picture, text)


def _picture(escape: re.Match[bytes]) -> bytes:
    if escape["code"]:
        return chr(_PICTURES + int(escape["code"], 16)).encode()
    return chr(_PICTURES + _LETTERS[escape["letter"][0]]).encode() if escape["letter"] else escape[0]


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

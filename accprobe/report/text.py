"""JSON text of a report, with a line for each exchange, finding or arithmetic; and what others wrote, with nothing in it that
steers a terminal.
"""

from __future__ import annotations

import json
import re
from math import inf

SHARED = 120
"""Columns of a line that several things share: plain values that follow one another, or a small object or list."""

ALONE = 480
"""Columns of a line that has one: an object of plain values and lists of them, or a list of lists of numbers."""

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
    return _text(data, "") + "\n"


def _text(value: object, indent: str) -> str:
    """The value's JSON text, whose lines but the first begin with the indent."""
    if not isinstance(value, dict | list):
        return json.dumps(value)
    whole = json.dumps(value)
    if len(indent) + len(whole) <= _width(value):
        return whole
    inner, lines, shared = indent + " ", list[str](), False
    for key, item in value.items() if isinstance(value, dict) else [("", item) for item in value]:
        entry = (f"{json.dumps(key)}: " if isinstance(value, dict) else "") + _text(item, inner)
        before, shared = shared, not isinstance(item, dict | list)
        if before and shared and len(lines[-1]) + len(entry) + 2 <= SHARED:
            lines[-1] += f", {entry}"
        else:
            lines.append(inner + entry)
    brackets = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([brackets[0], ",\n".join(lines), indent + brackets[1]])


def _width(value: dict[str, object] | list[object]) -> float:
    """Columns of a line that may have all of it."""
    inner = [x for x in (value.values() if isinstance(value, dict) else value) if isinstance(x, dict | list)]
    if not inner and isinstance(value, list):
        return inf
    others = dict | list if isinstance(value, dict) else dict | list | str
    return SHARED if any(isinstance(x, dict) or any(isinstance(y, others) for y in x) for x in inner) else ALONE

"""The JSON text of a report: how it is laid out, how hostile strings are made harmless, and what is wrong with a file."""

from __future__ import annotations

import json
import re

from pydantic import ValidationError

from accprobe.errors import PICTURES

_GIVE = "give a report that accprobe wrote, such as with `accprobe run -o FILE`"

LINE_COLUMNS = 480
"""Most columns of a line with a whole object or list. A list of plain values, such as an exchange, always has one line."""


_ESCAPED = re.compile(rb"\\(?:u00(?P<code>[01][0-9A-Fa-f])|(?P<letter>[bfnrt])|.)", re.DOTALL)
_LETTERS = dict(zip(b"bfnrt", b"\b\f\n\r\t", strict=True))


def written(data: object) -> str:
    """Return the JSON text of plain values."""
    return _text(data, "") + "\n"


def _text(value: object, indent: str) -> str:
    whole = json.dumps(value)
    if not isinstance(value, dict | list) or len(indent) + len(whole) <= LINE_COLUMNS:
        return whole
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return whole
    inner = indent + " "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {_text(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(f"{inner}{_text(item, inner)}" for item in value) + f"\n{indent}]"


def pictured(text: bytes) -> bytes:
    """Replace escaped control characters and line ends in JSON text by pictures of them, so that no name steers a terminal."""
    return _ESCAPED.sub(_picture, text)


def _picture(escape: re.Match[bytes]) -> bytes:
    if escape["code"]:
        return chr(PICTURES + int(escape["code"], 16)).encode()
    return chr(PICTURES + _LETTERS[escape["letter"][0]]).encode() if escape["letter"] else escape[0]


def reason(error: ValidationError, schema: int) -> str:
    """Return the first thing that is wrong with a file, with its key, a wrong schema first. schema: the one that is read."""
    errors = error.errors(include_url=False)
    first = next((e for e in errors if e["loc"] == ("schema",)), errors[0])
    key, given, text = ".".join(map(str, first["loc"])), first["input"], first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return f"it is not JSON, or truncated ({text.removeprefix('Invalid JSON: ')}): {_GIVE}"
    if first["type"] == "value_error":
        return f"{key}: {text}" if key else text
    if key == "schema" or not key:
        return f"it is not a report of schema {schema}, which this accprobe reads: {_GIVE}"
    shown = f"; it is {given!r}" if isinstance(given, int | float | str | None) else ""
    return f"{key}: {text[:1].lower()}{text[1:]}{shown}"

"""Text: the layout of the JSON of a report, what is wrong with a file, and strings made safe for a terminal.

Replaces control characters of ASCII and Latin-1, which begin escape sequences; characters that change the direction of writing
(Boucher & Anderson, "Trojan Source", arXiv 2111.00169); and surrogates, which stand for bytes of file names that are not UTF-8.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

LINE_COLUMNS = 480
"""Columns of a line with a whole object or list. A list of plain values, such as an exchange, always has one line."""

_PICTURES = 0x2400
"""Unicode's pictures of control characters, in their order: U+240A stands for a line end."""

_UNKNOWN = "\ufffd"
_TURNING = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C]

_SHOWN: dict[int, int | str] = {code: _PICTURES + code for code in range(32) if chr(code) not in "\t\n"}
_SHOWN |= {127: _PICTURES + 33}
_SHOWN |= dict.fromkeys([*range(0x80, 0xA0), *_TURNING, 0x2028, 0x2029, *range(0xD800, 0xE000)], _UNKNOWN)

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
        return chr(_PICTURES + int(escape["code"], 16)).encode()
    return chr(_PICTURES + _LETTERS[escape["letter"][0]]).encode() if escape["letter"] else escape[0]


def plain(text: str) -> str:
    """Return the text with a picture in place of each control character, except tabs and line feeds."""
    return text.translate(_SHOWN)


def reason(error: ValidationError, schema: int) -> str:
    """Return the first thing that is wrong with a file, with its key, a wrong schema first. schema: the one that is read."""
    errors = error.errors(include_url=False)
    first = next((e for e in errors if e["loc"] == ("schema",)), errors[0])
    kind, given = first["type"], first["input"]
    key = ".".join(str(part) for part in first["loc"])
    if kind == "json_invalid" and "recursion limit" in first["msg"]:
        return "it is not an accprobe report: it is nested too deeply"
    if kind == "json_invalid":
        return f"it is not JSON, or truncated ({first['msg'].removeprefix('Invalid JSON: ')})"
    if kind == "model_type" and not key:
        return "it is not an accprobe report, but another JSON file: not an object"
    if key == "schema" and kind == "missing":
        return "it is not an accprobe report, but another JSON file: the key schema is missing"
    if key == "schema":
        newer = type(given) is int and given > schema
        return f"schema: this accprobe reads schema {schema}, the file has {given!r}" + "; a newer accprobe may read it" * newer
    if kind == "missing":
        return f"{key}: the key is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{key}: there is no such key in schema {schema}"
    text = first["msg"].removeprefix("Value error, ")
    text = text[:1].lower() + text[1:] if kind != "value_error" else text
    shown = f"; it is {given!r}" if isinstance(given, int | float | str | None) and kind != "value_error" else ""
    return f"{key}: {text}{shown}" if key else text

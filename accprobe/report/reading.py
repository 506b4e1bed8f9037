"""What is wrong with a file that is no report: the first thing, with its key, in a sentence."""

from __future__ import annotations

from pydantic import ValidationError


def is_of_schema(error: ValidationError, schema: int) -> bool:
    """Whether the file says that it is of another schema, that one."""
    return any(e["loc"] == ("schema",) and e["input"] == schema for e in error.errors(include_url=False))


def reason(error: ValidationError, schema: int) -> str:
    """A wrong schema explains all else. schema: the one that is read."""
    errors = error.errors(include_url=False)
    first = next((e for e in errors if e["loc"] == ("schema",)), errors[0])
    kind, given = first["type"], first["input"]
    if kind == "json_invalid" and "recursion limit" in first["msg"]:
        return "it is not an accprobe report: it is nested too deeply"
    if kind == "json_invalid":
        return f"it is not JSON, or cut short ({first['msg'].removeprefix('Invalid JSON: ')})"
    if kind == "model_type" and not first["loc"]:
        return "it is not an accprobe report, but another JSON file: it is no object"
    if first["loc"] == ("schema",):
        if kind == "missing":
            return "it is not an accprobe report, but another JSON file: the key schema is missing"
        newer = isinstance(given, int) and given > schema
        return f"schema: this accprobe reads schema {schema}, the file has {given!r}" + "; a newer accprobe may read it" * newer
    key = ".".join(str(part) for part in first["loc"])
    if kind == "missing":
        return f"{key}: the key is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{key}: there is no such key in schema {schema}"
    text = first["msg"].removeprefix("Value error, ")
    text = text[:1].lower() + text[1:] if kind != "value_error" else text
    shown = f"; it is {given!r}" if isinstance(given, int | float | str | None) and kind != "value_error" else ""
    return f"{key}: {text}{shown}" if key else text

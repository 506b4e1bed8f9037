"""What is wrong with a file that is no report: the first thing, with its key, in a sentence."""

from __future__ import annotations

import json

from pydantic import ValidationError

OUTCOMES = {
    "gpus": "health: gpus[].status says what became of each GPU, gpus[].mismatches which words differ (docs/health.md)",
    "verified": "verify: verified[].mismatches says how many dot products differ",
    "checked": "verify --every-sm: checked[].faults has the SMs that differ",
    "compared": "verify --vectors: compared[].mismatches says how many dot products differ",
    "pairs": "diff: counts says how many pairs are what, pairs has each",
    "kernels": "sass: kernels has each, with its opcodes",
    "accumulations": "budget: rows has each error",
    "kill_table": "tolerance: absolute is what a test may ask, kill_table what it notices",
}
"""JSON of other commands by a key that no other has: the command, and what says most in it."""


def outcome_of_another(text: bytes) -> str:
    """Which command's outcome a file is that is no report, and how that is read; "" where it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    told = next((told for key, told in OUTCOMES.items() if isinstance(found, dict) and key in found), "")
    return f"it is no report, but the JSON of accprobe {told}" if told else ""


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
        newer = type(given) is int and given > schema
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

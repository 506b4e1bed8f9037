"""The JSON Schema of what `accprobe health --format json` writes: `health.schema.json` in this package is this text."""

from __future__ import annotations

import json
from pathlib import Path

from accprobe.health.outcome import HEALTH_SCHEMA, HealthOutcome

HEALTH_FILE = Path(__file__).parent / "health.schema.json"


def health_schema_text() -> str:
    """The file's text, draft 2020-12."""
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"accprobe health, schema {HEALTH_SCHEMA}"}
    described = HealthOutcome.model_json_schema(by_alias=True, mode="serialization")
    described.pop("title")
    return json.dumps(title | described, indent=1, ensure_ascii=False) + "\n"

"""Golden screens of the tests, and the published schemas: `python tests/support/golden.py` writes them again.

Their values come from the recorded reports and the published models; look at the difference before it is committed.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner
from fakes import fake_report
from product_rows import OF_A, OF_B, REQUIRED, product_report

import accprobe
from accprobe.cli import main
from accprobe.health.outcome import HEALTH_SCHEMA, HealthOutcome
from accprobe.report.report import SCHEMA, Report

FOLDER = Path(__file__).parents[1] / "golden"

WIDTH = 80

SCREENS = {
    "budget": ("budget", "QGMMA", "--k", "256,1024", "--scale", "none,1x128", "--outputs", "256"),
    "diff-h200-b200": ("diff", "h200", "sim:b200"),
    "report": ("show", "r.json"),
    "products-show-one": ("show", "a.json", "torch:mm"),
    "products-show-some": ("show", "a.json"),
    "products-diff": ("diff", "a.json", "b.json"),
    "products-check": ("check", "a.json", *(word for line in REQUIRED for word in ("--require", line))),
}
"""By name: a command; r.json is a report made by hand, a.json and b.json are those of products."""


def printed(name: str, folder: Path) -> str:
    """Return the output of a command on a terminal, and its exit status in the last line."""
    fake_report().save(folder / "r.json")
    product_report(*OF_A).save(folder / "a.json")
    device = {"kind": "cuda", "name": "Other GPU", "architecture": "sm_90a"}
    product_report(*OF_B, device=device).save(folder / "b.json")
    words = [str(folder / word) if word.endswith(".json") else word for word in SCREENS[name]]
    result = CliRunner(env={"COLUMNS": str(WIDTH)}).invoke(main, words)
    return "".join(f"{line.rstrip()}\n" for line in (*result.stdout.splitlines(), f"exit status {result.exit_code}"))


PACKAGE = Path(accprobe.__file__).parent
REPORT_FILE, HEALTH_FILE = PACKAGE / "report" / "report.schema.json", PACKAGE / "health" / "health.schema.json"


def schema(path: Path) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) that a file of the package has; only the reader of reports checks arithmetic."""
    title, model, mode = f"accprobe report, schema {SCHEMA}", Report, "validation"
    if path == HEALTH_FILE:
        title, model, mode = f"accprobe health, schema {HEALTH_SCHEMA}", HealthOutcome, "serialization"
    described = model.model_json_schema(by_alias=True, mode=mode)
    first = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return first | {key: value for key, value in described.items() if key != "title"}


def schema_text(path: Path) -> str:
    return json.dumps(schema(path), indent=1, ensure_ascii=False) + "\n"


def file(name: str) -> Path:
    return FOLDER / f"{name}-{WIDTH}.txt"


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        for name in SCREENS:
            file(name).write_text(printed(name, Path(folder)), encoding="utf-8")
    for path in (REPORT_FILE, HEALTH_FILE):
        path.write_text(schema_text(path), encoding="utf-8")

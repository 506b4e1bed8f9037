"""The scripts of `benchmarks/`, which is not a package, as modules, and their recorded results."""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType
from typing import Any

from block_forms import ROOT

RESULTS = ROOT / "benchmarks" / "results"

Line = dict[str, Any]


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recorded(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def accuracy_lines(table: str, **values: object) -> list[Line]:
    """Return the lines of an accuracy table that have these values."""
    lines = recorded("accuracy/h200.json")[table]
    return [line for line in lines if all(line[name] == value for name, value in values.items())]

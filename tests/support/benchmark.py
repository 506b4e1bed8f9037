"""The scripts of `benchmarks/`, which is not a package, as modules, and their recorded results."""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType
from typing import Any

from block_forms import ROOT

RESULTS = ROOT / "benchmarks" / "results"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recorded(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))

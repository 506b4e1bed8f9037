"""The scripts of `benchmarks/`, which is no package, as modules."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from block_forms import ROOT


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

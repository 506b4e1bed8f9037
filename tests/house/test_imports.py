"""Imports: modules without optional packages, and the public names of `accprobe` on first use."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import pydoc
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import accprobe

OPTIONAL = ("cuda", "cupy", "cxxfilt", "llvmlite", "numba", "pynvml", "torch", "triton")

PROGRAM = """
import importlib, sys, traceback
optional, names = (words.split() for words in sys.argv[1:])
sys.modules |= dict.fromkeys(optional)
for name in names:
    try:
        importlib.import_module(name)
    except BaseException:
        print(name, traceback.format_exc())
"""

NOT_PLAIN = ("accprobe.__main__", "accprobe.evaluate.lanes", "accprobe.function.compiled", "accprobe.probes.triton_dot")
"""Modules that run something, or need an optional package."""


def test_no_module_needs_an_optional_package() -> None:
    """Imports run in one process: without circular imports any module can be the first."""
    found = pkgutil.walk_packages(accprobe.__path__, "accprobe.")
    names = [module.name for module in found if module.name not in NOT_PLAIN]
    assert len(names) > 80
    command = [sys.executable, "-c", PROGRAM, " ".join(OPTIONAL), " ".join(names)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_benchmarks_and_scripts_import_names_that_exist() -> None:
    """No other test runs them all, and mypy does not read them."""
    top = Path(__file__).parents[2]
    scripts = [x for x in top.glob("scripts/*") if x.is_file() and x.read_bytes().startswith(b"#!/usr/bin/env python")]
    for path in [*top.glob("benchmarks/*.py"), *scripts]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("accprobe") and node.module not in NOT_PLAIN:
                module = importlib.import_module(node.module or "")
                missing = [
                    x.name for x in node.names if not hasattr(module, x.name) and find_spec(f"{node.module}.{x.name}") is None
                ]
                assert not missing, f"{path.name} imports {', '.join(missing)} from {node.module}"


def test_public_names_are_typed() -> None:
    """The names for type checkers, the names imported on first use and `__all__` are the same."""
    tree = ast.parse(Path(accprobe.__file__).read_text(encoding="utf-8"))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = {
        name.name: (node.module or "").removeprefix("accprobe.")
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert sorted(imports) == accprobe.__all__ == sorted(accprobe._HOMES)
    for name in accprobe.__all__:
        assert getattr(accprobe, name) is getattr(sys.modules[f"accprobe.{accprobe._HOMES[name]}"], name)


def test_no_name_is_a_subpackage() -> None:
    """An imported subpackage becomes an attribute of the package, which would replace a function of the same name."""
    subpackages = {path.stem for path in Path(accprobe.__file__).parent.iterdir()}
    assert not subpackages & set(accprobe.__all__)


def test_nothing_is_imported_before_first_use() -> None:
    program = "import accprobe, sys; print([name for name in sys.modules if name.startswith('accprobe.') or name == 'numpy'])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'accprobe' has no attribute 'charcterise'"):
        accprobe.charcterise  # noqa: B018 -- reading it is the test


def test_help_is_useful() -> None:
    """The help has each name and an example that runs."""
    shown = pydoc.plain(pydoc.render_doc(accprobe))
    assert 'accprobe.open_device("sim:h100")' in shown
    for name in ("characterise", "open_device", "predict", "class DotModel", "class Request"):
        assert name in shown
    lines = [line.removeprefix("    ") for line in (accprobe.__doc__ or "").splitlines() if line.startswith("    ")]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout == "13 [c 0-31]\n"

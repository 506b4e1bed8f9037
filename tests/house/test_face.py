"""The public face of the package: what `import accprobe` offers, and when it is imported."""

from __future__ import annotations

import ast
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import accprobe


def test_names_are_those_that_are_typed() -> None:
    """What a type checker sees, what is imported when it is asked for, and what `__all__` says, are the same."""
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


def test_no_name_is_a_room() -> None:
    """A room that is imported becomes an attribute of the package: a function of the same name would be gone."""
    rooms = {path.stem for path in Path(accprobe.__file__).parent.iterdir()}
    assert not rooms & set(accprobe.__all__)


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    program = "import accprobe, sys; print([name for name in sys.modules if name.startswith('accprobe.') or name == 'numpy'])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'accprobe' has no attribute 'charcterise'"):
        accprobe.charcterise  # noqa: B018


def test_help_is_useful() -> None:
    """It shows the example, which runs, and what each name is."""
    shown = pydoc.plain(pydoc.render_doc(accprobe))
    assert 'accprobe.open_device("sim:h100")' in shown
    for name in ("characterise", "open_device", "matmul", "class DotModel", "class Request"):
        assert name in shown
    lines = [line.removeprefix("    ") for line in (accprobe.__doc__ or "").splitlines() if line.startswith("    ")]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout == "13 [c 0-31]\n"

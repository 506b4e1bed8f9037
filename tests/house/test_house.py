"""Rules of the package that no tool checks: names, imports without optional packages, where tests are, words to avoid."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import pydoc
import re
import subprocess
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path

import house
import pytest

import accprobe

AT_THE_TOP = {"__init__.py", "__main__.py", "emulate.py", "errors.py", "py.typed"}

OTHER_TESTS = {"docs", "emulate", "house"}
"""Folders of tests without a folder of the package."""

HOMONYMS = {
    "Chain",
    "Kind",
    "Overflow",
    "T",
    "characterise",
    "find",
    "main",
    "parse",
    "source",
}
"""Public names that several folders define. It may only shrink."""


AT_THE_TOP_OF_THE_REPOSITORY = {
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "NOTICE",
    "README.md",
    "RELEASING.md",
    "pyproject.toml",
}


def test_nothing_else_is_at_the_top() -> None:
    assert {path.name for path in house.PACKAGE.iterdir() if path.is_file()} <= AT_THE_TOP
    files = {path.name for path in house.PACKAGE.parent.iterdir() if path.is_file() and not path.name.startswith(".")}
    assert files <= AT_THE_TOP_OF_THE_REPOSITORY


def test_no_public_name_is_defined_in_two_folders() -> None:
    found = house.homonyms()
    assert not {name: folders for name, folders in found.items() if name not in HOMONYMS}, "rename one of each"
    assert not HOMONYMS - set(found), "these have one meaning now: remove them from HOMONYMS"


def test_layers_and_folders_stay_few() -> None:
    assert len(set(house.layers().values())) <= 12
    modules = Counter(path.parent for path in house.files() if path.name != "__init__.py")
    assert max(modules.values()) <= 20, modules.most_common(1)


TESTS = sorted((house.ROOT / "tests").rglob("test_*.py"))


def test_each_test_is_in_the_folder_of_what_it_tests() -> None:
    folders = {path.name for path in house.PACKAGE.iterdir() if path.is_dir()}
    assert {path.relative_to(house.ROOT / "tests").parts[0] for path in TESTS} <= folders | OTHER_TESTS
    assert all(path.parents[2] == house.ROOT for path in TESTS)
    assert len({path.name for path in TESTS}) == len(TESTS), "pytest needs one name each"


def test_no_test_imports_another() -> None:
    imports = re.compile(r"^\s*(?:from|import) (test_\w+)", re.MULTILINE)
    assert not {path.name: found for path in TESTS if (found := imports.findall(path.read_text(encoding="utf-8")))}


loader = SourceFileLoader("words", str(house.ROOT / "scripts" / "words"))
words = module_from_spec(spec_from_loader(loader.name, loader))
loader.exec_module(words)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("The device answered.", ["answered"]),
        ("It is fine. What it keeps is 13 bits.", ["What …"]),
        ("# Title\n\n- One\n- Of all rows, two differ.", ["Of …"]),
        ("What does my GEMM compute? It is confirmed.", []),
        ("The field `answer` and ``told``.\n\n```\nasked\n```", []),
        ("[names](what-is-asked.md) and <!-- told --> nothing", []),
    ],
)
def test_finds_words_and_riddles_in_pages(page: str, found: list[str]) -> None:
    assert [each.found for prose in words.of_page(page) for each in words.findings("README.md", prose)] == found


def test_searches_comments_docstrings_and_literals_but_no_names() -> None:
    source = '"""Ask it."""\n\nasked = "told"  # It answers.\n\nraise ValueError(f"no rival of {asked}")\n'
    found = [(each.line, each.found) for prose in words.of_module(source) for each in words.findings("a.py", prose)]
    assert sorted(found) == [(1, "Ask"), (3, "answers"), (5, "rival")]


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

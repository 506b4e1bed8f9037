"""The house in numbers: `scripts/house` prints them, `tests/house` holds what must not grow."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp
from files_of_field import files_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "accprobe"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

Arrows = dict[tuple[str, str], int]
"""(room that imports, room that is imported) -> imports."""


def files() -> dict[Path, str]:
    """Each module of the package, and its room: the first folder or module below the package."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path: path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in paths}


def public_names(source: str) -> Iterator[str]:
    """What a module defines at its top level; another name for what is imported is no definition."""
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names = [name]
            case ast.Assign(targets=targets, value=value) if not isinstance(value, ast.Name | ast.Attribute):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                continue
        yield from (name for name in names if not name.startswith("_"))


def homonyms() -> dict[str, list[str]]:
    """Public names that are defined in several rooms -> those rooms."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for path, room in files().items():
        for name in public_names(path.read_text(encoding="utf-8")):
            rooms[name].add(room)
    return {name: sorted(found) for name, found in sorted(rooms.items()) if len(found) > 1}


def packages() -> set[str]:
    """Every folder of the package, as Python names it."""
    return {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("*.py")}


def graph() -> grimp.ImportGraph:
    """Imports between modules, but for those that a type checker alone sees."""
    return grimp.build_graph("accprobe", exclude_type_checking_imports=True, cache_dir=None)


def arrows(of: grimp.ImportGraph) -> Arrows:
    """Imports from one room to another."""
    found: Arrows = defaultdict(int)
    for importer in of.modules:
        for imported in of.find_modules_directly_imported_by(importer):
            pair = _room(importer), _room(imported)
            if "" not in pair and pair[0] != pair[1]:
                found[pair] += 1
    return dict(found)


def floors() -> dict[str, int]:
    """Room -> the floor that pyproject.toml has it on, the lowest is 0."""
    (contract,) = (c for c in PROJECT["tool"]["importlinter"]["contracts"] if c["name"] == "Arrows run one way")
    layers = contract["layers"][::-1]
    return {room.strip().partition(".")[2]: i for i, layer in enumerate(layers) for room in layer.split("|")}


def upward(found: Arrows) -> Arrows:
    """Those that do not lead to a floor below."""
    floor = floors()
    return {(a, b): n for (a, b), n in found.items() if floor[b] >= floor[a]}


def circles(of: grimp.ImportGraph) -> list[set[str]]:
    """Modules that import each other, directly or not."""
    left, found = set(of.modules), list[set[str]]()
    while left:
        module = left.pop()
        circle = of.find_downstream_modules(module) & of.find_upstream_modules(module) | {module}
        left -= circle
        if len(circle) > 1:
            found.append(circle)
    return found


def _room(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def main() -> None:
    from accprobe.model.fields import FEATURES
    from accprobe.model.record import Field

    sources, imports = files(), graph()
    found, clashes = arrows(imports), homonyms()
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources)
    tests = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "tests").rglob("*.py"))
    named = {name: len(files_of(name)) for name, record in FEATURES.items() if isinstance(record, Field)}
    print(f"lines                  {lines} in {len(sources)} modules; tests {tests}")
    print(f"rooms                  {len(set(sources.values()) - {'__init__', '__main__'})}")
    print(f"arrows between rooms   {len(found)}, of {sum(found.values())} imports")
    print(f"upward arrows          {len(upward(found))}", *(f"  {a} -> {b}" for a, b in upward(found)), sep="\n")
    print(f"circles of modules     {len(circles(imports))}", *(f"  {', '.join(sorted(c))}" for c in circles(imports)), sep="\n")
    print(f"public homonyms        {len(clashes)}", *(f"  {name}: {', '.join(of)}" for name, of in clashes.items()), sep="\n")
    print("files that name a field of the model", *(f"  {n:2}  {name}" for name, n in sorted(named.items())), sep="\n")


if __name__ == "__main__":
    main()

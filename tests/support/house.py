"""The package in numbers: lines and modules of each folder, layers, and public names that several folders define.

scripts/house                                  # the whole package
scripts/house run --device sim:h100 --select … # how a command walks through it: files, moves between folders, climbs
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "accprobe"


def files() -> dict[Path, str]:
    """Return each module of the package, and its folder: the first part of its path."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path: path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in paths}


def public_names(source: str) -> Iterator[str]:
    """Yield what a module defines at its top level; another name for an import is no definition."""
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
    """Return public names that several folders define, with those folders."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, folder in files().items():
        for name in public_names(path.read_text(encoding="utf-8")):
            found[name].add(folder)
    return {name: sorted(folders) for name, folders in sorted(found.items()) if len(folders) > 1}


def layers() -> dict[str, int]:
    """Return the layer of each folder, 0 for the highest, as import-linter checks them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (found,) = (contract["layers"] for contract in contracts if "accprobe.cli" in contract.get("layers", ()))
    return {name.removeprefix("accprobe."): i for i, layer in enumerate(found) for name in layer.split(" | ")}


def walk(command: list[str]) -> None:
    """Run a command, and print how many files its calls visit, and which calls go from one folder to another."""
    from accprobe.cli import main

    moves: dict[tuple[Path, Path], None] = {}
    visited: dict[Path, None] = {}
    known, level = {str(path): path for path in files()}, layers()

    def watch(frame: FrameType, event: str, _: object) -> None:
        here = known.get(frame.f_code.co_filename)
        if event != "call" or here is None or frame.f_code.co_name == "<module>":
            return
        visited[here] = None
        caller = frame.f_back
        while caller is not None and caller.f_code.co_filename not in known:
            caller = caller.f_back
        if caller is not None and caller.f_code.co_name != "<module>":
            moves[known[caller.f_code.co_filename], here] = None

    sys.setprofile(watch)
    try:
        main(command, standalone_mode=False)
    finally:
        sys.setprofile(None)
        folder = files()
        crossing = [(folder[a], folder[b]) for a, b in moves if folder[a] != folder[b]]
        climbs = [(a, b) for a, b in crossing if level.get(b, 99) < level.get(a, 99)]
        print(
            f"{len(visited)} files in {len({folder[x] for x in visited})} folders; {len(crossing)} moves, {len(climbs)} climbs"
        )
        print(*sorted({f"{a} calls {b}" for a, b in climbs}), sep="\n")


def main() -> None:
    lines, modules = Counter[str](), Counter[str]()
    for path, folder in files().items():
        lines[folder] += len(path.read_text(encoding="utf-8").splitlines())
        modules[folder] += 1
    print(f"{len(set(layers().values()))} layers")
    tests = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "tests").rglob("*.py"))
    print(f"{lines.total():,} lines in {modules.total()} modules; tests {tests:,}")
    print(*(f"{count:7,}  {modules[folder]:3}  {folder}" for folder, count in lines.most_common()), sep="\n")
    print(*(f"{name}: {', '.join(folders)}" for name, folders in homonyms().items()), sep="\n")


if __name__ == "__main__":
    walk(sys.argv[1:]) if sys.argv[1:] else main()

"""Caches of one test run that all its processes share."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest

from accprobe.build import atomic, toolchain


def folder_of_run(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all processes of a run share."""
    folder = factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


def once(place: Path, make: Callable[[Path], object]) -> Path:
    """Fill the folder `place` with `make` in the first process; others wait. Return the folder."""
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = place / "made"
        if not made.exists():
            place.mkdir(exist_ok=True)
            make(place)
            made.touch()
    return place


def keep_disassemblies(folder: Path) -> None:
    """Cache the output of nvdisasm, which takes half a second for the smallest file."""
    output = toolchain.output

    @contextmanager
    def kept(tool: toolchain.ToolName, *arguments: str, **options: Any) -> Iterator[TextIO]:
        if tool != "nvdisasm" or not arguments or not Path(arguments[-1]).is_file():
            with output(tool, *arguments, **options) as text:
                yield text
            return
        asked = repr((toolchain.candidates(tool), arguments[:-1])).encode()
        place = folder / hashlib.sha256(asked + Path(arguments[-1]).read_bytes()).hexdigest()
        if not place.exists():
            with output(tool, *arguments, **options) as text:
                atomic.save(place, text.read().encode())
        with open(place, encoding="utf-8") as text:
            yield text

    folder.mkdir(exist_ok=True)
    toolchain.output = kept


def compile_evaluator(_: Path) -> None:
    """Compile the sums of lanes. Numba takes ten seconds, in every process without this cache."""
    from accprobe.evaluate import tiles
    from accprobe.evaluate.steps import step_of
    from accprobe.isa.instructions import parse
    from accprobe.model.published import known_models
    from accprobe.operands.request import Request

    if not tiles.is_there():
        return
    inst = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
    step = step_of(known_models("h100")[inst].model, inst)
    zeros = Request.zeros(inst, 1)
    tiles.sums(step, inst, zeros.a, zeros.b, zeros.c[None])


if __name__ == "__main__":
    once(Path(sys.argv[1]), compile_evaluator)

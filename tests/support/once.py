"""What takes long and is the same for several tests is made once a run, by whichever process needs it first."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest

from accprobe.build import atomic, toolchain


def folder_of_run(factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of a run share."""
    folder = factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


def once(place: Path, make: Callable[[Path], object]) -> Path:
    """The folder `place`, which `make` has filled; other processes wait for the one that does."""
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = place / "made"
        if not made.exists():
            place.mkdir(exist_ok=True)
            make(place)
            made.touch()
    return place


def keep_disassemblies(folder: Path) -> None:
    """What nvdisasm prints of a file it prints once a run: it takes half a second of even the smallest."""
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

"""Cubins on disk. One is found by its source, compiler and target; it is stored under its own sha256.

So several processes may write at once, and a damaged file is noticed and built again.

`cuda.core.utils` has a cache of programs too. It hands out bytes under a key: not the file that cupy loads and nvdisasm
reads, nor whether it is still what was written; and where everything is cached, importing it would take longer (0.3 s) than
finding the cubins.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from accprobe.build import atomic
from accprobe.errors import AccprobeError


@dataclass(frozen=True)
class Cubin:
    """One compiled kernel. milliseconds: what compiling took just now, None where the cubin came from the cache."""

    path: Path
    sha256: str
    target: str
    milliseconds: float | None = None


def cache_folder() -> Path:
    """Where cubins are kept: ACCPROBE_CACHE_DIR, else the user's cache folder. Raises AccprobeError if it cannot be made."""
    chosen = os.environ.get("ACCPROBE_CACHE_DIR")
    if not chosen:
        import platformdirs

        chosen = platformdirs.user_cache_dir("accprobe")
    folder = Path(chosen)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise _unusable(folder, "made", e) from None
    return folder


@contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """Processes that would fill the cache with the same do it one after the other: the second finds it done."""
    path = cache_folder() / f"{what}.lock"
    try:
        file = path.open("w")
    except OSError as e:
        raise _unusable(path.parent, "written", e) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def entry(*key: str) -> Path:
    """Where it is written which cubin was made of these."""
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()
    return cache_folder() / f"{digest}.json"


def load(entry: Path, target: str) -> Cubin | None:
    """The cubin of an entry; None where there is none, or a damaged one."""
    try:
        sha256 = json.loads(entry.read_bytes())["sha256"]
        path = entry.with_name(f"{sha256}.cubin")
        intact = hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Cubin(path, sha256, target) if intact else None


def store(content: bytes, target: str, milliseconds: float | None = None) -> Cubin:
    """A cubin under its sha256. Raises AccprobeError where the folder cannot be written."""
    sha256 = hashlib.sha256(content).hexdigest()
    path = cache_folder() / f"{sha256}.cubin"
    _save(path, content)
    return Cubin(path, sha256, target, milliseconds)


def enter(entry: Path, cubin: Cubin, name: str) -> None:
    """Lets `load` find a cubin; `name` is for who reads the folder."""
    _save(entry, json.dumps({"name": name, "target": cubin.target, "sha256": cubin.sha256}).encode())


def _save(path: Path, content: bytes) -> None:
    try:
        atomic.save(path, content)
    except OSError as e:
        raise _unusable(path.parent, "written", e) from None


def _unusable(folder: Path, what: str, error: OSError) -> AccprobeError:
    return AccprobeError(f"the cache folder {folder} cannot be {what} ({error.strerror}): set ACCPROBE_CACHE_DIR")

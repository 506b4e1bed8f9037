"""Cubins on disk. One is found by its source, target, compiler and options; it is stored under its own sha256.

So several processes may write at once, and a damaged file is noticed and built again. Whoever can write to the folder chooses
the code that the GPU runs: accprobe refuses a folder or a file that another user can write.

`cuda.core.utils` has a cache of programs too. It returns bytes, while cupy and nvdisasm need a file, and it does not detect
damage. Importing it takes longer (0.3 s) than finding the cubins.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from accprobe.build import atomic
from accprobe.errors import AccprobeError


@dataclass(frozen=True)
class Cubin:
    path: Path
    sha256: str


def cache_folder() -> Path:
    """Return the folder of cubins: ACCPROBE_CACHE_DIR, else the user's cache folder. A new one has mode 0700.

    Raises AccprobeError if it cannot be made, or others can write to it.
    """
    chosen = os.environ.get("ACCPROBE_CACHE_DIR")
    if not chosen:
        import platformdirs

        chosen = platformdirs.user_cache_dir("accprobe")
    folder = Path(chosen)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(f"the cache folder {folder}", folder.stat())
    except OSError as e:
        raise _unusable(folder, "made", e) from None
    return folder


@contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """Let one process at a time fill the cache with something; the next one finds it there. Raises AccprobeError."""
    path = cache_folder() / f"{what}.lock"
    with ExitStack() as held:
        try:
            held.enter_context(atomic.locked(path))
        except OSError as e:
            raise _unusable(path.parent, "written", e) from None
        yield


def entry(*key: str) -> Path:
    """Return the file that names the cubin made with these: a source, a target, a compiler and its options."""
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()
    return cache_folder() / f"{digest}.json"


def load(entry: Path) -> Cubin | None:
    """Return the cubin of an entry; None if there is none or it is damaged. Raises AccprobeError as `read_entry`."""
    try:
        sha256 = json.loads(read_entry(entry))["sha256"]
        path = entry.with_name(f"{sha256}.cubin")
        intact = hashlib.sha256(read_entry(path)).hexdigest() == sha256
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Cubin(path, sha256) if intact else None


def store(content: bytes) -> Cubin:
    """Store a cubin under its sha256. Raises AccprobeError if the folder cannot be written."""
    sha256 = hashlib.sha256(content).hexdigest()
    path = cache_folder() / f"{sha256}.cubin"
    write_entry(path, content)
    return Cubin(path, sha256)


def enter(entry: Path, cubin: Cubin, name: str, target: str) -> None:
    """Record the cubin of an entry, so that `load` finds it; name and target are for people who read the folder."""
    write_entry(entry, json.dumps({"name": name, "target": target, "sha256": cubin.sha256}).encode())


def read_entry(path: Path) -> bytes:
    """Read a file of the cache. Raises OSError, and AccprobeError if another user can write it."""
    with path.open("rb") as file:
        _check_owner(str(path), os.fstat(file.fileno()))
        return file.read()


def write_entry(path: Path, content: bytes) -> None:
    """Write a file of the cache that only this user can read. Raises AccprobeError if the folder cannot be written."""
    try:
        atomic.save(path, content, mode=0o600)
    except OSError as e:
        raise _unusable(path.parent, "written", e) from None


def _check_owner(what: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        why = f"belongs to another user (uid {found.st_uid})"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"can be written by other users (mode {stat.S_IMODE(found.st_mode):04o})"
    else:
        return
    raise AccprobeError(f"{what} {why}: remove it, or set ACCPROBE_CACHE_DIR to a folder that only you can write")


def _unusable(folder: Path, what: str, error: OSError) -> AccprobeError:
    return AccprobeError(f"the cache folder {folder} cannot be {what} ({error.strerror}): set ACCPROBE_CACHE_DIR")

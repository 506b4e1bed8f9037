"""Atomic work: file writes that a reader sees whole or not at all, locks for files, and delayed signals."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGALRM
"""Ctrl-C, SIGTERM (from a job scheduler or `timeout`) and --time-limit."""

LOCK_POLL = 0.01
"""Seconds between two attempts to take a lock. Signals are handled in between."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of flock on a file system without locks, such as NFS mounted with nolock."""


def save(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file atomically: beside it first, then by rename. Anything but a regular file is written in place.

    mode: permissions before the umask. Raises OSError.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        temporary.touch(mode, exist_ok=False)
        temporary.write_bytes(content)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def keep_previous(path: Path) -> None:
    """Copy an existing file to FILE~. Raises OSError."""
    if path.is_file():
        save(path.with_name(f"{path.name}~"), path.read_bytes())


@contextmanager
def locked(path: Path, seconds: float = math.inf) -> Iterator[None]:
    """Hold the lock file `path`, and remove it afterwards. The kernel releases the lock of a process that dies.

    On a file system without locks nothing is locked. Raises TimeoutError after `seconds` of waiting, and OSError.
    """
    until = time.monotonic() + seconds
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _take(lock, until)
            if not _is_at(path, lock):
                continue  # its previous holder has removed it
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return
        finally:
            os.close(lock)


def _take(lock: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as e:
            if e.errno in _NO_LOCKS:
                return
            if not isinstance(e, BlockingIOError):
                raise
        if time.monotonic() >= until:
            raise TimeoutError(errno.ETIMEDOUT, "another process keeps it locked")
        time.sleep(LOCK_POLL)


def _is_at(path: Path, lock: int) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay signals until the block has ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])

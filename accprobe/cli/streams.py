"""Robust standard output and error: for a full disk, a closed pipe, or a closed descriptor."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, TextIO

from accprobe.errors import AccprobeError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputLost(AccprobeError):
    """Standard output cannot be written. reader_left: it is a pipe that its reader has closed."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"the output cannot be written: {error.strerror}")
        self.reader_left = error.errno == errno.EPIPE


class _Descriptor(io.FileIO):
    """Write to a descriptor until a write fails; drop later output. needed: raise the failure as OutputLost."""

    def __init__(self, descriptor: int, needed: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._needed, self._lost = needed, False

    def write(self, data: ReadableBuffer, /) -> int:
        if not self._lost:
            try:
                return super().write(data)
            except OSError as e:
                self._lost = True
                if self._needed:
                    raise OutputLost(e) from None
        return memoryview(data).nbytes


def replace_streams() -> None:
    """Replace the standard streams: output is written completely or OutputLost is raised; errors are written if possible.

    With PYTHONUNBUFFERED, Python writes without a buffer and ignores short writes; this always uses a buffer. A closed
    descriptor is opened on the null device, so that no file gets its number.
    """
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = _stream(1, sys.stdout, needed=True)
    sys.stderr = _stream(2, sys.stderr, needed=False)


@contextmanager
def libraries_on_stderr() -> Iterator[None]:
    """Redirect output to standard error, also what libraries and processes write to descriptor 1."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def skip_exit_handlers_of_torch() -> None:
    """Skip the exit handlers of torch's libraries after Python's own.

    At the end of CUDA, CUPTI returns buffers that torch's profiler has already freed. With torch 2.11, programs that had used
    it for kernel names were aborted after their last output ("double free"). Does nothing if the C library has no `on_exit`.
    """
    libc = ctypes.CDLL(None)
    if "torch" in sys.modules and hasattr(libc, "on_exit"):
        libc.on_exit(libc._exit, None)


def _stream(descriptor: int, before: TextIO | None, needed: bool) -> TextIO:
    if before is None:
        os.open(os.devnull, os.O_RDONLY)  # takes the number of the closed descriptor, the lowest free one; writes fail
    buffer = io.BufferedWriter(_Descriptor(descriptor, needed))
    encoding = before.encoding if before else "utf-8"
    return io.TextIOWrapper(buffer, encoding, "backslashreplace", write_through=True)

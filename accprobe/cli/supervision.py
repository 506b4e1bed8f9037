"""A parent process for commands that run other people's code, which may end the process without a word."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

from accprobe.errors import AccprobeError

FORWARDED = signal.SIGINT, signal.SIGTERM

LIKE_THE_CHILD = (*FORWARDED, signal.SIGPIPE, signal.SIGHUP)
"""Signals that end a child as they would have ended the command itself."""

_PR_SET_PDEATHSIG = 1
"""The option of prctl(2) that sets the signal of a process whose parent ends."""

_is_main_program = False
_end_of_child = -1
"""The descriptor on which a child says that it ends in order."""


def enable() -> None:
    """Let `supervised` start a child: this process is the command line's own, and no test or program that imports it."""
    global _is_main_program
    _is_main_program = True


def supervised(name: str, output: Path | None) -> None:
    """Return in a child process, which runs the command. The parent passes signals on and exits as the child does.

    output: the file that keeps what is finished. Raises AccprobeError in the parent where the child ends in the middle: the
    callable `name` ended or crashed it. Call it before anything starts a thread or opens a GPU.
    """
    global _end_of_child
    if not _is_main_program:
        return
    child = 0

    def forward(number: int, frame: FrameType | None) -> None:
        if not child:
            raise KeyboardInterrupt
        os.kill(child, number)

    before = {number: signal.getsignal(number) for number in FORWARDED}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, forward)
    said, end = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child:
        os.close(end)
        _end_as(os.waitpid(child, 0)[1], bool(os.read(said, 1)), name, output)
    for number, handler in before.items():
        signal.signal(number, handler)
    os.close(said)
    _end_of_child = end
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before
        os._exit(1)
    atexit.register(end_in_order)


def end_in_order() -> None:
    """In a child: say that the process is about to end as it should."""
    if _end_of_child >= 0:
        with suppress(BrokenPipeError):  # the parent has ended
            os.write(_end_of_child, b"e")


def _end_as(status: int, in_order: bool, name: str, output: Path | None) -> None:
    """End the parent as the child ended. Raises AccprobeError where that was in the middle."""
    code = os.waitstatus_to_exitcode(status)
    if -code in LIKE_THE_CHILD:
        signal.signal(-code, signal.SIG_DFL)
        signal.raise_signal(-code)
    if in_order:
        sys.exit(code if code >= 0 else 128 - code)
    how = f"with exit status {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    kept = f"; {output} has what was finished" if output else ""
    raise AccprobeError(f"{name} ended the process {how} in a call or its import: let it return, or raise an exception{kept}")

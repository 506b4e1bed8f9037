"""Ctrl-C, SIGTERM, which a job scheduler or `timeout` sends, and --time-limit: the command ends and keeps its results.

A command that runs other people's code has a parent process, as that code may end the process without a word (`supervised`).
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from accprobe.errors import AccprobeError

SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGALRM

_USUAL = signal.default_int_handler, signal.SIG_DFL
"""What handles them where nobody has asked for anything else; a signal that is ignored stays ignored."""

GRACE = 5.0
"""Seconds after a signal in which more of them say the same: `timeout` sends one to the process and one to its group."""

INSISTING = 1.0
"""Seconds after a signal that came to nothing in which more of them are still the same one."""

SOON = 0.02
"""Seconds after which a signal that came during an import is tried again."""

FORWARDED = signal.SIGINT, signal.SIGTERM
"""Signals that a parent passes on to its child."""

LIKE_THE_CHILD = (*FORWARDED, signal.SIGPIPE, signal.SIGHUP)
"""Signals that end a child as they would have ended the command itself."""

_PR_SET_PDEATHSIG = 1
"""The option of prctl(2) that sets the signal of a process whose parent ends."""

_is_main_program = False
_end_of_child = -1
"""The descriptor on which a child says that it ends in order."""

_ends: list[Callable[[KeyboardInterrupt], None]] = []

time_limit_option = click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Stop after SECONDS and keep what was found until then.  [default: no limit]",
)


class TimeLimitReached(KeyboardInterrupt):
    """The seconds of --time-limit are over; whatever keeps its results on Ctrl-C keeps them here too."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"stopped after {seconds:g} s (--time-limit)")


_limit = 0.0
"""Seconds of the limit that is set, which its signal names."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimitReached after so many seconds inside; None: no limit. For a block inside `interruptible`."""
    global _limit
    if seconds is None:
        yield
        return
    _limit = seconds
    signal.setitimer(signal.ITIMER_REAL, seconds, GRACE + INSISTING)  # again, where a callable keeps the first to itself
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def ending_by(end: Callable[[KeyboardInterrupt], None]) -> Iterator[None]:
    """Code of others runs inside, which may keep a KeyboardInterrupt to itself: where a signal comes to nothing, the next one
    ends the process here and now. end: what is still to be done; it exits with the status.
    """
    _ends.append(end)
    try:
        yield
    finally:
        _ends.pop()


def _end_now(end: Callable[[KeyboardInterrupt], None], stop: KeyboardInterrupt) -> NoReturn:
    status = 1
    try:
        end(stop)
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else status
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        end_in_order()
        os._exit(status)


@contextmanager
def interruptible() -> Iterator[None]:
    """The first signal raises KeyboardInterrupt; what then ends in order is not interrupted again within GRACE.

    After a signal the process is about to end, and ignores others from here on. One that comes during an import is heeded after
    it, GRACE later at most: packages make errors of their own of a KeyboardInterrupt, and numpy prints a traceback.
    """
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    mine = {number: handler for number, handler in handlers.items() if handler in _USUAL}
    if not mine or threading.current_thread() is not threading.main_thread():
        yield
        return
    quiet_until, patient_until = 0.0, math.inf

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal quiet_until, patient_until
        now = time.monotonic()
        stop = TimeLimitReached(_limit) if number == signal.SIGALRM else KeyboardInterrupt()
        if quiet_until and _ends and now >= quiet_until - GRACE + INSISTING:
            _end_now(_ends[-1], stop)
        if now < quiet_until:
            return
        patient_until = min(patient_until, now + GRACE)
        if now < patient_until and _is_importing(frame):
            again = threading.Timer(SOON, signal.pthread_kill, [threading.main_thread().ident, number])
            again.daemon = True
            again.start()
            return
        quiet_until = now + GRACE
        raise stop

    for number in mine:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in mine.items():
            signal.signal(number, signal.SIG_IGN if quiet_until else handler)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A signal that comes meanwhile is heeded when what runs inside has ended."""
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


def enable_supervision() -> None:
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

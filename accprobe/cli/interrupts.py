"""Ctrl-C, SIGTERM (from a job scheduler or `timeout`) and --time-limit: end the command and keep its results.

A command that runs other people's code has a parent process, as that code may end its process silently (`supervised`).
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
"""The default handlers of the signals. A signal that is ignored stays ignored."""

GRACE = 5.0
"""Seconds after a signal during which repeated signals are ignored: `timeout` sends one to the process and one to its group."""

INSISTING = 1.0
"""Seconds during which further signals count as the same one, after a signal that other code suppressed."""

SOON = 0.02
"""Seconds after which a signal that arrived during an import is raised again."""

FORWARDED = signal.SIGINT, signal.SIGTERM
"""Signals that a parent passes on to its child."""

LIKE_THE_CHILD = (*FORWARDED, signal.SIGPIPE, signal.SIGHUP)
"""Signals that end a child as they would have ended the command itself."""

_PR_SET_PDEATHSIG = 1
"""The option of prctl(2) that sets the signal of a process whose parent ends."""

_is_main_program = False
_end_of_child = -1
"""The descriptor on which a child reports that it ends normally."""

_ends: list[Callable[[KeyboardInterrupt], None]] = []

time_limit_option = click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Stop after SECONDS and keep what was found until then.  [default: no limit]",
)


class TimeLimitReached(KeyboardInterrupt):
    """The time of --time-limit is over. Code that keeps its results on Ctrl-C keeps them here too."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"stopped after {seconds:g} s (--time-limit)")


_limit = 0.0
"""Seconds of the current limit, for the name of its signal."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimitReached after so many seconds inside the block; None: no limit. Use it inside `interruptible`."""
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
    """Run other people's code, which may catch KeyboardInterrupt: if it suppresses a signal, the next one ends the process.

    end: called before the process ends; returns the exit status.
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
    """Raise KeyboardInterrupt at the first signal, and ignore further signals for GRACE seconds while the process ends.

    A signal during an import is handled after it, at most GRACE seconds later: packages turn a KeyboardInterrupt into their own
    errors, and numpy prints a traceback.
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


def enable_supervision() -> None:
    """Allow `supervised` to start a child, as this process belongs to the command line and not to a test or another program."""
    global _is_main_program
    _is_main_program = True


def supervised(name: str, output: Path | None) -> None:
    """Continue in a child process, which runs the command. The parent passes signals on and exits with the child's status.

    output: the file that keeps the results. Raises AccprobeError in the parent if the callable `name` ended or crashed the
    child. Call it before anything starts a thread or opens a GPU.
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
    """Report to the parent that this child ends normally."""
    if _end_of_child >= 0:
        with suppress(BrokenPipeError):  # the parent has ended
            os.write(_end_of_child, b"e")


def _end_as(status: int, in_order: bool, name: str, output: Path | None) -> None:
    """End the parent with the child's status. Raises AccprobeError if the child did not end normally."""
    code = os.waitstatus_to_exitcode(status)
    if -code in LIKE_THE_CHILD:
        signal.signal(-code, signal.SIG_DFL)
        signal.raise_signal(-code)
    if in_order:
        sys.exit(code if code >= 0 else 128 - code)
    how = f"with exit status {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    kept = f"; {output} has what was finished" if output else ""
    raise AccprobeError(f"{name} ended the process {how} in a call or its import: let it return, or raise an exception{kept}")

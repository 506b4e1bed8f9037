"""Ctrl-C, SIGTERM (from a job scheduler or `timeout`) and --time-limit: end the command and keep its results."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from accprobe.build.atomic import SIGNALS
from accprobe.cli.output import INTERRUPTED, TIMED_OUT, FiniteRange, print_message

_USUAL = signal.default_int_handler, signal.SIG_DFL
"""The default handlers of the signals. A signal that is ignored stays ignored."""

GRACE = 5.0
"""Seconds after a signal during which repeated signals are ignored: `timeout` sends one to the process and one to its group."""

SOON = 0.02
"""Seconds after which a signal that arrived at a delicate moment is raised again."""

_YEAR = 365 * 24 * 3600
"""Seconds of the longest time limit: timers of the system overflow far above it."""

time_limit_option = click.option(
    "--time-limit",
    type=FiniteRange(0, _YEAR, min_open=True),
    metavar="SECONDS",
    help="Stop after SECONDS and keep what was found until then.  [default: no limit]",
)


class TimeLimitReached(KeyboardInterrupt):
    """The time of --time-limit is over. Code that keeps its results on Ctrl-C keeps them here too."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"stopped after {seconds:g} s (--time-limit)")


def exit_interrupted(kept: str, stop: BaseException | None = None) -> NoReturn:
    """Exit after a signal or the time limit, and print which results are kept."""
    timed_out = isinstance(stop, TimeLimitReached)
    print_message(f"{stop if timed_out else 'interrupted'}: {kept}")
    sys.exit(TIMED_OUT if timed_out else INTERRUPTED)


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
    signal.setitimer(signal.ITIMER_REAL, seconds, GRACE + 1)  # it repeats, because a callable may swallow the first signal
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first signal, and ignore further signals for GRACE seconds while the process ends.

    A signal during an import, or while a pool starts a thread, is handled afterwards, at most GRACE seconds later. Otherwise
    packages would turn KeyboardInterrupt into their own errors, numpy would print a traceback, and the thread would go on.
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
        if now < quiet_until:
            return
        patient_until = min(patient_until, now + GRACE)
        if now < patient_until and _is_delicate(frame):
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


def _is_delicate(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>" or frame.f_code.co_name == "_adjust_thread_count":
            return True
        frame = frame.f_back
    return False

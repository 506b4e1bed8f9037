"""Ctrl-C, and SIGTERM, which a job scheduler or `timeout` sends: what runs ends, and what was measured is kept."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = signal.SIGINT, signal.SIGTERM

GRACE = 5.0
"""Seconds after a signal in which more of them say the same: `timeout` sends one to the process and one to its group."""


@contextmanager
def interruptible() -> Iterator[None]:
    """The first signal raises KeyboardInterrupt; what then ends in order is not interrupted again within GRACE.

    After a signal the process is about to end, and ignores others from here on.
    """
    handled: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    mine = [number for number, handler in handled.items() if signal.getsignal(number) is handler]
    if not mine or threading.current_thread() is not threading.main_thread():
        yield
        return
    quiet_until = 0.0

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal quiet_until
        if time.monotonic() >= quiet_until:
            quiet_until = time.monotonic() + GRACE
            raise KeyboardInterrupt

    for number in mine:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_IGN if quiet_until else handled[number])


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

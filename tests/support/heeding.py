"""Signals in processes of tests: restore the handlers of Ctrl-C and of the time limit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from accprobe.cli.interrupts import SIGNALS


def heed_ctrl_c() -> None:
    """Restore the default of Ctrl-C: a process that a shell starts in the background ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def time_limit_can_end() -> Iterator[None]:
    """Restore the handlers of signals after a command, which ignores all signals after the first."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

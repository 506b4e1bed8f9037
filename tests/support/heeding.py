"""Processes of tests that heed Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from accprobe.cli.interrupts import SIGNALS


def heed_ctrl_c() -> None:
    """A shell has commands in the background ignore it, and a process inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def time_limit_can_end() -> Iterator[None]:
    """After a signal a command ignores further ones, as its process ends then: here they are as before."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

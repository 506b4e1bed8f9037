"""Processes of tests that heed Ctrl-C."""

from __future__ import annotations

import signal


def heed_ctrl_c() -> None:
    """A shell has commands in the background ignore it, and a process inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

"""How many cores this process may evaluate on."""

from __future__ import annotations

import os

_processes = 1


def share_cores(processes: int) -> None:
    """Leave cores to so many processes, this one among them, that evaluate at the same time."""
    global _processes
    _processes = processes


def cores() -> int:
    """Cores that this process evaluates on."""
    return max(1, len(os.sched_getaffinity(0)) // _processes)

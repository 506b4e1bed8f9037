"""Processes that are started whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from accprobe.survey.workers import interrupts_held_back


@pytest.fixture
def _interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def another_thread() -> Iterator[int]:
    """As those of a library that computes; signals of the process are given to any of its threads."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    assert thread.ident
    yield thread.ident
    ended.set()
    thread.join()


IN_ITS_FIRST = """
import multiprocessing
from accprobe.survey.workers import interrupts_held_back
told = "import signal; print(sorted(each.name for each in signal.pthread_sigmask(signal.SIG_BLOCK, ())))"
with interrupts_held_back():
    process = multiprocessing.get_context("spawn").Process(target=exec, args=(told,))
    process.start()
process.join()
"""


def test_the_first_process_that_a_program_starts_sees_no_interrupt_either() -> None:
    assert subprocess.check_output([sys.executable, "-c", IN_ITS_FIRST], text=True) == "['SIGALRM', 'SIGINT', 'SIGTERM']\n"


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_waits_whichever_thread_takes_it(another_thread: int) -> None:
    blocked: list[bytes] = []

    def start() -> None:
        with interrupts_held_back():
            signal.pthread_kill(another_thread, signal.SIGINT)
            blocked.append(
                subprocess.check_output([sys.executable, "-c", "import signal; print(signal.pthread_sigmask(0, ()))"])
            )

    with pytest.raises(KeyboardInterrupt):
        start()
    assert b"SIGINT" in blocked[0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

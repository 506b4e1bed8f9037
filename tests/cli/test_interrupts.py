"""Signals in the middle of what must not be interrupted, and processes that are started whole or not at all."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import invoke

from accprobe.build.atomic import SIGNALS
from accprobe.cli import interrupts
from accprobe.cli.interrupts import GRACE, TimeLimitReached, interruptible, time_limit
from accprobe.cli.reports import save_reports
from accprobe.report.report import Report
from accprobe.survey.workers import interrupts_held_back


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_signal_interrupts_and_those_soon_after_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        later = time.monotonic() + GRACE
        monkeypatch.setattr(time, "monotonic", lambda: later)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


def test_a_signal_during_an_import_waits_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that makes an error of its own of a KeyboardInterrupt, as numpy does, is imported whole."""
    (tmp_path / "whole_or_not.py").write_text(
        "import signal, time\ntry:\n    signal.raise_signal(signal.SIGINT)\n    time.sleep(0.1)\n"
        "except KeyboardInterrupt:\n    raise ImportError\nIS_WHOLE = True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    whole = []

    def work() -> None:
        whole.append(importlib.import_module("whole_or_not").IS_WHOLE)
        time.sleep(5)

    with interruptible(), pytest.raises(KeyboardInterrupt):
        work()
    assert whole == [True]


def test_a_signal_while_a_pool_starts_a_thread_waits_until_the_pool_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nobody ends the thread, and the process waits for it without an end."""
    start, pool = threading.Thread.start, ThreadPoolExecutor(1)

    def signalled(thread: threading.Thread) -> None:
        monkeypatch.undo()
        start(thread)
        signal.raise_signal(signal.SIGINT)

    def work() -> None:
        pool.submit(int)
        time.sleep(5)

    monkeypatch.setattr(threading.Thread, "start", signalled)
    with interruptible(), pytest.raises(KeyboardInterrupt):
        work()
    assert len(pool._threads) == 1
    pool.shutdown()


def test_an_import_that_does_not_end_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "endless.py").write_text("import signal, time\nsignal.raise_signal(signal.SIGINT)\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(interrupts, "GRACE", 0.1)
    with interruptible(), pytest.raises(KeyboardInterrupt):
        importlib.import_module("endless")


SIGNALLED = """import _signal, sys
class Signals:
    def find_spec(self, name, *_):
        if name == {name!r}: _signal.raise_signal(_signal.SIGINT)
sys.meta_path.insert(0, Signals())
import accprobe.__main__
accprobe.__main__.main()
"""


@pytest.mark.parametrize(("name", "status"), [("signal", 130), ("atexit", -signal.SIGINT), ("accprobe.cli", -signal.SIGINT)])
def test_a_signal_before_the_command_line_is_imported_ends_it_without_a_word(name: str, status: int) -> None:
    program = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path}\n" + SIGNALLED.format(name=name)]
    done = subprocess.run(program, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


def test_a_report_is_written_whole_though_a_signal_comes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, path = Report.load("h200"), tmp_path / "r.json"
    written = Report.dumps

    def interrupted(self: Report) -> str:
        signal.raise_signal(signal.SIGINT)
        return written(self)

    monkeypatch.setattr(Report, "dumps", interrupted)
    with pytest.raises(KeyboardInterrupt), save_reports(path) as save:
        save(report)
    assert Report.load(path) == report


def test_a_time_limit_stops_the_block_alone_and_names_its_seconds() -> None:
    with interruptible():
        with time_limit(0.05):
            pass
        time.sleep(0.1)
        with pytest.raises(TimeLimitReached, match=r"stopped after 0.05 s \(--time-limit\)"), time_limit(0.05):
            time.sleep(5)
        with time_limit(None):
            pass


def test_ctrl_c_keeps_the_causes_of_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from accprobe.trace import causes

    (tmp_path / "program.py").write_text(
        "import torch\nx = torch.ones(4)\ndef f(): return x + 1, x + 2\ndef g(): return x + 3, x + 4\n"
    )
    explain, counted = causes._cause, []

    def interrupted(*arguments: object) -> object:
        counted.append(arguments)
        if len(counted) > 1:
            raise KeyboardInterrupt
        return explain(*arguments)

    monkeypatch.setattr(causes, "_cause", interrupted)
    file = tmp_path / "found.json"
    sides = [f"{tmp_path / 'program.py'}:{name}" for name in "fg"]
    done = invoke("trace", "run", sides[0], "--versus", sides[1], "-o", str(file))
    assert done.exit_code == 130
    assert "1 of 2 origins explained" in done.stderr
    kinds = [origin["cause"]["kind"] for origin in json.loads(file.read_text())["origins"]]
    assert kinds == ["argument", "unknown"]


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

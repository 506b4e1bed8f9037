"""Signals in the middle of what must not be interrupted."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accprobe.cli.interrupts import GRACE, SIGNALS, interruptible, uninterrupted
from accprobe.cli.output import saving
from accprobe.report.report import Report


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


def test_without_a_signal_the_handlers_are_as_before() -> None:
    with interruptible():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_is_heeded_afterwards() -> None:
    done = []

    @uninterrupted()
    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rest"]


def test_a_report_is_written_whole_though_a_signal_comes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, path = Report.load("h200"), tmp_path / "r.json"
    written = Report.dumps

    def interrupted(self: Report) -> str:
        signal.raise_signal(signal.SIGINT)
        return written(self)

    monkeypatch.setattr(Report, "dumps", interrupted)
    with pytest.raises(KeyboardInterrupt), saving(path) as save:
        save(report)
    assert Report.load(path) == report

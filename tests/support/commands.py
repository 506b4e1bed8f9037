"""Commands of accprobe, run in this process, and the handlers of signals that they change."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from click.testing import CliRunner, Result

from accprobe.build.atomic import SIGNALS
from accprobe.cli import main


def invoke(*words: str, columns: int = 120, env: Mapping[str, str] | None = None, stdin: str | bytes | None = None) -> Result:
    """Run a command on a terminal of that width."""
    return CliRunner(env={"COLUMNS": str(columns)} | dict(env or {})).invoke(main, words, input=stdin)


def assert_refused(result: Result, sentence: str) -> None:
    """Assert that nothing was printed but one line with this sentence on standard error, and the exit status is 2."""
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


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

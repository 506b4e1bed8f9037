"""Commands of accprobe, run in this process."""

from __future__ import annotations

from collections.abc import Mapping

from click.testing import CliRunner, Result

from accprobe.cli import main


def invoke(*words: str, columns: int = 120, env: Mapping[str, str] | None = None, stdin: str | bytes | None = None) -> Result:
    """Run a command on a terminal of that width."""
    return CliRunner(env={"COLUMNS": str(columns)} | dict(env or {})).invoke(main, words, input=stdin)


def assert_refused(result: Result, sentence: str) -> None:
    """Assert that nothing was printed but one line with this sentence on standard error, and the exit status is 2."""
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1

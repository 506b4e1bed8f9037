"""The command line: `main` is the click group. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import click

from accprobe import __version__
from accprobe.cli.budget import budget_command, tolerance_command
from accprobe.cli.explain import explain_command, predict_command
from accprobe.cli.function import function_command
from accprobe.cli.gemm import gemm_command
from accprobe.cli.health import health_command
from accprobe.cli.interrupts import TimeLimitReached, interruptible
from accprobe.cli.inventory import doctor_command, list_command
from accprobe.cli.output import COULD_NOT, INTERRUPTED, TIMED_OUT, Commands, print_message
from accprobe.cli.reduce import reduce_command
from accprobe.cli.run import run_command
from accprobe.cli.sass import sass_command
from accprobe.cli.show import check_command, diff_command, show_command
from accprobe.cli.streams import OutputLost
from accprobe.cli.sweep import sweep_command
from accprobe.cli.trace import trace_command
from accprobe.cli.verify import verify_command
from accprobe.errors import AccprobeError


class _Main(Commands):
    """Prints errors of users, devices and files as one sentence on standard error; defects keep their traceback."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        try:
            with interruptible():
                try:
                    sys.exit(super().main(args, prog_name, *rest, **extra))
                finally:
                    sys.stdout.flush()
        except click.ClickException as e:
            _fail(e.format_message(), e.exit_code)
        except (click.Abort, KeyboardInterrupt) as e:
            stop = e.__cause__ if isinstance(e, click.Abort) else e
            if isinstance(stop, TimeLimitReached):
                _fail(f"{stop}: nothing was measured yet", TIMED_OUT)
            _fail("interrupted", INTERRUPTED)
        except OutputLost as e:
            if e.reader_left:
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a shell sees the status of other programs in a pipe
                signal.raise_signal(signal.SIGPIPE)
            _fail(str(e), COULD_NOT)
        except AccprobeError as e:
            _fail(str(e), COULD_NOT)
        except MemoryError as e:
            _fail(f"not enough memory: {e}".removesuffix(": "), COULD_NOT)
        except OSError as e:
            temporary = "" if e.filename else f"; temporary files are in {tempfile.gettempdir()} (set TMPDIR to change it)"
            _fail(f"{e.filename or 'a file'} cannot be read or written: {e.strerror or e}{temporary}", COULD_NOT)


def _fail(sentence: str, status: int) -> None:
    print_message(sentence)
    sys.exit(status)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version, and the commit of a git checkout."""
    if not wanted or ctx.resilient_parsing:
        return
    from accprobe.build.checkout import commit

    found = commit()
    click.echo(f"accprobe {__version__}{f' ({found})' if found else ''}")
    ctx.exit()


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version and exit."
)
def main() -> None:
    """Find why two PyTorch runs differ, and measure the arithmetic of GPU instructions and libraries, bit for bit.

    \b
    Examples:
      accprobe run -o report.json
      accprobe trace run model.py:forward --batch 1,8
    """


_COMMANDS = (
    run_command,
    sweep_command,
    gemm_command,
    reduce_command,
    function_command,
    trace_command,
    budget_command,
    tolerance_command,
    verify_command,
    health_command,
    sass_command,
    show_command,
    diff_command,
    check_command,
    explain_command,
    predict_command,
    list_command,
    doctor_command,
)
for command in _COMMANDS:
    command.short_help = (command.help or "").partition("\n\n")[0]  # click truncates its own
    main.add_command(command)

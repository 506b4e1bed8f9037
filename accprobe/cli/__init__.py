"""The command line: `main` is the click group, each other module one command.

Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from accprobe import __version__
from accprobe.cli.check import check
from accprobe.cli.diff import diff
from accprobe.cli.doctor import doctor
from accprobe.cli.list import list_
from accprobe.cli.output import tell, terminable
from accprobe.cli.run import COULD_NOT, INTERRUPTED, run
from accprobe.cli.sass import sass
from accprobe.cli.show import show
from accprobe.cli.sweep import sweep
from accprobe.cli.verify import verify
from accprobe.errors import AccprobeError, nearest


class _Main(click.Group):
    """Every error is one sentence on standard error."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        try:
            with terminable():
                sys.exit(super().main(args, prog_name, *rest, **extra))
        except click.ClickException as e:
            _fail(e.format_message(), e.exit_code)
        except click.Abort:
            _fail("interrupted", INTERRUPTED)
        except AccprobeError as e:
            _fail(str(e), COULD_NOT)
        except BrokenPipeError:
            raise
        except OSError as e:
            _fail(f"the output cannot be written: {e.strerror}", COULD_NOT)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(f"there is no command '{name}'; {nearest(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def _fail(sentence: str, status: int) -> None:
    tell(sentence)
    sys.exit(status)


@click.group(cls=_Main, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="accprobe", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Measure, bit for bit, what arithmetic GPU matrix instructions really do.

    \b
    Example:
      accprobe run -o report.json
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(COULD_NOT)


for command in (run, sweep, verify, sass, show, diff, check, list_, doctor):
    main.add_command(command)

"""Options and output that commands share: counts, lists and files on the command line, messages, and where results go."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from accprobe.errors import AccprobeError, nearest, plain

if TYPE_CHECKING:
    from accprobe.render.document import Element

DIFFERS = 1
"""The exit status of a finding: not confirmed, a mismatch, a difference, a requirement that failed."""

COULD_NOT = 2
"""The exit status of a command that could not do its work."""

INTERRUPTED = 130
"""The exit status after a signal."""

TIMED_OUT = DIFFERS
"""The exit status after --time-limit: not everything is confirmed."""

LARGEST_COUNT = 10**15
"""Dot products that a GPU compares in half a day."""

STDOUT = Path("-")

FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
"""The type of an option that names a file to write; - is standard output."""

ENDINGS = {"json": ".json", "html": ".html", "csv": ".csv", "markdown": ".md", "junit": ".xml", "prometheus": ".prom"}
"""Endings of files by their format."""

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


class Commands(click.Group):
    """A group that names the nearest of its commands, and takes an option once unless it is repeatable."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(COULD_NOT)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            advice = f"see `{ctx.command_path} --help`" if name == "help" else nearest(name, self.list_commands(ctx))
            raise click.UsageError(f"there is no command '{name}'; {advice}")
        found, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            inner = click.Context(command, parent=ctx, info_name=found, **command.context_settings)
            order = command.make_parser(inner).parse_args(list(rest))[2]
            once = (each for each in order if isinstance(each, click.Option) and not (each.multiple or each.is_flag))
            if twice := next((each for each in once if order.count(each) > 1), None):
                raise click.UsageError(f"{twice.opts[-1]} is given twice: give it once")
        return found, command, rest


def count(word: str | int) -> int:
    """Return a positive whole number, also of 1e10 or 10_000_000. Raises BadParameter."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if number < 1 or not number.is_integer():
        raise click.BadParameter(f"'{word}' is not a positive whole number, such as 1e9 or 10_000_000")
    if number > LARGEST_COUNT:
        raise click.BadParameter(f"'{word}' is too large; give at most {LARGEST_COUNT:.0e}")
    return int(number)


def count_or_none(word: str) -> int | None:
    return None if word == "none" else count(word)


def several(read: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return a reader of values separated by commas, each once."""

    def values(text: str) -> tuple[T, ...]:
        words = filter(None, (word.strip() for word in text.split(",")))
        if found := tuple(dict.fromkeys(map(read, words))):
            return found
        raise click.BadParameter("no value is given")

    return values


def seed_option(command: Command) -> Command:
    return click.option(
        "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Seed of the random operands."
    )(command)


def format_option(*forms: str) -> Callable[[Command], Command]:
    """Add --format, which is `terminal` unless one of `forms` is chosen."""
    choice = click.Choice(["terminal", *forms])
    return click.option("--format", "form", type=choice, default="terminal", show_default=True, help="Output format.")


def output_option(help_text: str) -> Callable[[Command], Command]:
    return click.option("-o", "--output", type=FILE, metavar="FILE", help=f"{help_text} (`-` for stdout).")


def output_options(*forms: str, is_shown: bool = True) -> Callable[[Command], Command]:
    """Add --format and -o, whose values the command gets as one argument `to`. is_shown: as for `Output`."""
    endings = {ENDINGS[form]: form for form in forms}

    def decorated(command: Command) -> Command:
        @wraps(command)
        def with_output(*, form: str, output: Path | None, **options: Any) -> None:
            command(to=Output.of(form, output, endings, is_shown), **options)

        found: Any = output_option("Output file, in the format of its ending, JSON by default")(with_output)
        with_format: Command = format_option(*forms)(found)
        return with_format

    return decorated


@dataclass(frozen=True)
class Output:
    """The destination of a result. form: the format of --format; file: of -o, written in the format `in_file`. is_shown:
    whether the terminal also shows a result that -o writes to a file.
    """

    form: str
    file: Path | None
    in_file: str
    is_shown: bool = True

    @classmethod
    def of(cls, form: str, file: Path | None, endings: Mapping[str, str], is_shown: bool = True) -> Output:
        """endings: formats by the ending of a file's name. Raises UsageError for another format's ending, AccprobeError where
        the file cannot be written.
        """
        in_file = form_of_file(file, endings, form) if file else form
        if file and file != STDOUT:
            check_writable(file)
        return cls(form, file, in_file, is_shown)

    def deliver(self, shown: Callable[[], Iterable[Element]], text: Callable[[str], str], differs: bool = False) -> None:
        """Print the result, and write it to the file.

        shown: for a terminal; text: in another format. differs: the result is a finding, so a failure to write the file is only
        a message.
        """
        if self.form == "terminal" and self.file != STDOUT and (self.is_shown or self.file is None):
            from accprobe.render.terminal import print_blocks

            print_blocks(shown())
        if self.form == "terminal" and self.file is None:
            return
        try:
            _write_text(plain(text(self.in_file)), self.file)
        except AccprobeError as e:
            if not differs:
                raise
            print_message(str(e))


def document_text(form: str, blocks: Iterable[Element], title: str) -> str:
    """Return blocks as Markdown, or as an HTML page of that title."""
    if form == "markdown":
        from accprobe.render.markdown import markdown_text

        return markdown_text(blocks)
    from accprobe.render.html import html_page

    return html_page(title, list(blocks))


def form_of_file(file: Path, endings: Mapping[str, str], form: str = "terminal") -> str:
    """Return the format of a file: that of --format if given, else by the ending of its name; JSON without an ending.

    Raises UsageError if the name has the ending of another format, or, without --format, an unknown one.
    """
    ending = file.suffix.lower()
    if form != "terminal":
        if ending in ENDINGS.values() and ending != ENDINGS[form]:
            raise click.UsageError(
                f"--format {form} cannot be written to {file.name}: let the name end in {ENDINGS[form]}, or leave out --format"
            )
        return form
    if ending and ending not in endings:
        *others, last = sorted(endings, key=".json".__eq__)
        known = f"{', '.join(others)}{' or ' * bool(others)}{last}"
        raise click.UsageError(f"-o cannot write {file.suffix}: let the name end in {known}, or redirect: > {file.name}")
    return endings.get(ending, "json")


def check_writable(path: Path) -> None:
    """Check before a long run that its file can be written. Raises AccprobeError."""
    if not path.parent.is_dir():
        raise AccprobeError(f"{path} cannot be written: there is no folder {path.parent}; create it: mkdir -p {path.parent}")
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        if path.exists():
            path.open("a").close()
        if path.is_file() or not path.exists():
            probe = path.resolve().with_name(f".{path.name}.check")
            probe.open("w").close()
            probe.unlink()
    except OSError as e:
        raise AccprobeError(f"{path} cannot be written: {e.strerror}") from None


def _write_text(text: str, output: Path | None) -> None:
    """Write to the file, or to standard output. Raises AccprobeError where it cannot be written."""
    from accprobe.build import atomic

    if output is None or output == STDOUT:
        write(text)
        return
    try:
        atomic.save(output, text.encode())
    except OSError as e:
        raise AccprobeError(f"{output} cannot be written: {e.strerror}") from None


def write(text: str) -> None:
    """Write to standard output in UTF-8 in every locale, as JSON and HTML require."""
    click.echo(text.encode(), nl=False)


def print_message(sentence: str) -> None:
    """Print a message on standard error; on a terminal it replaces the line of a progress bar."""
    clear_progress()
    click.echo(f"accprobe: {plain(sentence)}", err=True)


def clear_progress() -> None:
    """Clear the line of a terminal that may have a progress bar."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def list_names(items: Iterable[tuple[str, str]]) -> None:
    """Print one name per line with its remark or "": wrapped on a terminal, else after a tab."""
    if sys.stdout.isatty():
        from accprobe.render.document import List, Phrase
        from accprobe.render.terminal import print_blocks

        print_blocks([List(tuple((Phrase(name, "strong"), Phrase(f"  {remark}" if remark else "")) for name, remark in items))])
        return
    for name, remark in items:
        click.echo(f"{name}\t{remark}" if remark else name)

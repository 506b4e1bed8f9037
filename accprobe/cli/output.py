"""Options and output that commands share: counts, lists and files on the command line, messages, and where results go."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from accprobe.errors import AccprobeError, plain

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
"""The largest count that an option takes; float64 holds all counts up to it."""

FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
"""The type of an option that names a file to write; - is standard output."""

ENDINGS = {"json": ".json", "html": ".html", "csv": ".csv", "markdown": ".md", "junit": ".xml", "prometheus": ".prom"}
"""Endings of files by their format."""

Blocks = Callable[[], Iterable["Element"]]
"""Returns a document."""


class FiniteRange(click.FloatRange):
    """A range of floats without NaN, which every range of click accepts, and without infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


class Commands(click.Group):
    """A group that prints its help on standard error if no command is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(COULD_NOT)
        return super().parse_args(ctx, args)


def count(word: str | int) -> int:
    """Return a positive whole number, also of 1e10 or 10_000_000. Raises BadParameter."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if number < 1 or not number.is_integer():
        raise click.BadParameter(f"'{word}' is not a positive whole number, such as 4096 or 1e6")
    if number > LARGEST_COUNT:
        raise click.BadParameter(f"'{word}' is too large; give at most {LARGEST_COUNT:.0e}")
    return int(number)


def several(read: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return a reader of values separated by commas, each once."""

    def values(text: str) -> tuple[T, ...]:
        words = filter(None, (word.strip() for word in text.split(",")))
        if found := tuple(dict.fromkeys(map(read, words))):
            return found
        raise click.BadParameter("no value is given")

    return values


seed_option = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Seed of the random operands."
)


def format_option(*forms: str) -> Callable[[Command], Command]:
    """Add --format, which is `terminal` unless one of `forms` is chosen."""
    choice = click.Choice(["terminal", *forms])
    return click.option("--format", "form", type=choice, default="terminal", show_default=True, help="Output format.")


def output_options(
    *forms: str,
    file_help: str = "Output file, in the format of its ending; without an ending, of --format or JSON. The previous file is"
    " kept as FILE~",
) -> Callable[[Command], Command]:
    """Add --format and -o. The command gets both, and --time-limit if it has it, as one argument `to`.

    With a file, --format is of the file alone. `-o -` prints in the format of --format, or JSON.
    """
    file_option = click.option("-o", "--output", type=FILE, metavar="FILE", help=f"{file_help}; `-` is standard output.")

    def decorated(command: Command) -> Command:
        @wraps(command)
        def with_output(*, form: str, output: Path | None, time_limit: float | None = None, **options: Any) -> None:
            if output == Path("-"):
                output, form = None, "json" if form == "terminal" else form
            in_file = _form_of_file(output, form, forms) if output else ""
            if output:
                form = "terminal"
                check_writable(output)
                check_no_input(output, options.values())
            command(to=Output(form, output, in_file, time_limit), **options)

        with_file: Any = file_option(with_output)
        with_format: Command = format_option(*forms)(with_file)
        return with_format

    return decorated


@dataclass(frozen=True)
class Output:
    """The destination of a result: printed in the format `form`, and written to `file` in the format `in_file`. seconds: the
    time limit of the command.
    """

    form: str
    file: Path | None
    in_file: str
    seconds: float | None

    def deliver(
        self, blocks: Blocks, differs: bool = False, page: Blocks | None = None, title: str = "", **texts: Callable[[], str]
    ) -> None:
        """Print the result, and write it to the file.

        blocks: for a terminal and Markdown; page, title: for HTML; texts: by other format. differs: the result is a finding, so
        a failure to write the file is only a message. Raises AccprobeError.
        """
        from accprobe.build import atomic
        from accprobe.render.terminal import print_blocks

        def text(form: str) -> str:
            if form == "markdown":
                from accprobe.render.markdown import markdown_text

                return plain(markdown_text(blocks()))
            if form == "html":
                from accprobe.render.html import html_page

                return plain(html_page(title, list((page or blocks)())))
            return plain(texts[form]())

        if self.form == "terminal":
            print_blocks(blocks())
        else:
            write(text(self.form))
        if self.file is None:
            return
        try:
            atomic.keep_previous(self.file)
            atomic.save(self.file, text(self.in_file).encode())
        except OSError as e:
            sentence = f"{self.file} cannot be written: {e.strerror}"
            if not differs:
                raise AccprobeError(sentence) from None
            print_message(sentence)


def _form_of_file(file: Path, form: str, forms: Sequence[str]) -> str:
    """Return the format of a file by the ending of its name, else the chosen `form`, else JSON.

    Raises UsageError for an ending of another format than the command's or the chosen one, and for an unknown one without a
    chosen format.
    """
    endings = {ENDINGS[form]: form for form in forms}
    ending = file.suffix.lower()
    if form != "terminal" and ending not in ENDINGS.values():
        return form
    if ending and ending not in endings:
        *others, last = sorted(endings, key=".json".__eq__)
        known = f"{', '.join(others)}{' or ' * bool(others)}{last}"
        raise click.UsageError(f"-o cannot write {file.suffix}: let the name end in {known}, or redirect: > {file.name}")
    in_file = endings.get(ending, "json")
    if form not in ("terminal", in_file):
        raise click.UsageError(f"--format {form} and -o {file.name} name two formats: leave out --format")
    return in_file


def check_writable(path: Path) -> None:
    """Check before a long run that its file can be written. Raises AccprobeError."""
    if path.is_dir():
        raise AccprobeError(f"{path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise AccprobeError(f"{path} cannot be written: there is no folder {path.parent}; create it: mkdir -p {path.parent}")
    try:
        if path.exists():
            path.open("a").close()
        if path.is_file() or not path.exists():
            probe = path.resolve().with_name(f".{path.name}.check")
            probe.open("w").close()
            probe.unlink()
    except OSError as e:
        raise AccprobeError(f"{path} cannot be written: {e.strerror}") from None


def check_no_input(output: Path, values: Iterable[object]) -> None:
    """Raise AccprobeError if a command would replace one of the files that it reads. values: of its arguments and options."""
    for each in values:
        if isinstance(each, tuple):
            check_no_input(output, each)
        elif isinstance(each, str | Path) and output.is_file() and Path(each).exists() and output.samefile(each):
            raise AccprobeError(f"-o {output} is also an input: give another name")


def write(text: str) -> None:
    """Write to standard output in UTF-8 in every locale, as JSON and HTML require."""
    click.echo(text.encode(), nl=False)


def print_message(sentence: str) -> None:
    """Print a message on standard error; on a terminal it replaces the line of a progress bar."""
    clear_progress()
    click.echo(_folded(f"accprobe: {plain(sentence)}", sys.stderr), err=True)


def _folded(text: str, stream: TextIO) -> str:
    """Return a line, broken between words in the width of a terminal; elsewhere as it is, for programs that read it."""
    width = shutil.get_terminal_size().columns if stream.isatty() else sys.maxsize
    lines = textwrap.wrap(text, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) if stream.isatty() else text


def clear_progress() -> None:
    """Clear the line of a terminal that may have a progress bar."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def list_names(items: Iterable[tuple[str, str]]) -> None:
    """Print one name per line, and after a tab its remark, unless it is ""."""
    for name, remark in items:
        click.echo(_folded(f"{name}\t{remark}" if remark else name, sys.stdout))

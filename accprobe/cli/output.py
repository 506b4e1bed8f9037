"""Options and output that commands share: counts, lists and files on the command line, messages, and where results go."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from accprobe.errors import AccprobeError
from accprobe.render.plain import plain

if TYPE_CHECKING:
    from click import ParamType as ParamType

    from accprobe.render.document import Element
else:

    class ParamType(click.ParamType):
        """Click's own, with a subscript in the versions that have none."""

        def __class_getitem__(cls, converted: type) -> type:
            return cls


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

STDOUT = Path("/dev/stdout")

NOT_JSON = (".txt", ".html", ".htm", ".md", ".csv", ".tsv", ".jsonl", ".xml", ".prom", ".svg", ".pdf", ".yaml", ".yml", ".toml")
"""Endings of files in which nobody expects JSON."""

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


class PositiveCount(ParamType[int]):
    """A positive whole number, also as 1e10 or 10_000_000."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            try:
                number = int(float(value))
            except (ValueError, OverflowError):
                number = 0
            else:
                number = number if number == float(value) else 0
        if number < 1:
            self.fail(f"'{value}' is not a positive whole number, such as 1e9 or 10_000_000")
        if number > LARGEST_COUNT:
            self.fail(f"'{value}' is too large; give at most {LARGEST_COUNT:.0e}")
        return number


class OutputFile(ParamType[Path]):
    """A file to write; - is standard output, ./- a file of that name."""

    name = "file"

    def __init__(self, stdout: bool = True) -> None:
        self._stdout = stdout

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":
            self.fail("no file is named: give its name", param, ctx)
        if os.path.basename(value) in ("", ".", ".."):
            self.fail(f"'{value}' is a folder: give the name of a file", param, ctx)
        if value == "-" and not self._stdout:
            self.fail("standard output is not possible here; give a file, ./- for one of the name -", param, ctx)
        return STDOUT if value == "-" else Path(value)


def seed_option(command: Command) -> Command:
    return click.option(
        "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Seed of the random operands."
    )(command)


def format_option(*forms: str) -> Callable[[Command], Command]:
    """Add --format, which is `terminal` unless one of `forms` is chosen."""
    choice = click.Choice(["terminal", *forms])
    return click.option("--format", "form", type=choice, default="terminal", show_default=True, help="Output format.")


def output_option(help_text: str) -> Callable[[Command], Command]:
    return click.option("-o", "--output", type=OutputFile(), metavar="FILE", help=f"{help_text} (`-` for stdout).")


def values(option: str, words: str | None, read: Callable[[str], T]) -> tuple[T, ...] | None:
    """Return the comma-separated values of an option, each once. Raises UsageError that names the option."""
    if words is None:
        return None
    try:
        return tuple(dict.fromkeys(read(word.strip()) for word in words.split(",")))
    except click.BadParameter as e:
        raise click.UsageError(f"{option} {words}: {e.message}") from None


def count(word: str) -> int:
    return PositiveCount().convert(word, None, None)


def count_or_none(word: str) -> int | None:
    return None if word == "none" else count(word)


@dataclass(frozen=True)
class Output:
    """Where a result goes. form: the format that --format names; file: that of -o, which has the format `in_file`."""

    form: str
    file: Path | None
    in_file: str

    @classmethod
    def of(cls, form: str, file: Path | None, endings: Mapping[str, str]) -> Output:
        """endings: formats by the ending of a file's name. Raises UsageError for other endings, AccprobeError where the file
        cannot be written.
        """
        in_file = form_of_file(file, endings) if file and form == "terminal" else form
        if file:
            check_writable(file)
        return cls(form, file, in_file)

    def deliver(self, shown: Callable[[], Iterable[Element]], text: Callable[[str], str], differs: bool = False) -> None:
        """Print the result, and write it to the file. shown: for a terminal; text: in another format.

        differs: the result is a finding, so a file that cannot be written is a message and not the end.
        """
        if self.form == "terminal" and self.file != STDOUT:
            from accprobe.render.terminal import print_blocks

            print_blocks(shown())
        if self.form == "terminal" and self.file is None:
            return
        try:
            deliver(plain(text(self.in_file)), self.file)
        except AccprobeError as e:
            if not differs:
                raise
            tell(str(e))


def form_of_file(file: Path, endings: Mapping[str, str]) -> str:
    """Return the format that the ending of a file's name means, JSON by default. Raises UsageError for another ending."""
    ending = file.suffix.lower()
    if ending in NOT_JSON and ending not in endings:
        *others, last = (*endings, ".json")
        known = f"{', '.join(others)}{' or ' * bool(others)}{last}"
        raise click.UsageError(f"-o cannot write {file.suffix}: let the name end in {known}, or redirect: > {file.name}")
    return endings.get(ending, "json")


def report_output(output: Path | None, form: str) -> tuple[Path | None, str]:
    """Return (file, format) of a command whose -o keeps a report: `-o -` prints it as JSON. Raises UsageError."""
    if output == STDOUT:
        return None, "json"
    if output:
        form_of_file(output, {})
    return output, form


def check_writable(path: Path) -> None:
    """Check before a long run that its file can be written. Raises AccprobeError."""
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


def deliver(text: str, output: Path | None) -> None:
    """Write a text to its file, or to standard output. Raises AccprobeError where it cannot be written."""
    from accprobe.build import atomic

    if output is None or output == STDOUT:
        write(text)
        return
    try:
        atomic.save(output, text.encode())
    except OSError as e:
        raise AccprobeError(f"{output} cannot be written: {e.strerror}") from None


def write(text: str) -> None:
    """Write to standard output in UTF-8 whatever the locale, as JSON and HTML must be."""
    click.echo(text.encode(), nl=False)


def tell(sentence: str) -> None:
    """Print a message on standard error; on a terminal it replaces the line of a progress bar."""
    clear_progress()
    click.echo(f"accprobe: {plain(sentence)}", err=True)


def clear_progress() -> None:
    """Clear the line of a terminal that may have a progress bar."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def list_names(items: Iterable[tuple[str, str]]) -> None:
    """Print a name a line with its remark or "": wrapped on a terminal, else after a tab."""
    if sys.stdout.isatty():
        from accprobe.render.document import List, Phrase
        from accprobe.render.terminal import print_blocks

        print_blocks([List(tuple((Phrase(name, "strong"), Phrase(f"  {remark}" if remark else "")) for name, remark in items))])
        return
    for name, remark in items:
        click.echo(f"{name}\t{remark}" if remark else name)

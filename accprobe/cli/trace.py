"""`accprobe trace`: which operation makes two runs of a torch program differ, and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from accprobe.build.atomic import uninterrupted
from accprobe.cli.interrupts import exit_interrupted
from accprobe.cli.output import DIFFERS, Commands, Output, output_options, print_message
from accprobe.cli.streams import libraries_on_stderr
from accprobe.errors import AccprobeError
from accprobe.render.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.trace.both import ProgramRun
    from accprobe.trace.causes import OnOrigin
    from accprobe.trace.compare import TraceComparison

T = TypeVar("T")


@click.group("trace", cls=Commands)
def trace_command() -> None:
    """Find the torch operation that makes two runs differ, and why.

    Use `trace run` to compare two functions, or one function with two batch sizes, types, flags or compilers. To compare
    scripts, machines or versions, record each run with `trace record`, then use `trace compare`.

    Each torch operation is compared by 128-bit hashes of its inputs and outputs. An origin is an operation with equal
    inputs and different outputs, or an input that differs. Its cause can be another argument, a cast, dropout, or split-K.
    Operations that other Python threads call are not recorded.

    Needs: torch 2.10 or later; `compare` needs nothing, and torch for saved operands.

    Exit status of `run` and `compare`: 0 if the runs are equal, 1 if they differ, 2 for an error, 130 if interrupted.

    \b
    Examples:
      accprobe trace run model.py:forward --batch 1,8
      accprobe trace compare trace_h100 trace_h200
    """


_MAP_HELP = (
    "Part of each tensor to compare. batch=1:8: the first sequence of 1 and of 8. rows=16: the first 16 rows. token=last: the"
    " last token. shard=0/2: A is not sharded, B is rank 0 of 2; the first half of A's tensors, along any dimension."
)


@trace_command.command("record", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-o", "output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Folder to write; required."
)
@click.option(
    "--map",
    "mapping",
    default="",
    metavar="batch=8|…",
    help="Part of each tensor to hash too. batch=8: the first of 8 sequences. rows=16: the first 16 rows. token=last: the last"
    " token. shard=0/2: the first half along each dimension, to compare with rank 0 of 2.",
)
@click.option(
    "--save",
    multiple=True,
    metavar="GLOB",
    help="Save the operands of operations: a glob of module paths or names (layers.0.*, aten.mm), or the number of an"
    " operation in trace.jsonl. Repeatable.",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    metavar="COUNT",
    help="Stop after COUNT optimizer steps, or calls of the model if there is no optimizer.",
)
@click.option("--limit", type=click.IntRange(1), metavar="COUNT", help="Maximum number of operations.")
@click.option("--kernels", is_flag=True, help="Record the names of kernels; slow.")
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def record_command(
    output: Path | None, save: tuple[str, ...], script: Path, arguments: tuple[str, ...], **options: Any
) -> None:
    """Run SCRIPT.py and record its torch operations.

    The folder has names, shapes, arguments and hashes of the operations: forward, backward and optimizer. It also has the
    operands of the operations that --save selects. Options stand before SCRIPT.py; its own arguments follow it. An earlier
    trace in the folder is kept: its files get the ending ~.

    Needs: torch 2.10 or later.

    Exit status 0: recorded. 2: the script failed or called no torch operation. 130: interrupted.

    \b
    Example:
      accprobe trace record -o trace_a --save 'layers.0.*' generate.py --batch 8
    """
    from accprobe.report.words import so_many
    from accprobe.trace.folders import matches, record_script
    from accprobe.trace.records import OPERATION_FILE

    if output is None:
        raise click.UsageError(f"no folder is given; for example: accprobe trace record -o trace_a {script}")
    try:
        done = record_script(script, arguments, output, save=save, **options)
    except KeyboardInterrupt:
        print_message(f"operations that ran before are in {output}")
        raise
    count = sum(each.name != "return" for each in done.operations)
    if not count:
        stays = f"; the earlier trace in {output} stays" if (output / OPERATION_FILE).exists() else ""
        raise AccprobeError(f"{script} called no operation of torch: nothing is recorded{stays}")
    if options["kernels"] and not any(each.kernels for each in done.operations):
        print_message("no kernel names are recorded: no operation ran on a GPU")
    print_message(f"{so_many(count, 'operation')} in {output}{f'; {done.stopped}' if done.stopped else ''}")
    if unmatched := [each for each in save if not any(matches(each, done.operations[number]) for number in done.kept)]:
        selectable = [x for x in done.operations if not x.name.startswith(("return", "triton."))]
        names = sorted({each.module or each.packet for each in selectable})
        recorded = ", ".join(names[:10]) + (f" and {len(names) - 10} others" if len(names) > 10 else "")
        print_message(f"no operation matches --save {' '.join(unmatched)}: its operands are not saved; recorded: {recorded}")
    if done.kept:
        print_message(f"operands of {so_many(len(done.kept), 'operation')} saved")


@trace_command.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--map", "mapping", default="", metavar="batch=1:8|…", help=_MAP_HELP)
@output_options("json", "html", "markdown", "junit")
def compare_command(a: Path, b: Path, mapping: str, to: Output) -> None:
    """Compare two recorded traces, or two dumps of another tool.

    A and B are folders of `trace record`. Many causes follow from the records alone. If a cause needs operands, its line names
    the --save option to record with.

    A and B can also be dumps: rank_N_activations.log of torchtitan, a folder of SGLang's dumper, or the debug_string() of
    torch's DebugMode with hashes. They have no operands, so only the first difference is located.

    Needs: nothing; torch 2.10 or later for saved operands.

    Exit status 0: equal. 1: different. 2: error. 130: interrupted.

    \b
    Example:
      accprobe trace compare trace_h100 trace_h200
    """
    from accprobe.trace.folders import compare_folders

    _explained(lambda on_origin: compare_folders(a, b, mapping, on_origin), to)


def _two(read: Callable[[str], T]) -> Callable[[str], tuple[T, T]]:
    """Return a reader of "A,B", a value for each side."""

    def values(text: str) -> tuple[T, T]:
        a, *rest = (word.strip() for word in text.split(","))
        if len(rest) != 1 or not all((a, *rest)):
            raise click.BadParameter(f"'{text}' is not two values with a comma between")
        return read(a), read(rest[0])

    return values


def _dtype(text: str) -> Any:
    from accprobe.trace.recorder import check_torch

    check_torch()
    import torch

    found = getattr(torch, text, None)
    if not isinstance(found, torch.dtype):
        raise click.BadParameter(f"torch has no type '{text}': give one such as bfloat16 or float32")
    return found


def _flag(text: str) -> tuple[str, tuple[Any, Any]]:
    """Return the name and the values of "NAME=A,B"."""
    from accprobe.callables.options import parse_value

    name, equals, values = text.partition("=")
    if not equals:
        raise click.BadParameter(f"give NAME=A,B, such as torch.backends.cuda.matmul.allow_tf32=True,False, not '{text}'")
    return name, _two(parse_value)(values)


@trace_command.command("run")
@click.argument("function")
@click.option("--versus", metavar="FUNCTION", help="Function of the second run; FUNCTION by default.")
@click.option(
    "--batch",
    type=_two(click.IntRange(1, 999_999)),
    metavar="N,N",
    help="Two values of the argument `batch`; the first sequence of each is compared.",
)
@click.option(
    "--compile",
    "backends",
    type=_two(str),
    metavar="A,B",
    help="Backend of torch.compile of each side, such as eager,inductor.",
)
@click.option("--dtype", type=_two(_dtype), metavar="A,B", help="Two values of the argument `dtype`, such as bfloat16,float32.")
@click.option(
    "--flag",
    "flags",
    type=_flag,
    multiple=True,
    metavar="FLAG=A,B",
    help="Two values of an attribute of torch, given by its full name. Repeatable.",
)
@click.option("--map", "mapping", default="", metavar="batch=1:8|…", help=_MAP_HELP)
@click.option("--fix", is_flag=True, help="Try changes to the program that make each origin equal, and print those that work.")
@output_options("json", "html", "markdown", "junit")
def run_command(function: str, mapping: str, fix: bool, to: Output, **sides: Any) -> None:
    """Compare two runs of a function, and explain the differences.

    FUNCTION is FILE.py:NAME, called without arguments, or with `batch` or `dtype` as keywords. The file is imported for each
    run, with the same random seed. A and B are the two runs. Without an option that makes them differ, both runs
    are the same: a difference is then an operation that does not repeat. If the runs differ, both run again to keep the
    operands of the origins. Ctrl-C then keeps the causes found so far.

    Needs: torch 2.10 or later.

    Exit status 0: equal. 1: different. 2: error. 130: interrupted.

    \b
    Examples:
      accprobe trace run model.py:forward --batch 1,8 --fix
      accprobe trace run model.py:forward --flag torch.backends.cuda.matmul.allow_tf32=True,False
      accprobe trace run model.py:eager --versus model.py:fused
    """
    from accprobe.trace.both import run_both

    if batch := sides["batch"]:
        if mapping:
            raise click.UsageError("--batch compares the first sequence of both sides: leave out --map")
        mapping = f"batch={batch[0]}:{batch[1]}"
    a, b = _sides(function, **sides)
    _explained(lambda on_origin: run_both(a, b, mapping, fix, on_origin), to)


def _sides(
    function: str,
    versus: str | None,
    batch: tuple[int, int] | None,
    backends: tuple[str, str] | None,
    dtype: tuple[Any, Any] | None,
    flags: Sequence[tuple[str, tuple[Any, Any]]],
) -> list[ProgramRun]:
    """Return the configuration of each side."""
    from accprobe.trace.both import ProgramRun

    pairs = {name: pair for name, pair in (("batch", batch), ("dtype", dtype)) if pair}
    return [
        ProgramRun(
            name,
            keywords={each: pair[side] for each, pair in pairs.items()},
            backend=backends[side] if backends else "",
            flags={flag: values[side] for flag, values in flags},
        )
        for side, name in enumerate((function, versus or function))
    ]


def _explained(explain: Callable[[OnOrigin], TraceComparison], out: Output) -> None:
    """Print or write the findings, and exit with the status. Ctrl-C keeps the causes found so far."""
    from accprobe.render.subjects.trace import trace_blocks, trace_page
    from accprobe.report.words import so_many
    from accprobe.trace.summary import findings_json

    latest: list[TraceComparison] = []
    interrupted = False
    with libraries_on_stderr(), progress_bar("recording both sides, and comparing") as show:

        def on_origin(found: TraceComparison, number: int) -> None:
            latest[:] = [found]
            show(number, len(found.origins), f"explaining origin {found.origins[number].operation}")

        try:
            latest[:] = [explain(on_origin)]
        except KeyboardInterrupt:
            interrupted = True
    if not latest:
        exit_interrupted("nothing is kept, because the comparison was not complete")
    found = latest[0]
    differs = not found.equal
    try:
        with uninterrupted():
            out.deliver(
                lambda: trace_blocks(found),
                differs,
                page=lambda: trace_page(found),
                title="trace",
                json=lambda: json.dumps(findings_json(found), indent=2) + "\n",
                junit=lambda: _junit(found),
            )
    except KeyboardInterrupt:
        interrupted = True
    if interrupted:
        explained = f"{found.explained} of {so_many(len(found.origins), 'origin')} explained"
        exit_interrupted(explained if found.origins else "the comparison is complete and printed")
    if differs:
        sys.exit(DIFFERS)


def _junit(found: TraceComparison) -> str:
    from accprobe.render.monitoring import trace_junit

    return trace_junit(found)

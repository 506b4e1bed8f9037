"""`accprobe run`: characterise, verify and report every instruction of a device."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accprobe.cli.count import PositiveCount
from accprobe.cli.interrupts import time_limit_option
from accprobe.cli.measuring import Wanted, measured_report, report_holds
from accprobe.cli.output import OutputFile, named_form, say_what_is_unseen, tell, to_stdout
from accprobe.cli.run_each import run_each
from accprobe.cli.run_fleet import run_fleet
from accprobe.errors import AccprobeError

if TYPE_CHECKING:
    from accprobe.isa.instructions import Instruction
    from accprobe.sass.lowering import Lowering
    from accprobe.survey.run import Profiler

NOT_CONFIRMED = 1
COULD_NOT = 2


@click.command("run")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="auto|gpu|all|cuda:N|cpu|sim:NAME|replay:FILE",
    help="What to measure.",
)
@click.option("--select", multiple=True, metavar="GLOB", help="Only instructions whose name matches; may be given again.")
@click.option("--all-n", is_flag=True, help="Every N that a wgmma has; those that are alike are one row.")
@click.option("--dots", type=PositiveCount(), default=16384, show_default=True, help="Random dot products to verify each on.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random operands.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes.  [default: one a core, at most 8]")
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    metavar="FILE",
    help="Keep the report here, as rows are finished; rows of the same device, accprobe and seed stay, and the file is kept"
    " as FILE~ too. - is standard output.",
)
@click.option("--ncu", is_flag=True, help="Have the profiler count what is executed, too (Nsight Compute; root, mostly).")
@click.option(
    "--record",
    type=OutputFile(stdout=False),
    metavar="FILE",
    help="Keep every exchange with the device here; `--device replay:FILE` plays it back where there is no GPU.",
)
@click.option("--ray", metavar="auto|HOST:PORT", help="Every GPU of this Ray cluster; sim: devices stand in for them.")
@click.option(
    "--patience",
    type=click.FloatRange(0, min_open=True),
    default=1200,
    show_default=True,
    metavar="SECONDS",
    help="With --ray: a GPU hangs of which no instruction is finished for so long.",
)
@time_limit_option
@click.option("--format", "form", type=click.Choice(["terminal", "json"]), default="terminal", show_default=True)
@click.option("--all", "expand", is_flag=True, help="One line an instruction, like ones too.")
@click.option("--with-uuid", is_flag=True, help="Put the GPU's UUID in the report, which names the board.")
def run_command(
    device: str,
    select: tuple[str, ...],
    all_n: bool,
    dots: int,
    seed: int,
    jobs: int | None,
    output: Path | None,
    record: Path | None,
    ncu: bool,
    ray: str | None,
    patience: float,
    time_limit: float | None,
    form: str,
    expand: bool,
    with_uuid: bool,
) -> None:
    """Measure, bit for bit, every matrix instruction of a GPU or CPU.

    Each is characterised, the model that was found is verified on fresh random dot products, and rivals try to refute it.
    Instructions that have no probe are skipped, and do not count. What was measured before an interruption is in the file
    that -o names.

    Needs: extra cuda13 or cuda12 on a GPU; nothing for sim: and replay: devices. With --ray: extra fleet, and on every node the
    same accprobe.

    Without a GPU, `--device auto` measures the processor, where it has dot products of its own, and names a recorded GPU beside
    it; otherwise it runs published models under a banner: their rows are simulated, never confirmed. In CI, ask for
    `--device gpu`, which fails instead.

    With `--device all`, or several with commas between, one GPU of each kind is measured, the first, and the others of that
    kind are verified against its report. Of several kinds, -o FILE becomes FILE with each kind's name in it. So it is with
    --ray, of all nodes of a cluster at once; a node or a GPU that dies or hangs is named, the others go on.

    Exit status: 0 every instruction is confirmed, or simulated with nothing against it, 1 some is not or --time-limit ended the
    run, 2 nothing could be measured, 130 interrupted by Ctrl-C or SIGTERM.

    \b
    Example:
      accprobe run --device cuda:0 --select 'wgmma.*e4m3*' -o report.json
    """
    output, form = to_stdout(output, form)
    if output:
        named_form(output, {})
    if record and output and record.resolve() == output.resolve():
        raise click.UsageError("-o and --record name the same file; give two")
    wanted = Wanted(select, dots, seed, jobs, with_uuid, form, expand, all_n, time_limit)
    say_what_is_unseen(device)
    if ray:
        if ncu or record or time_limit:
            raise click.UsageError("--ncu, --record and --time-limit are for one device; leave out --ray")
        good = run_fleet(ray, "all" if device == "auto" else device, wanted, patience, output)
    elif device == "all" or "," in device:
        if ncu or record or time_limit:
            raise click.UsageError("--ncu, --record and --time-limit are for one device; name it")
        good = run_each(device, wanted, output)
    else:
        good = report_holds(measured_report(device, wanted, output, _profiler(device) if ncu else None, record))
    if not good:
        sys.exit(NOT_CONFIRMED)


def _profiler(device: str) -> Profiler:
    """Asks ncu what runs on the device; where it cannot tell, says why: the disassembly stands. Raises AccprobeError."""
    from accprobe.build.driver import why_no_gpu
    from accprobe.devices import CPU, FIRST_GPU, WORDS_ALONE

    if device.startswith("sim:"):
        raise AccprobeError("--ncu needs a GPU: a simulated device executes nothing")
    if device == CPU:
        raise AccprobeError("--ncu needs a GPU: what a processor executes is read from its machine code")
    if device in WORDS_ALONE and (reason := why_no_gpu()):
        raise AccprobeError(f"--ncu needs a GPU: {reason}")

    def query(insts: Sequence[Instruction]) -> Mapping[str, Lowering]:
        from accprobe.audit.ncu import lowerings

        try:
            return lowerings(FIRST_GPU if device in WORDS_ALONE else device, insts)
        except AccprobeError as e:
            tell(f"nothing is counted, the disassembly stands: {e}")
            return {}

    return query

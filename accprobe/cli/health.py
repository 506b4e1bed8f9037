"""`accprobe health`: does every GPU of this host, or of a Ray cluster, compute what its model says?"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from accprobe.cli.output import INTERRUPTED, STDOUT, OutputFile, check_writable, deliver, named_form, tell
from accprobe.cli.run import COULD_NOT
from accprobe.cli.verify import MISMATCH
from accprobe.errors import AccprobeError
from accprobe.health.plan import HANG_SECONDS, SECONDS, CheckPlan, HealthLevel

if TYPE_CHECKING:
    from accprobe.health.outcome import GpuOutcome, HealthOutcome, OnOutcome

LEAST_MINUTES = 0.001
MOST_MINUTES = 60 * 24 * 7

_FORMS = {".xml": "junit", ".prom": "prometheus"}
"""By how a file's name ends; JSON otherwise."""


@click.command("health")
@click.option("--device", "devices", default="all", show_default=True, metavar="all|cuda:N,…|sim:NAME,…", help="What to check.")
@click.option(
    "--level",
    type=click.Choice(get_args(HealthLevel)),
    default="standard",
    show_default=True,
    help="How long: 20 seconds, 5 minutes, an hour.",
)
@click.option("--minutes", type=click.FloatRange(LEAST_MINUTES, MOST_MINUTES), metavar="N", help="That long instead.")
@click.option(
    "--like",
    metavar="REPORT|sim:NAME",
    help="Whose models say what is right.  [default: those recorded on that kind of GPU]",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the operands.")
@click.option("--with-serial", is_flag=True, help="Tell the boards' serial numbers too.")
@click.option(
    "--ray",
    metavar="auto|HOST:PORT",
    help="Every GPU of this Ray cluster instead of this host's; sim: and faulty: devices stand in for them.",
)
@click.option(
    "--patience",
    type=click.FloatRange(0, min_open=True),
    default=HANG_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="With --ray: a GPU hangs that tells nothing for so long.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="With --ray: how often a GPU is begun again whose process died.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "json", "junit", "prometheus"]),
    default="terminal",
    show_default=True,
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    metavar="FILE",
    help="Write the outcome here; where --format does not say, .xml is JUnit, .prom Prometheus, others JSON. - is stdout.",
)
def health_command(
    devices: str,
    level: HealthLevel,
    minutes: float | None,
    like: str | None,
    seed: int,
    with_serial: bool,
    ray: str | None,
    patience: float,
    retries: int,
    form: str,
    output: Path | None,
) -> None:
    """Check whether GPUs compute what their models say, word for word.

    All at once, each matrix unit of every SM in turn, at full power; words that differ are named with the GPU, the SM and the
    operands. What was seen before an interruption is told.

    With --ray, of all nodes of a cluster at once: a node or a GPU that dies or hangs is named, the others go on.

    Needs: extra cuda13 or cuda12 on a GPU; nothing for sim: devices. With --ray: extra fleet, and on every node
    the same accprobe.

    Exit status: 0 no word differs (units that did not reach full load are named), 1 some does, 2 a GPU could not be checked,
    130 interrupted with nothing that differs.

    \b
    Examples:
      accprobe health --level quick
      accprobe health --device cuda:0,cuda:2 --minutes 30 --format prometheus -o accprobe.prom
      accprobe health --device sim:h100,faulty:h100 --minutes 0.1
      accprobe health --ray auto --level quick -o health.json
    """
    if minutes is not None and math.isnan(minutes):
        raise click.BadParameter("nan is no time; give a number of minutes.", param_hint="'--minutes'")
    in_file = named_form(output, _FORMS) if output and form == "terminal" else form
    if output:
        check_writable(output)
    from accprobe.health.outcome import HealthOutcome
    from accprobe.report.names import named_models

    if like is not None:
        named_models(like)  # so that it is refused before anything begins

    seconds = SECONDS[level] if minutes is None else 60 * minutes
    plan = CheckPlan(seconds, seed, like, serial=with_serial)
    gpus, interrupted = _of_cluster(ray, devices, plan, patience, retries) if ray else _of_host(devices, plan)
    outcome = HealthOutcome.of(level if minutes is None else None, seconds / 60, gpus)
    try:
        _print(outcome, form, in_file, output)
    except AccprobeError as e:
        if not outcome.differs:
            raise
        tell(str(e))
    _exit(outcome, interrupted)


def _of_host(devices: str, plan: CheckPlan) -> tuple[list[GpuOutcome], bool]:
    """(what is known of each GPU, whether it was interrupted)."""
    from accprobe.devices import device_names
    from accprobe.health.host import check_host, check_named
    from accprobe.health.outcome import GpuOutcome

    names = device_names(devices)
    for name in names:
        check_named(name)
    gpus = [
        GpuOutcome.unopened(name).model_copy(update={"number": names[: i + 1].count(name) if names.count(name) > 1 else None})
        for i, name in enumerate(names)
    ]
    return _watched(plan, gpus, partial(check_host, names, plan))


def _of_cluster(address: str, devices: str, plan: CheckPlan, patience: float, retries: int) -> tuple[list[GpuOutcome], bool]:
    """As `_of_host`."""
    from accprobe.fleet.checks import check_cluster, unopened
    from accprobe.fleet.cluster import connected
    from accprobe.fleet.simulated_nodes import stand_ins

    with connected(address) as cluster:
        names = stand_ins(devices, len(cluster.gpus))
        gpus = [unopened(gpu, name) for gpu, name in zip(cluster.gpus, names, strict=True)]
        return _watched(plan, gpus, partial(check_cluster, cluster, names, plan, patience, retries))


def _watched(plan: CheckPlan, gpus: list[GpuOutcome], check: Callable[[OnOutcome], None]) -> tuple[list[GpuOutcome], bool]:
    from accprobe.render.terminal.health import watched

    with watched(plan.seconds) as show:

        def told(index: int, so_far: GpuOutcome) -> None:
            gpus[index] = so_far.model_copy(update={"number": gpus[index].number})
            show(gpus, gpus[index])

        try:
            check(told)
        except KeyboardInterrupt:
            return gpus, True
    return gpus, False


def _print(outcome: HealthOutcome, form: str, in_file: str, output: Path | None) -> None:
    if form != "terminal":
        deliver(_text(outcome, form), output)
        return
    if output != STDOUT:
        from accprobe.render.terminal.console import console
        from accprobe.render.terminal.health import health_table

        console().print(health_table(outcome))
    if output:  # last, so that a full disk hides nothing
        deliver(_text(outcome, in_file), output)


def _text(outcome: HealthOutcome, form: str) -> str:
    from accprobe.render.monitors import health_junit, health_prometheus

    if form == "json":
        return outcome.model_dump_json(by_alias=True, indent=1) + "\n"
    return health_junit(outcome) if form == "junit" else health_prometheus(outcome)


def _exit(outcome: HealthOutcome, interrupted: bool) -> None:
    """Words that differ count for more than a GPU that could not be checked: nothing hides them."""
    for reason in dict.fromkeys(gpu.reason for gpu in outcome.gpus if gpu.reason):
        tell(f"{', '.join(gpu.where for gpu in outcome.gpus if gpu.reason == reason)}: {reason}")
    if interrupted:
        dots, wrong = (sum(getattr(gpu, key) for gpu in outcome.gpus) for key in ("dots", "wrong"))
        tell(f"interrupted: {dots:,} results were compared, {wrong:,} differ")
    if outcome.differs:
        sys.exit(MISMATCH)
    if interrupted:
        sys.exit(INTERRUPTED)
    if outcome.failed:
        sys.exit(COULD_NOT)

"""`accprobe health`: the results of every GPU of this host, or of a Ray cluster, against its models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, get_args

import click

from accprobe.cli.output import COULD_NOT, DIFFERS, INTERRUPTED, FiniteRange, Output, output_options, print_message, seed_option
from accprobe.health.plan import HANG_SECONDS, SECONDS, CheckPlan, HealthLevel

if TYPE_CHECKING:
    from accprobe.health.outcome import GpuOutcome, HealthOutcome, OnOutcome

LEAST_MINUTES = 0.001
MOST_MINUTES = 60 * 24 * 7


@click.command("health")
@click.option(
    "--device",
    "devices",
    default="all",
    show_default=True,
    metavar="NAME,…",
    help="GPUs: all, cuda:N, sim:NAME or faulty:NAME (simulated, with one faulty SM).",
)
@click.option(
    "--level",
    type=click.Choice(get_args(HealthLevel)),
    help="Duration: 20 seconds, 5 minutes or an hour.  [default: standard]",
)
@click.option(
    "--minutes",
    type=FiniteRange(LEAST_MINUTES, MOST_MINUTES),
    metavar="N",
    help="Duration in minutes, instead of --level.",
)
@click.option(
    "--like",
    metavar="REPORT|sim:NAME",
    help="Source of the models.  [default: models recorded on that kind of GPU, else on its architecture, else published ones]",
)
@seed_option
@click.option("--with-serial", is_flag=True, help="Report the boards' serial numbers too.")
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Ray cluster to check instead of this host: auto or HOST:PORT. sim: and faulty: devices replace its GPUs.",
)
@click.option(
    "--patience",
    type=FiniteRange(0, min_open=True),
    metavar="SECONDS",
    help=f"With --ray: silence after which a GPU counts as hanging.  [default: {HANG_SECONDS:g}]",
)
@output_options("json", "junit", "prometheus")
def health_command(
    devices: str,
    level: HealthLevel | None,
    minutes: float | None,
    like: str | None,
    seed: int,
    with_serial: bool,
    ray: str | None,
    to: Output,
    patience: float | None,
) -> None:
    """Find faulty GPUs by comparing their results with models.

    Runs all SMs of all GPUs at once at full load, one operand type after the other. Names the GPU, the SM and the operands of
    each mismatch. --ray checks all nodes of a cluster at once. Ctrl-C reports what was compared until then.

    Needs: extra cuda13 or cuda12 on a GPU; nothing for sim: devices. With --ray: extra fleet, and the same accprobe on every
    node.

    Exit status 0: no mismatch. 1: a mismatch. 2: a GPU could not be checked. 130: interrupted without a mismatch.

    \b
    Examples:
      accprobe health --level quick
      accprobe health --device cuda:0,cuda:2 --minutes 30 -o accprobe.prom
      accprobe health --device sim:h100,faulty:h100 --minutes 0.1
      accprobe health --ray auto --level quick -o health.json
    """
    if minutes is not None and level is not None:
        raise click.UsageError("--level and --minutes both give the duration: leave out one of them")
    if patience is not None and ray is None:
        raise click.UsageError("--patience has no effect without --ray: leave it out, or give --ray auto")
    from accprobe.health.outcome import HealthOutcome
    from accprobe.render.monitoring import health_junit, health_prometheus
    from accprobe.render.subjects.health import health_blocks
    from accprobe.report.names import named_models

    if like is not None:
        named_models(like)  # raises before anything runs

    usual = level or "standard"
    seconds = SECONDS[usual] if minutes is None else 60 * minutes
    plan = CheckPlan(seconds, seed, like, serial=with_serial)
    gpus, interrupted = _of_cluster(ray, devices, plan, patience or HANG_SECONDS) if ray else _of_host(devices, plan)
    outcome = HealthOutcome.of(usual if minutes is None else None, seconds / 60, gpus)
    to.deliver(
        lambda: health_blocks(outcome),
        outcome.differs,
        json=lambda: outcome.model_dump_json(by_alias=True, indent=1) + "\n",
        junit=lambda: health_junit(outcome),
        prometheus=lambda: health_prometheus(outcome),
    )
    _exit(outcome, interrupted)


def _of_host(devices: str, plan: CheckPlan) -> tuple[list[GpuOutcome], bool]:
    """Return (the outcome of each GPU, whether the check was interrupted)."""
    from accprobe.devices import device_names
    from accprobe.health.check import check_host, check_named
    from accprobe.health.outcome import GpuOutcome

    names = device_names(devices)
    for name in names:
        check_named(name)
    return _watched(plan, [GpuOutcome.unopened(name) for name in names], partial(check_host, names, plan))


def _of_cluster(address: str, devices: str, plan: CheckPlan, patience: float) -> tuple[list[GpuOutcome], bool]:
    """Return the same for the GPUs of a cluster."""
    from accprobe.fleet.cluster import check_cluster, connected, replacements

    with connected(address) as (found, driver):
        names = replacements(devices, len(found))
        gpus = [gpu.unopened(name) for gpu, name in zip(found, names, strict=True)]
        return _watched(plan, gpus, partial(check_cluster, driver, found, names, plan, patience))


def _watched(plan: CheckPlan, gpus: list[GpuOutcome], check: Callable[[OnOutcome], None]) -> tuple[list[GpuOutcome], bool]:
    from accprobe.render.progress import PERCENT, progress_bar

    with progress_bar("compiling") as show:

        def on_change(index: int, changed: GpuOutcome) -> None:
            gpus[index] = changed
            ended = f"{sum(gpu.ended for gpu in gpus)} of {len(gpus)} GPUs" if len(gpus) > 1 else changed.where
            ended += f", {plan.seconds:g} s in all"
            dots, wrong = sum(gpu.dots for gpu in gpus), sum(gpu.wrong for gpu in gpus)
            text = f"{ended}: {dots:,} results, {wrong:,} mismatches" if dots else f"{ended}: compiling"
            show(min(int(PERCENT * changed.seconds / plan.seconds), PERCENT), PERCENT, text)

        try:
            check(on_change)
        except KeyboardInterrupt:
            return gpus, True
    return gpus, False


def _exit(outcome: HealthOutcome, interrupted: bool) -> None:
    """Exit with 1 for a mismatch even if another GPU could not be checked or the check was interrupted."""
    for reason in dict.fromkeys(gpu.reason for gpu in outcome.gpus if gpu.reason):
        print_message(f"{', '.join(gpu.where for gpu in outcome.gpus if gpu.reason == reason)}: {reason}")
    if interrupted:
        dots, wrong = (sum(getattr(gpu, key) for gpu in outcome.gpus) for key in ("dots", "wrong"))
        print_message(f"interrupted: {dots:,} results were compared, {wrong:,} differ")
    if outcome.differs:
        sys.exit(DIFFERS)
    if interrupted:
        sys.exit(INTERRUPTED)
    if outcome.failed:
        sys.exit(COULD_NOT)

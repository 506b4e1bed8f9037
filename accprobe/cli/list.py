"""`accprobe list`: instructions, devices and recorded reports."""

from __future__ import annotations

from collections.abc import Iterator

import click

from accprobe.cli.output import list_names, tell


@click.command("list")
@click.option("--instructions", metavar="ARCH", help="Every matrix instruction of an architecture, e.g. sm_90a.")
@click.option("--devices", is_flag=True, help="The devices that `run` takes.")
@click.option(
    "--coverage",
    is_flag=True,
    help="What of each architecture is measured, ready, or unknown; with --instructions, of each of these.",
)
@click.option("--reports", is_flag=True, help="The recorded reports that `show` knows by name.")
def list_command(instructions: str | None, devices: bool, coverage: bool, reports: bool) -> None:
    """List instructions, devices and recorded reports.

    One name a line; a remark may follow, after a tab where no terminal shows it. Without an option: devices and reports.

    Needs: nothing.

    Exit status: 0; 2 trouble.

    \b
    Example:
      accprobe list --instructions sm_90a
    """
    if instructions:
        list_names(_instructions(instructions, coverage))
    elif coverage:
        list_names(_coverage())
    if devices or not (instructions or reports or coverage):
        list_names(_devices())
    if reports or not (instructions or devices or coverage):
        list_names(_reports())


def _reports() -> Iterator[tuple[str, str]]:
    from collections import Counter

    from accprobe.report.recorded import recorded
    from accprobe.report.report import Report

    for name in recorded():
        report = Report.load(name)
        statuses = [str(row.status) for row in report.measured] or [f"products {row.status}" for row in report.products]
        counts = ", ".join(f"{count} {status}" for status, count in Counter(statuses).items())
        driver = f", driver {report.environment['driver']}" if "driver" in report.environment else ""
        yield name, f"recorded report of {report.device.name}, {report.device.architecture}{driver}: {counts}"


def _coverage() -> Iterator[tuple[str, str]]:
    from accprobe.report.coverage_status import STATE_WORDS, coverage_statuses

    for one in coverage_statuses():
        words = {
            f"{STATE_WORDS['measured']} ({', '.join(one.devices)})": one.measured,
            STATE_WORDS["never run"]: one.never_run,
            STATE_WORDS["published"]: one.published,
            STATE_WORDS["nothing"]: one.nothing,
        }
        told = ", ".join(f"{count} {what}" for what, count in words.items() if count)
        yield one.target, f"{one.generation}, {one.instructions}: {told}"


def _instructions(architecture: str, coverage: bool) -> Iterator[tuple[str, str]]:
    """Each with what is to be known before it is measured; where coverage is asked for, with what is known of it."""
    from accprobe.build import probes
    from accprobe.isa import architectures, processors
    from accprobe.report.coverage_status import STATE_WORDS, measured_on, states

    every, on = states(architecture), measured_on(architecture)
    known = None if architecture in architectures.PROCESSORS else architectures.get(architecture)
    for inst, state in every.items():
        where = f" on {', '.join(on[inst])}" if state == "measured" else ""
        standing = f"{STATE_WORDS[state]}{where}" if coverage or state == "never run" else ""
        if inst.mnemonic:
            needs = f"{inst.mnemonic}, of processors with {' and '.join(processors.BY_MNEMONIC[inst.mnemonic].flags)}"
            remarks = (needs, standing)
        else:
            lacking = probes.why_no_probe(inst) if not standing else None
            remarks = (standing, lacking or (known.caveat if known else ""))
        yield inst.name, "; ".join(filter(None, remarks))
    if known and known.target != architecture:
        tell(f"{architecture} is listed; {known.target} has more")


def _devices() -> Iterator[tuple[str, str]]:
    from accprobe.build.driver import why_no_gpu
    from accprobe.devices import SCHEMES, WORDS_ALONE, why_no_processor

    yield from WORDS_ALONE.items()
    yield from ((f"{word}:{rest}", remark) for word, scheme in SCHEMES.items() for rest, remark in scheme.known())
    if reason := why_no_gpu():
        tell(f"no GPU found: {reason}")
    if reason := why_no_processor():
        tell(f"the processor cannot be measured: {reason}")

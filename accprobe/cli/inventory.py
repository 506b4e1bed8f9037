"""`accprobe list` shows what accprobe knows, `accprobe doctor` what it can do on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import click

from accprobe.cli.output import list_names, tell


@click.command("list")
@click.option("--instructions", metavar="ARCH", help="Matrix instructions of an architecture, such as sm_90a.")
@click.option("--devices", is_flag=True, help="Devices for --device.")
@click.option("--reports", is_flag=True, help="Recorded reports.")
@click.option("--coverage", is_flag=True, help="Number of measured instructions by architecture.")
@click.option("--fields", is_flag=True, help="Fields for `accprobe check`.")
def list_command(instructions: str | None, devices: bool, reports: bool, coverage: bool, fields: bool) -> None:
    """List devices, recorded reports, instructions and fields.

    Prints one name per line; a remark may follow, after a tab if the output is not a terminal. Without an option: devices and
    reports.

    Needs: nothing.

    Exit status: 0; 2 error.

    \b
    Example:
      accprobe list --instructions sm_90a
    """
    if instructions:
        list_names(_instructions(instructions))
    if coverage:
        list_names(_coverage())
    if fields:
        from accprobe.report.columns import field_names

        list_names((name, "") for name in field_names())
    nothing = not (instructions or devices or reports or coverage or fields)
    if devices or nothing:
        list_names(_devices())
    if reports or nothing:
        list_names(_reports())


def _reports() -> Iterator[tuple[str, str]]:
    from accprobe.report.recorded import recorded
    from accprobe.report.report import Report
    from accprobe.report.words import status_counts

    for name in recorded():
        report = Report.load(name)
        driver = f", driver {report.environment['driver']}" if "driver" in report.environment else ""
        where = f"{report.device.name}, {report.device.architecture}{driver}"
        yield name, f"recorded report of {where}: {status_counts(report.claims)}"


def _coverage() -> Iterator[tuple[str, str]]:
    from accprobe.report.measured import NEVER_RUN, measured_counts

    for one in measured_counts():
        measured = f"{one.measured} measured on {', '.join(one.devices)}" if one.measured else ""
        rest = one.instructions - one.measured
        counts = "; ".join(filter(None, (measured, f"{rest} with a {NEVER_RUN}" if rest else "")))
        yield one.target, f"{one.generation}, {one.instructions} instructions: {counts}"


def _instructions(architecture: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction with the flags that it needs of a processor, and where it was measured."""
    from accprobe.isa import architectures, processors
    from accprobe.isa.instructions import catalog
    from accprobe.report.measured import NEVER_RUN, measured_on

    on = measured_on(architecture)
    gpu = None if architecture in architectures.PROCESSORS else architectures.get(architecture)
    for inst in catalog(architecture):
        known = processors.BY_MNEMONIC.get(inst.mnemonic or "")
        needs = f"{inst.mnemonic}, of processors with {' and '.join(known.flags)}" if known else ""
        measured = f"measured on {', '.join(on[inst])}" if inst in on else NEVER_RUN
        yield inst.name, "; ".join(filter(None, (needs, measured, gpu.caveat if gpu else "")))
    if gpu and gpu.target != architecture:
        tell(f"{architecture} is listed; {gpu.target} has more")


def _devices() -> Iterator[tuple[str, str]]:
    from accprobe.build.driver import why_no_gpu
    from accprobe.devices import named_devices, why_no_processor

    yield from named_devices()
    if reason := why_no_gpu():
        tell(f"no GPU found: {reason}")
    if reason := why_no_processor():
        tell(f"the processor cannot be measured: {reason}")


@click.command("doctor")
def doctor_command() -> None:
    """Show what accprobe can do here, and how to get missing tools.

    Needs: nothing.

    Exit status: 0.

    \b
    Example:
      accprobe doctor
    """
    from accprobe.build.inventory import inventory
    from accprobe.render.subjects.doctor import doctor_blocks
    from accprobe.render.terminal import print_blocks

    print_blocks(doctor_blocks(inventory()))

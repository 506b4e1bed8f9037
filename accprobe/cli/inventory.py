"""`accprobe list` shows what accprobe knows, `accprobe doctor` what it can do on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from accprobe.cli.output import list_names, print_message

if TYPE_CHECKING:
    from accprobe.build.inventory import Item
    from accprobe.render.document import Grid

ABILITIES = {
    "read binaries": ("nvdisasm", "cuobjdump"),
    "measure this processor": ("processor",),
    "measure a GPU": ("driver", "GPU", "cupy", "cuda.core", "nvrtc"),
    "sweep block-K on a GPU": ("driver", "GPU", "triton", "torch"),
}
"""The tools that each ability needs."""


@click.command("list")
@click.option("--instructions", metavar="ARCH", help="Matrix instructions of an architecture, such as sm_90a.")
@click.option("--devices", is_flag=True, help="Devices for --device.")
@click.option("--reports", is_flag=True, help="Recorded reports.")
@click.option("--coverage", is_flag=True, help="Number of measured instructions by architecture.")
@click.option("--fields", is_flag=True, help="Fields for `accprobe check`.")
def list_command(instructions: str | None, devices: bool, reports: bool, coverage: bool, fields: bool) -> None:
    """List devices, recorded reports, instructions and fields.

    Prints one name per line; a remark may follow after a tab. Without an option: devices and reports.

    Needs: nothing.

    Exit status 0: printed. 2: error.

    \b
    Example:
      accprobe list --instructions sm_90a
    """
    if instructions:
        list_names(_instructions(instructions))
    if coverage:
        list_names(_coverage())
    if fields:
        from accprobe.report.columns import field_names, meaning_of

        list_names((name, meaning_of(name)) for name in field_names())
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
    from accprobe.report.published import NEVER_RUN, measured_counts

    for one in measured_counts():
        on = ", ".join(f"{count} on {device}" for device, count in one.by_device.items())
        measured = f"{one.measured} measured ({on})" if on else ""
        rest = one.instructions - one.measured
        counts = "; ".join(filter(None, (measured, f"{rest} with a {NEVER_RUN}" if rest else "")))
        yield one.target, f"{one.generation}, {one.instructions} instructions: {counts}"


def _instructions(architecture: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction with the flags that it needs of a processor, and where it was measured."""
    from accprobe.isa import architectures, processors
    from accprobe.isa.instructions import catalog
    from accprobe.report.published import NEVER_RUN, measured_on

    on = measured_on(architecture)
    gpu = None if architecture in architectures.PROCESSORS else architectures.get(architecture)
    for inst in catalog(architecture):
        known = processors.BY_MNEMONIC.get(inst.mnemonic or "")
        needs = f"{inst.mnemonic}, of processors with {' and '.join(known.flags)}" if known else ""
        measured = f"measured on {', '.join(on[inst])}" if inst in on else NEVER_RUN
        yield inst.name, "; ".join(filter(None, (needs, measured)))
    if gpu and gpu.target != architecture:
        print_message(f"{architecture} is listed; {gpu.target} has more")


def _devices() -> Iterator[tuple[str, str]]:
    from accprobe.build.processor import explain_missing_instructions
    from accprobe.devices import named_devices

    yield from named_devices()
    if reason := explain_missing_instructions():
        print_message(f"the processor cannot be measured: {reason}")


@click.command("doctor")
def doctor_command() -> None:
    """Show what accprobe can do here, and how to get missing tools.

    Needs: nothing.

    Exit status: always 0.

    \b
    Example:
      accprobe doctor
    """
    from accprobe.build.inventory import inventory
    from accprobe.render.document import Heading
    from accprobe.render.terminal import print_blocks

    items = inventory()
    print_blocks([Heading(abilities_line(items), 1), _tools(items)])


def abilities_line(items: Iterable[Item]) -> str:
    """Return "can read reports, read binaries; cannot measure a GPU: no NVIDIA driver"."""
    found = {item.name: item.found for item in items}
    can, cannot = ["read reports"], dict[str, list[str]]()
    for ability, needs in ABILITIES.items():
        missing = next((name for name in needs if not found.get(name)), None)
        if missing is None:
            can.append(ability)
        else:
            cannot.setdefault(f"no {'NVIDIA driver' if missing == 'driver' else missing}", []).append(ability)
    lacking = (f"cannot {' or '.join(abilities)}: {reason}" for reason, abilities in cannot.items())
    return "; ".join((f"can {', '.join(can)}", *lacking))


def _tools(items: Iterable[Item]) -> Grid:
    from accprobe.render.document import Column, Phrase, tabulate

    columns = (
        Column("tool", lambda item: item.name, whole=True),
        Column("found", lambda item: Phrase(item.version or "missing", "good" if item.found else "bad"), least=9),
        Column("purpose", lambda item: item.purpose, "context", least=14),
        Column("remark", _remark, least=44),
    )
    return tabulate(columns, items)


def _remark(item: Item) -> str:
    install = f"install: {item.remedy}" if item.remedy.startswith("http") else item.remedy
    return "; ".join(filter(None, [item.note, "" if item.found else install]))

"""How to measure a report again: the commands, and the versions that they were run with."""

from __future__ import annotations

import shlex

from accprobe.isa.instructions import catalog
from accprobe.report.report import Report

MOST_SELECTED = 8
"""Instructions that are named one by one; of more, the reader is told how many there are."""


def commands(report: Report) -> list[str]:
    """Shell commands, comments among them. None for a report that no command wrote."""
    dots = {row.verification.random for row in report.measured if row.verification}
    device = _device(report)
    if not dots or device is None:
        return []
    lines = [f"git checkout {report.tool.commit.removesuffix('-dirty')}"] if report.tool.commit else []
    run = ["accprobe", "run", "--device", device, "--dots", str(max(dots)), "--seed", str(report.seed)]
    lines.append(" ".join([*run, *_selection(report), "-o", "report.json"]))
    first = report.measured[0].name
    lines.append(f"accprobe show report.json {shlex.quote(first)}  # one instruction; any of the names above")
    lines.append("accprobe diff THIS_REPORT.json report.json")
    return lines


def recorded_versions(report: Report) -> dict[str, str]:
    """What the result may depend on."""
    commit = {"commit": report.tool.commit} if report.tool.commit else {}
    return {"accprobe": report.tool.version, **commit, **report.environment, "seed": str(report.seed)}


def _device(report: Report) -> str | None:
    if report.device.kind in ("cuda", "cpu"):
        return {"cuda": "cuda:0", "cpu": "cpu"}[report.device.kind]
    from accprobe.model.published import names, title

    return next((f"sim:{name}" for name in names() if report.device.name == f"simulated {title(name)}"), None)


def _selection(report: Report) -> list[str]:
    every = ["--all-n"] if any(row.also_at for row in report.instructions) else []
    if report.run.selected == len(catalog(report.device.architecture)):
        return every
    names = [row.name for row in report.instructions]
    if len(names) > MOST_SELECTED:
        return [*every, f"--select …  # {len(names)} instructions, those above"]
    return every + [word for name in names for word in ("--select", shlex.quote(name))]

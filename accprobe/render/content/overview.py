"""What is told of a report as a whole: what was measured with what, what marks mean, what is not confirmed, how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, get_args

from accprobe.compare.roles import role_of
from accprobe.model.explained import explained_text
from accprobe.render.content.cells import cells
from accprobe.render.content.patterns import brace_patterns
from accprobe.render.content.phrases import Phrase, Phrases
from accprobe.render.content.verification import coverage
from accprobe.report.coverage_status import was_measured
from accprobe.report.report import Report
from accprobe.report.rows import NOT_MEASURED, Row, Status
from accprobe.report.words import effective_bits, is_narrow, is_unknown, so_many

FACTS = {"sm_count": "{} SMs", "memory_gib": "{} GiB", "max_clock_mhz": "{} MHz at most"}
"""Facts about a device in words; others are written after their names."""


class Reason(NamedTuple):
    """Instructions that are not confirmed, or simulated and would not be, and why."""

    status: Status
    reason: str
    names: tuple[str, ...]

    @property
    def patterns(self) -> str:
        return ", ".join(brace_patterns(self.names))

    @property
    def text(self) -> str:
        return ": ".join(filter(None, (self.status, self.reason, self.patterns)))


def banner(report: Report) -> Phrase | None:
    """What has to be known before anything else is read: that no hardware answered, or not now."""
    if report.device.kind == "simulated":
        because = f"no GPU found ({report.device.reason}); " if report.device.reason else ""
        never = "; no probe has run on hardware of this architecture" if _is_published(report) else ""
        return Phrase(f"SIMULATED: {because}these are published models, nothing was measured{never}", "bad")
    if report.device.kind == "cpu" and report.device.reason:
        return Phrase(f"no GPU found ({report.device.reason}): the processor's own dot products were measured", "warning")
    if report.device.kind == "replay":
        return Phrase("REPLAYED from a recording: nothing was measured now", "replayed")
    return None


def _is_published(report: Report) -> bool:
    """Whether nothing was even evaluated, and no recorded report is of the architecture."""
    return any(row.reason == NOT_MEASURED for row in report.instructions) and not was_measured(report.device.architecture)


HEADLINE_GROUPS = 2  # groups of narrow accumulators that a headline names


def report_headline(report: Report) -> Phrases:
    """Return the result in one line: narrow accumulators, then how many instructions ended in which status."""
    narrow = list(dict.fromkeys(_accumulates(row) for row in report.measured if is_narrow(row)))
    shown = narrow[:HEADLINE_GROUPS] + [f"{len(narrow) - HEADLINE_GROUPS} more"] * (len(narrow) > HEADLINE_GROUPS)
    counts = Counter(row.status for row in report.instructions if row.status != "skipped")
    total = sum(counts.values())
    ended = [f"{count:,} of {so_many(total, 'instruction')} {status}" for status, count in counts.most_common()]
    words = "; ".join([*shown, ", ".join(ended) or "no instruction was measured"])
    return (Phrase(f"{report.device.name}: {words}", "strong"),)


def _accumulates(row: Row) -> str:
    """ "FP8 wgmma accumulates in 13 fraction bits (e8m13), truncated (RZ)"."""
    inst = row.instruction
    bits, _, register = effective_bits(row).partition(" ")
    rounding = row.findings.get("result_rounding")
    truncated = ", truncated (RZ)" if rounding and rounding.value == "RZ" else ""
    name = f"{role_of(inst).operands} {inst.name.partition('.')[0]}"
    return f"{name} accumulates in {bits} fraction bits {register}{truncated}"


def banner_lines(report: Report) -> list[Phrases]:
    """Return the banner as the lines that come before anything else, none where there is none."""
    warning = banner(report)
    return [(warning,)] if warning else []


def report_title(report: Report) -> Iterator[Phrases]:
    """Yield the device and the versions that measured it."""
    facts = f"; {told}" if (told := device_facts(report)) else ""
    yield Phrase(f"{report.device.name}, {report.device.architecture}", "strong"), Phrase(facts, "quiet")
    yield (Phrase(measured_with(report), "quiet"),)


def device_facts(report: Report) -> str:
    return ", ".join(FACTS.get(key, f"{key.replace('_', ' ')} {{}}").format(fact) for key, fact in report.device.facts.items())


def measured_with(report: Report) -> str:
    commit = f" ({report.tool.commit})" if report.tool.commit else ""
    versions = ", ".join(f"{name} {version}" for name, version in report.environment.items())
    return f"accprobe {report.tool.version}{commit}, seed {report.seed}{f'; {versions}' if versions else ''}"


def legend(rows: list[Row], columns: Sequence[str]) -> Iterator[str]:
    """What the marks in the columns shown mean, of those that they have; and what vouches for models that were not measured."""
    every = [getattr(shown, column) for shown in map(cells, rows) for column in columns]
    if any(text.startswith("≥") for text in every):
        yield "≥: a lower bound, the operands' formats reach no further."
    if any(text.startswith("~") for text in every):
        yield (
            "~: suggested, what explains most answers in a row that is not confirmed: no fact, and nothing to rely on; any"
            " other value is possible too."
        )
    if "any" in every:
        yield "any: the bits are the same whatever it is, as those of integer sums that wrap are in every order."
    undetermined = Counter(
        feature
        for row in rows
        for feature, finding in row.findings.items()
        if finding.bound == "undetermined" and (finding.candidates or is_unknown(row, finding))
    )
    if undetermined:
        mark = "?: undetermined" if any(text.endswith("?") for text in every) else "Undetermined"
        features = ", ".join(f"{feature} {count}" for feature, count in undetermined.most_common())
        yield (
            f"{mark}, several values explain everything seen; instructions by feature: {features}."
            " With an instruction's name `show` lists the values."
        )
    alike: dict[str, list[str]] = {}
    for row in rows:
        if row.explains:
            alike.setdefault(explained_text(row.explains), []).append(row.name)
    for words, names in alike.items():
        yield f"Each published model explains {words}, 0 wrong: {', '.join(brace_patterns(names))}."


def reasons(rows: Iterable[Row]) -> list[Reason]:
    """Why rows are not confirmed, those of one status and reason together; what the banner says of all of them is no news."""
    found: dict[tuple[Status, str], list[str]] = {}
    for row in rows:
        if not row.holds and row.reason != NOT_MEASURED:
            found.setdefault((row.status, row.reason), []).append(row.name)
    return [Reason(*why, tuple(names)) for why, names in found.items()]


def why_skipped(report: Report) -> list[Reason]:
    return reasons(row for row in report.instructions if row.status == "skipped")


def is_of_instructions(report: Report) -> bool:
    """Whether it tells of instructions: a report may have whole products or sweeps alone."""
    return bool(report.instructions) or not (report.products or report.sweeps)


def summary(report: Report, lines_shown: int | None = None) -> Iterator[Phrases]:
    """How many instructions ended in which status, and how much of them was covered.

    lines_shown: lines of the table, where like instructions share one.
    """
    counts = Counter(row.status for row in report.instructions)
    done = {"simulated": "simulated", "replay": "replayed"}.get(report.device.kind, "measured")
    every = ", ".join(f"{counts[status]} {status}" for status in get_args(Status) if status != "skipped" and counts[status])
    skipped = f"; {counts['skipped']} skipped" if counts["skipped"] else ""
    alike = ""
    if lines_shown is not None and lines_shown < len(report.measured):
        alike = f"; like ones share a line ({lines_shown} line{'s' * (lines_shown > 1)}, --all has each)"
    count = len(report.measured)
    took = f" in {report.run.seconds:.1f} s" if report.run.seconds else ""
    ended = f"{count} instruction{'s' * (count != 1)} {done}{took}: {every or 'none'}{skipped}"
    yield Phrase(ended, "strong"), Phrase(alike, "aside")
    if covered := coverage([row.verification for row in report.measured if row.verification]):
        yield (Phrase(covered, "quiet"),)
    if cut := report.run.selected - len(report.instructions):
        yield (Phrase(f"The run was cut short: {cut} of {so_many(report.run.selected, 'instruction')} missing", "bad"),)

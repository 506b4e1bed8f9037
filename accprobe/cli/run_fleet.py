"""`accprobe run --ray`: the report of one GPU of each kind in a cluster, and the others verified against it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from accprobe.cli.interrupts import uninterrupted
from accprobe.cli.measuring import Wanted, print_report
from accprobe.cli.output import INTERRUPTED, check_writable, tell
from accprobe.cli.run_each import file_of_kind, several_reports, tell_verified
from accprobe.errors import AccprobeError
from accprobe.render.terminal.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.fleet.surveys import Member
    from accprobe.report.autosave import Autosave


def run_fleet(address: str, devices: str, wanted: Wanted, patience: float, output: Path | None) -> bool:
    """Whether every row holds and no GPU differs from the first of its kind; interrupted and none such, it ends the process.

    Raises AccprobeError where a GPU failed and nothing else is wrong.
    """
    from accprobe.fleet.cluster import connected
    from accprobe.fleet.simulated_nodes import stand_ins
    from accprobe.fleet.surveys import SurveyWanted, fleet_members, survey_cluster

    if output:
        check_writable(output)
    asked = SurveyWanted(wanted.select, wanted.dots, wanted.seed, wanted.jobs, wanted.with_uuid, wanted.all_n, patience)
    interrupted = False
    with connected(address) as cluster, progress_bar("opening the GPUs of the cluster") as show:
        names = stand_ins(devices, len(cluster.gpus))
        fleet = fleet_members(cluster, names)
        kept = _Kept(fleet, output, wanted.form)

        def told(member: Member) -> None:
            kept(member)
            ended = sum(one.ended and one.doing != "opening" for one in fleet)
            show(ended, len(fleet), f"{member.where}: {member.doing}")

        try:
            survey_cluster(cluster, fleet, names, asked, told)
        except KeyboardInterrupt:
            interrupted = True
    return _good(fleet, wanted, interrupted, kept)


class _Kept:
    """Writes each report to its file, as it grows."""

    def __init__(self, fleet: list[Member], output: Path | None, form: str) -> None:
        self._fleet, self._output, self._form = fleet, output, form
        self.files: dict[str, Path] = {}
        self._saves: dict[str, Autosave] = {}
        self._written: dict[str, object] = {}

    def __call__(self, member: Member) -> None:
        if member.report is None or self._written.get(member.kind) is member.report:
            return
        kinds = {one.kind for one in self._fleet if one.kind}
        if self._form == "json" and len(kinds) > 1:
            raise several_reports(len(kinds))
        if self._output is None:
            return
        from accprobe.report.autosave import Autosave

        if member.kind not in self.files:
            self.files[member.kind] = file_of_kind(self._output, member.kind) if len(kinds) > 1 else self._output
            self._saves[member.kind] = Autosave(self.files[member.kind])
        self._written[member.kind] = member.report
        save = self._saves[member.kind]
        try:
            with uninterrupted():
                save(member.report)
                save.finish()
        except OSError as e:
            raise AccprobeError(f"{self.files[member.kind]} cannot be written: {e.strerror}") from None


def _good(fleet: list[Member], wanted: Wanted, interrupted: bool, kept: _Kept) -> bool:
    from accprobe.render.content.verification import Verified

    good = True
    for member in fleet:
        if member.report and not member.reason:
            file = kept.files.get(member.kind)
            tell(f"{member.where}, {member.kind}: measured{f', into {file}' if file else ''}")
            print_report(member.report, wanted)
            good &= all(row.holds for row in member.report.measured)
        elif member.first and member.verified:
            good &= tell_verified(member.where, member.first.where, [Verified(*row) for row in member.verified], wanted)
        if member.reason:
            tell(f"{member.where}: {member.reason}")
    done = sum(member.ended and not member.reason and member.doing != "opening" for member in fleet)
    if interrupted:
        from accprobe.report.words import so_many

        tell(f"interrupted: {done} of {so_many(len(fleet), 'GPU')} done")
    if good and interrupted:
        sys.exit(INTERRUPTED)
    if good and done < len(fleet):
        raise AccprobeError(f"{done} of {len(fleet)} GPUs were measured or verified, the others failed")
    return good

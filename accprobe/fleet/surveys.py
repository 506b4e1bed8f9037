"""A survey of one GPU of each kind in a cluster, and the others of that kind verified against its report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel

from accprobe.devices import open_device
from accprobe.errors import AccprobeError, DeviceError
from accprobe.fleet.cluster import Cluster
from accprobe.fleet.events import FleetEvent, Task, Work
from accprobe.health.outcome import ClusterNode, whereabouts
from accprobe.isa.instructions import Instruction, parse
from accprobe.report.names import models_of
from accprobe.report.report import Report
from accprobe.survey.run import survey, verified_as
from accprobe.verify.outcome import Verification

BETWEEN = 5.0
"""Seconds between two reports of a survey that goes on."""

RETRIES = 1
"""How often a GPU is begun again whose process died."""


@dataclass(frozen=True)
class SurveyWanted:
    """What is asked of each GPU, as of `survey`. patience: seconds without a new row after which it hangs."""

    select: tuple[str, ...]
    dots: int
    seed: int
    jobs: int | None
    with_uuid: bool
    all_n: bool
    patience: float


@dataclass
class Member:
    """One GPU of the cluster. kind: its marketing name. doing: what it does, or did last.

    report: of the one that was surveyed. verified: of another, against the report of `first`. reason: why it failed.
    """

    node: ClusterNode
    device: str
    kind: str = ""
    doing: Literal["opening", "survey", "verification"] = "opening"
    report: Report | None = None
    first: Member | None = None
    verified: list[tuple[Instruction, Verification, float]] = field(default_factory=list)
    ended: bool = False
    reason: str = ""
    deaths: int = 0

    @property
    def where(self) -> str:
        return whereabouts(self.device, self.node)


def fleet_members(cluster: Cluster, devices: Sequence[str | None]) -> list[Member]:
    """Of a cluster of which nothing is known yet; devices: as of `check_cluster`."""
    return [
        Member(ClusterNode(address=gpu.address, id=gpu.node), device or f"GPU {gpu.number + 1} of {gpu.count}")
        for gpu, device in zip(cluster.gpus, devices, strict=True)
    ]


def survey_cluster(
    cluster: Cluster,
    fleet: Sequence[Member],
    devices: Sequence[str | None],
    asked: SurveyWanted,
    told: Callable[[Member], None],
) -> None:
    """Surveys the first GPU of each kind, of which another takes the place should it fail, then verifies the others.

    fleet: as of `fleet_members`, kept up to date. told: called with each of which something new is known.
    """
    survey = _ClusterSurvey(cluster, fleet, devices, asked)
    try:
        for news in cluster.news():
            survey.hear(news)
            told(fleet[news.gpu])
    except DeviceError as e:
        for member in fleet:
            if not member.ended:
                member.ended, member.reason = True, str(e)
                told(member)


class _ClusterSurvey:
    def __init__(self, cluster: Cluster, fleet: Sequence[Member], devices: Sequence[str | None], asked: SurveyWanted) -> None:
        self._cluster, self._fleet, self._devices, self._asked = cluster, fleet, devices, asked
        for gpu in range(len(fleet)):
            self._begin(gpu)

    def hear(self, news: FleetEvent) -> None:
        member = self._fleet[news.gpu]
        match news.what:
            case "began":
                member.node = member.node.model_copy(update={"gpu": news.text})
                member.device = self._devices[news.gpu] or f"cuda:{news.text}"
            case "said":
                self._take(member, news.text)
            case "died" if member.deaths < RETRIES:
                member.deaths += 1
                member.verified.clear()
                self._begin(news.gpu)
            case _:
                member.ended = True
                member.reason = news.text or _nothing_measured(member)
                self._go_on()

    def _take(self, member: Member, text: str) -> None:
        if member.doing == "opening":
            member.kind = text
        elif member.doing == "survey":
            member.report = Report.model_validate_json(text)
        else:
            row = VerifiedRow.model_validate_json(text)
            member.verified.append((parse(row.name), row.verification, row.seconds))

    def _go_on(self) -> None:
        """What can be begun once a GPU has ended what it did."""
        if any(member.doing == "opening" and not member.ended for member in self._fleet):
            return
        kinds: dict[str, list[int]] = {}
        for gpu, member in enumerate(self._fleet):
            if member.kind:
                kinds.setdefault(member.kind, []).append(gpu)
        for gpus in kinds.values():
            opened = [gpu for gpu in gpus if self._fleet[gpu].doing == "opening" and not self._fleet[gpu].reason]
            surveyed = [self._fleet[gpu] for gpu in gpus if self._fleet[gpu].doing == "survey"]
            first = next((member for member in surveyed if not member.reason), None)
            if first is None and opened:
                self._begin(opened[0], "survey")
            elif first and first.ended:
                for gpu in opened:
                    self._fleet[gpu].first = first
                    self._begin(gpu, "verification")

    def _begin(self, gpu: int, doing: Literal["opening", "survey", "verification"] | None = None) -> None:
        member, asked = self._fleet[gpu], self._asked
        member.doing, member.ended = doing or member.doing, False
        work: Work = opening
        arguments: tuple[object, ...] = ()
        if member.doing == "survey":
            work, arguments = surveying, (asked,)
        elif member.doing == "verification":
            assert member.first
            assert member.first.report
            work, arguments = verifying, (member.first.report.dumps(), asked.dots, asked.seed)
        self._cluster.send(Task(gpu, work, arguments, self._devices[gpu], float("inf"), asked.patience))


def _nothing_measured(member: Member) -> str:
    """Why a survey that ended in order found nothing, "" where it did."""
    if member.doing != "survey" or (member.report and member.report.measured):
        return ""
    reasons = dict.fromkeys(row.reason for row in member.report.instructions) if member.report else ()
    return f"no instruction that is selected can be measured there: {', '.join(reasons)}"


def opening(device: str) -> Iterator[str]:
    """The marketing name."""
    yield open_device(device).name


def surveying(device: str, asked: SurveyWanted) -> Iterator[str]:
    """The report so far, now and then where there is a new row, and at the end."""
    latest: list[Report] = []
    failures: list[Exception] = []
    news = threading.Event()

    def on_row(report: Report) -> None:
        latest[:] = [report]

    def run() -> None:
        try:
            survey(
                device,
                asked.select,
                asked.dots,
                asked.seed,
                asked.jobs,
                on_row,
                with_uuid=asked.with_uuid,
                all_n=asked.all_n,
            )
        except Exception as e:  # raised again below, where Ray sees it
            failures.append(e)
        news.set()

    threading.Thread(target=run, daemon=True).start()
    told = None
    while not news.wait(BETWEEN):
        if latest and latest[0] is not told:
            told = latest[0]
            yield told.dumps()
    if failures:
        raise failures[0]
    yield latest[0].dumps()


class VerifiedRow(BaseModel):
    """What is told of one instruction that was verified."""

    name: str
    verification: Verification
    seconds: float


def verifying(device: str, report: str, dots: int, seed: int) -> Iterator[str]:
    """A `VerifiedRow` for each instruction of which the report has a model."""
    models = models_of(Report.model_validate_json(report), "the report of the first GPU")
    started = begun = time.perf_counter()
    for inst, done in verified_as(open_device(device), models, dots, seed):
        yield VerifiedRow(name=inst.name, verification=done, seconds=time.perf_counter() - started).model_dump_json()
        started = time.perf_counter()
    if started == begun:
        raise AccprobeError("it has none of the instructions that the first GPU has models of")

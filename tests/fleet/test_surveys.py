"""Which GPU of a cluster does what, where Ray is played: work runs here, and ends as the test says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from accprobe import devices
from accprobe.devices import Scheme
from accprobe.devices.simulated import SimulatedDevice, simulated_device
from accprobe.errors import DeviceError
from accprobe.fleet.checks import check_cluster, unopened
from accprobe.fleet.cluster import Cluster
from accprobe.fleet.events import FleetEvent, FleetGpu, Task
from accprobe.fleet.surveys import Member, SurveyWanted, fleet_members, survey_cluster
from accprobe.health.outcome import GpuOutcome, HealthOutcome
from accprobe.health.plan import CheckPlan
from accprobe.isa.instructions import parse
from accprobe.model.published import known_models
from accprobe.render.monitors import health_prometheus

INST = "mma.sync.m16n8k16.f32.f16.f16.f32"


ENDS: dict[str, Any] = {"": "ended", "died": "died", "late": "died", "failed": "failed"}


class PlayedCluster:
    """A cluster of one node. ends: how the work on a GPU ends, time after time: "died", "failed", "lost"; in order after those.

    What ends so says its first text before, what ends "late" all of them.
    """

    def __init__(self, gpus: int, ends: dict[int, list[str]] | None = None) -> None:
        self.gpus = tuple(FleetGpu("10.0.0.7", "3f2a9c01" + 48 * "0", number, gpus) for number in range(gpus))
        self._ends = ends or {}
        self._errands: list[Task] = []
        self.works: list[tuple[int, str]] = []

    def send(self, errand: Task) -> None:
        self._errands.append(errand)
        self.works.append((errand.gpu, errand.work.__name__))

    def news(self) -> Iterator[FleetEvent]:
        while self._errands:
            errand = self._errands.pop(0)
            end = (self._ends.get(errand.gpu) or [""]).pop(0)
            yield FleetEvent(errand.gpu, "began", str(errand.gpu))
            assert errand.device
            for text in errand.work(errand.device, *errand.arguments):
                yield FleetEvent(errand.gpu, "said", text)
                if end and end != "late":
                    break
            if end == "lost":
                raise DeviceError("the cluster is lost")
            yield FleetEvent(errand.gpu, ENDS[end], {"ended": "", "failed": "it hangs"}.get(ENDS[end], "its process died"))


@pytest.fixture
def _other_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "other:h100" calls itself as sim:h100 does, and adds as an A100."""

    def opened(name: str) -> SimulatedDevice:
        inst, right = parse(INST), simulated_device(name)
        return SimulatedDevice({inst: known_models("a100")[inst].model}, right.name, right.architecture)

    monkeypatch.setitem(devices.SCHEMES, "other", Scheme("NAME", opened, list))


def surveyed(played: PlayedCluster, names: list[str]) -> list[Member]:
    cluster = cast(Cluster, played)
    fleet = fleet_members(cluster, names)
    survey_cluster(cluster, fleet, names, SurveyWanted((INST,), 512, 0, 1, False, False, 60.0), lambda member: None)
    return fleet


@pytest.mark.usefixtures("_other_arithmetic")
def test_one_that_differs_from_the_first_of_its_kind_is_seen() -> None:
    first, same, other = surveyed(PlayedCluster(3), ["sim:h100", "sim:h100", "other:h100"])
    assert first.report
    assert [row.name for row in first.report.instructions] == [INST]
    assert (same.first, other.first) == (first, first)
    assert [done.mismatches > 0 for member in (same, other) for _, done, _ in member.verified] == [False, True]
    assert other.where == "other:h100 for GPU 2 on 10.0.0.7 (3f2a9c01)"


def test_another_takes_the_place_of_the_first_that_fails() -> None:
    first, second, third = surveyed(PlayedCluster(3, {0: ["", "failed"]}), ["sim:h100"] * 3)
    assert first.reason == "it hangs"
    assert second.report
    assert not second.reason
    assert third.first is second


def test_what_died_is_begun_again_once() -> None:
    played = PlayedCluster(2, {0: ["died"], 1: ["", "died", "died"]})
    first, second = surveyed(played, ["sim:h100"] * 2)
    assert not first.reason
    assert second.reason == "its process died"
    assert played.works.count((0, "opening")) == 2
    assert played.works.count((1, "verifying")) == 2


def test_a_kind_that_fails_whole_ends() -> None:
    assert [member.reason for member in surveyed(PlayedCluster(2, {0: ["failed"], 1: ["failed"]}), ["sim:h100"] * 2)] == [
        "it hangs",
        "it hangs",
    ]


def checked(played: PlayedCluster, names: list[str], retries: int = 1) -> list[GpuOutcome]:
    cluster = cast(Cluster, played)
    gpus = [unopened(gpu, name) for gpu, name in zip(cluster.gpus, names, strict=True)]

    def told(index: int, so_far: GpuOutcome) -> None:
        gpus[index] = so_far

    check_cluster(cluster, names, CheckPlan(0.01, again=1), 60.0, retries, told)
    return gpus


def test_a_lost_cluster_is_told_of_each_that_had_not_ended() -> None:
    ended, going, waiting = checked(PlayedCluster(3, {1: ["lost"]}), ["sim:h100"] * 3)
    assert (ended.status, ended.reason) == ("healthy", "")
    assert [(gpu.status, gpu.reason) for gpu in (going, waiting)] == [("failed", "the cluster is lost")] * 2


def test_without_retries_one_death_is_enough() -> None:
    played = PlayedCluster(1, {0: ["died"]})
    (gpu,) = checked(played, ["sim:h100"], retries=0)
    assert (gpu.status, gpu.reason, gpu.deaths, len(played.works)) == ("failed", "its process died", 1, 1)


def test_one_that_differed_before_it_died_is_not_begun_again() -> None:
    played = PlayedCluster(1, {0: ["late"]})
    (gpu,) = checked(played, ["faulty:h100"])
    assert (gpu.status, gpu.reason, list(gpu.wrong_by_sm)) == ("differs", "its process died", ["2"])
    assert len(played.works) == 1


def test_of_a_cluster_monitors_are_told_the_node() -> None:
    text = health_prometheus(HealthOutcome.of("quick", 1 / 3, checked(PlayedCluster(1), ["sim:h100"])))
    (line,) = (line for line in text.splitlines() if line.startswith("accprobe_healthy{"))
    assert line.endswith(f'place="0",node="10.0.0.7",node_id="3f2a9c01{48 * "0"}",node_gpu="0"}} 1')


def test_no_two_series_of_monitors_are_the_same() -> None:
    """Of one device that stands in for several GPUs: of this host, of a node, of two, and where no check of them began."""
    (faulty,) = checked(PlayedCluster(1), ["faulty:h100"])
    assert faulty.node
    nodes = [None, faulty.node, faulty.node.model_copy(update={"id": "6a018742" + 48 * "0"})]
    gpus = [faulty.model_copy(update={"node": node}) for node in nodes for _ in range(2)]
    gpus += [unopened(gpu, "faulty:h100") for gpu in PlayedCluster(2).gpus]
    lines = health_prometheus(HealthOutcome.of("quick", 1 / 3, gpus)).splitlines()
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert sum(each.startswith("accprobe_healthy{") for each in series) == len(gpus)
    assert sum('sm="2"' in each for each in series) == 6
    assert len(set(series)) == len(series)

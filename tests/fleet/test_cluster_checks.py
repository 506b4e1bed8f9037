"""Checks of a cluster's GPUs without Ray: the work runs in this process, and ends as the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from accprobe.errors import DeviceError
from accprobe.fleet.checks import check_cluster, unopened
from accprobe.fleet.cluster import Cluster
from accprobe.fleet.driver import FleetEvent, FleetGpu, Task
from accprobe.health.outcome import GpuOutcome, HealthOutcome
from accprobe.health.plan import CheckPlan
from accprobe.render.prometheus import health_prometheus


class PlayedCluster:
    """A cluster of one node. ends: how the work on a GPU ends, time after time: "died", "lost"; in order after those.

    Work that dies or is lost sends its first text before, "late" all of them.
    """

    def __init__(self, gpus: int, ends: dict[int, list[str]] | None = None) -> None:
        self.gpus = tuple(FleetGpu("10.0.0.7", "3f2a9c01" + 48 * "0", number, gpus) for number in range(gpus))
        self._ends = ends or {}
        self.runs = 0

    def run(self, tasks: Iterable[Task], retry: Callable[[int], bool]) -> Iterator[FleetEvent]:
        waiting = list(tasks)
        while waiting:
            task, self.runs = waiting.pop(0), self.runs + 1
            end = (self._ends.get(task.gpu) or [""]).pop(0)
            yield FleetEvent(task.gpu, "began", str(task.gpu))
            assert task.device
            for text in task.work(task.device, *task.arguments):
                yield FleetEvent(task.gpu, "said", text)
                if end and end != "late":
                    break
            if end == "lost":
                raise DeviceError("the cluster is lost")
            if end and retry(task.gpu):
                waiting.append(task)
            yield FleetEvent(task.gpu, "died" if end else "ended", "its process died" if end else "")


def checked(played: PlayedCluster, names: list[str]) -> list[GpuOutcome]:
    cluster = cast(Cluster, played)
    gpus = [unopened(gpu, name) for gpu, name in zip(cluster.gpus, names, strict=True)]

    def told(index: int, so_far: GpuOutcome) -> None:
        gpus[index] = so_far

    check_cluster(cluster, names, CheckPlan(0.01, again=1), 60.0, told)
    return gpus


def test_a_lost_cluster_is_told_of_each_that_had_not_ended() -> None:
    ended, going, waiting = checked(PlayedCluster(3, {1: ["lost"]}), ["sim:h100"] * 3)
    assert (ended.status, ended.reason) == ("healthy", "")
    assert [(gpu.status, gpu.reason) for gpu in (going, waiting)] == [("failed", "the cluster is lost")] * 2


def test_a_check_whose_process_died_runs_again() -> None:
    played = PlayedCluster(2, {0: ["died"], 1: ["died", "died"]})
    once, twice = checked(played, ["sim:h100"] * 2)
    assert (once.status, once.reason, once.deaths) == ("healthy", "", 1)
    assert (twice.status, twice.reason, twice.deaths) == ("failed", "its process died, 2 times", 2)
    assert played.runs == 4


def test_one_that_differed_before_it_died_is_not_begun_again() -> None:
    played = PlayedCluster(1, {0: ["late"]})
    (gpu,) = checked(played, ["faulty:h100"])
    assert (gpu.status, gpu.reason, list(gpu.wrong_by_sm)) == ("differs", "its process died", ["2"])
    assert played.runs == 1


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

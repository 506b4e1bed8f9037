"""Checks of a cluster, and addresses where no cluster is."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import cast

import pytest
from click.testing import CliRunner

from accprobe.cli import main
from accprobe.errors import DeviceError, UnknownName
from accprobe.fleet import cluster
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


SOON = 10.0
"""Seconds; Ray itself takes eighty to give up."""


@pytest.fixture(scope="module")
def silent_port() -> Iterator[int]:
    """A port of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("address", "ray", "sentence"),
    [
        ("auto", None, "--ray needs Ray, which is not installed: "),
        ("auto", "2.50.1", "--ray needs Ray 2.51 or a newer one, here is 2.50.1"),
        ("here", "2.60.0", "--ray here: an address is auto or HOST:PORT"),
        (":6379", "2.60.0", "--ray :6379: an address is auto or HOST:PORT"),
        ("10.0.0.1:ray", "2.60.0", "--ray 10.0.0.1:ray: an address is auto or HOST:PORT"),
        ("127.0.0.1:99999", "2.60.0", "no Ray cluster replies at 127.0.0.1:99999: "),
        ("ray://10.0.0.1:10001", "2.60.0", "run accprobe on a node of the cluster, with --ray auto"),
        ("127.0.0.1:SILENT", "2.60.0", "no Ray cluster replies at 127.0.0.1:SILENT within 3 s"),
        ("127.0.0.1:1", "2.60.0", "no Ray cluster replies at 127.0.0.1:1: Connection refused"),
    ],
)
def test_where_no_cluster_is(
    address: str, ray: str | None, sentence: str, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(package: str) -> str:
        if package == "ray" and ray is None:
            raise PackageNotFoundError
        return (ray or "") if package == "ray" else version(package)

    if "SILENT" in address:
        pytest.importorskip("ray", reason="Ray is not installed; extra fleet")
    monkeypatch.setattr(cluster, "CONNECTING", 3.0)
    monkeypatch.setattr(cluster, "version", installed)
    started = time.monotonic()
    result = CliRunner().invoke(main, ["health", "--ray", address.replace("SILENT", str(silent_port))])
    assert time.monotonic() - started < SOON
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert sentence.replace("SILENT", str(silent_port)) in result.stderr


def test_devices_that_replace_gpus_are_simulated() -> None:
    with pytest.raises(UnknownName, match="leave out --device cuda:1"):
        cluster.replacements("sim:h100,cuda:1", 3)
    with pytest.raises(UnknownName, match="h101"):
        cluster.replacements("sim:h101", 3)
    assert cluster.replacements("sim:h100,faulty:h100", 3) == ["sim:h100", "faulty:h100", "sim:h100"]
    assert cluster.replacements("all", 2) == [None, None]

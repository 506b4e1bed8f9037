"""Checks of a cluster where Ray is played, and addresses where no cluster is."""

from __future__ import annotations

import multiprocessing
import socket
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import cast

import pytest
from commands import invoke

import accprobe
from accprobe.errors import AccprobeError, UnknownName
from accprobe.fleet import cluster, driver
from accprobe.fleet.driver import FleetGpu, check_on_node
from accprobe.health.check import check_gpu
from accprobe.health.outcome import GpuOutcome, HealthOutcome
from accprobe.health.plan import CheckPlan
from accprobe.render.monitoring import health_prometheus

GPUS = [FleetGpu("10.0.0.7", "3f2a9c01" + 48 * "0", number, 2) for number in range(2)]
PLAN = CheckPlan(0.01, again=1)


def test_a_lost_cluster_is_reported_for_each_unfinished_gpu() -> None:
    mine, theirs = multiprocessing.Pipe()
    names = ["sim:h100", "sim:h100"]
    theirs.send((0, GPUS[0].unopened(names[0]).model_copy(update={"status": "healthy", "finished": True})))
    latest: dict[int, GpuOutcome] = {}
    sent = SimpleNamespace(send=lambda _: theirs.close(), recv=mine.recv)
    cluster.check_cluster(cast(Connection, sent), GPUS, names, PLAN, 60.0, latest.__setitem__)
    assert (latest[0].status, latest[0].reason) == ("healthy", "")
    assert latest[1].reason.startswith("the Ray cluster is lost")


@pytest.mark.parametrize(
    ("silent", "reason"), [(61.0, "it hangs: no result for 60 s"), (1.0, "it hangs: not finished 60 s after the planned end")]
)
def test_a_late_check_is_cancelled_for_its_reason(silent: float, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(cancel=lambda generator, force: None))
    groups = SimpleNamespace(placement_group=lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "ray.util.placement_group", groups)
    sent: list[tuple[int, GpuOutcome]] = []
    checks = driver.Checks(GPUS[:1], ["sim:h100"], PLAN, 60.0, cast(Connection, SimpleNamespace(send=sent.append)))
    now = time.monotonic()
    checks._running["check"] = driver._Running(0, started=now - 100, heard=now - silent, began=True)
    checks._cancel_late()
    assert [outcome.reason for _, outcome in sent] == [reason]


def test_no_two_series_of_monitors_are_the_same() -> None:
    """Of one device that stands in for several GPUs: of this host, of two nodes, and where no check of them began."""
    *_, faulty = check_gpu("faulty:h100", PLAN)
    node = GPUS[0].unopened(None).node
    assert node
    nodes = [None, node.model_copy(update={"gpu": "0"}), node.model_copy(update={"id": "6a018742" + 48 * "0", "gpu": "0"})]
    gpus = [faulty.model_copy(update={"node": each}) for each in nodes for _ in range(2)]
    gpus += [gpu.unopened("faulty:h100") for gpu in GPUS]
    lines = health_prometheus(HealthOutcome.of("quick", 1 / 3, gpus)).splitlines()
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert sum(each.startswith("accprobe_healthy{") for each in series) == len(gpus)
    assert sum('sm="2"' in each for each in series) == 6
    assert any(f'node="10.0.0.7",node_id="{GPUS[0].node}",node_gpu="0"}}' in each for each in series)
    assert len(set(series)) == len(series)


@pytest.fixture
def _third_gpu_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(get_accelerator_ids=lambda: {"GPU": ["2"]})
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: context))


@pytest.mark.usefixtures("_third_gpu_of_its_node")
@pytest.mark.parametrize(("visible", "here"), [("2", "cuda:0"), ("", "cuda:2"), ("0,1,2,3", "cuda:2"), ("5,2", "cuda:1")])
def test_the_gpu_that_ray_gave_is_checked(visible: str, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    opened: list[str] = []

    def check(name: str, plan: CheckPlan) -> Iterator[GpuOutcome]:
        opened.append(name)
        yield GpuOutcome.unopened(name)

    monkeypatch.setattr(driver, "check_gpu", check)
    first, _ = check_on_node(accprobe.__version__, None, PLAN, GPUS[0].unopened(None))
    assert (first.node and first.node.gpu, first.device, opened) == ("2", "cuda:2", [here])


@pytest.mark.usefixtures("_third_gpu_of_its_node")
def test_another_version_is_refused() -> None:
    with pytest.raises(AccprobeError, match=r"is installed there, not 0\.0\.1: install the same everywhere"):
        next(check_on_node("0.0.1", None, PLAN, GPUS[0].unopened(None)))


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
        ("10.0.0.1:ray", "2.60.0", "--ray 10.0.0.1:ray: an address is auto or HOST:PORT"),
        ("127.0.0.1:99999", "2.60.0", "no Ray cluster replies at 127.0.0.1:99999: "),
        ("127.0.0.1:SILENT", "2.60.0", "no Ray cluster replies at 127.0.0.1:SILENT within 2 s"),
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
    monkeypatch.setattr(cluster, "CONNECTING", 2.0)
    monkeypatch.setattr(cluster, "version", installed)
    started = time.monotonic()
    result = invoke("health", "--ray", address.replace("SILENT", str(silent_port)))
    assert time.monotonic() - started < SOON
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert sentence.replace("SILENT", str(silent_port)) in result.stderr


def test_devices_that_replace_gpus_are_simulated() -> None:
    with pytest.raises(UnknownName, match="leave out --device cuda:1"):
        cluster.replacements("sim:h100,cuda:1", 3)
    assert cluster.replacements("sim:h100,faulty:h100", 3) == ["sim:h100", "faulty:h100", "sim:h100"]
    assert cluster.replacements("all", 2) == [None, None]

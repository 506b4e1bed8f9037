"""A Ray cluster: its GPUs, and work for them."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection

from accprobe.build.install import RAY
from accprobe.errors import DeviceError, ToolMissing
from accprobe.fleet.driver import drive
from accprobe.fleet.events import FleetEvent, FleetGpu, NoCluster, Task
from accprobe.survey.workers import interrupts_held_back

OLDEST = 2, 51
"""Of Ray: the first whose placement groups keep to the node that they are given (ray-project/ray#55599)."""

KNOCKING = 3.0
"""Seconds within which whoever listens at an address takes a connection."""

CONNECTING = 20.0
"""Seconds within which a cluster has to answer; Ray itself waits for minutes."""


class Cluster:
    """A cluster that answered. gpus: every GPU that its nodes claim, node by node."""

    def __init__(self, gpus: Sequence[FleetGpu], driver: Connection) -> None:
        self.gpus = tuple(gpus)
        self._driver = driver
        self._busy = 0

    def send(self, errand: Task) -> None:
        """To be done as soon as Ray finds place; one errand a GPU at a time."""
        self._busy += 1
        self._driver.send(errand)

    def news(self) -> Iterator[FleetEvent]:
        """Until all has ended that was sent, meanwhile too. Raises DeviceError where the cluster is lost."""
        while self._busy:
            try:
                news: FleetEvent = self._driver.recv()
            except EOFError:
                raise DeviceError("the Ray cluster is lost: the process that is connected to it has ended") from None
            if news.what in ("ended", "died", "failed"):
                self._busy -= 1
            yield news


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """The cluster at "auto", that of this host, or at "HOST:PORT". What still runs there afterwards, Ray ends.

    Raises ToolMissing without Ray; DeviceError where no cluster answers, or one without GPUs.
    """
    _check_ray()
    _knock(address)
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    driver = context.Process(target=drive, args=(address, theirs), daemon=True)
    with interrupts_held_back():
        driver.start()
    theirs.close()
    try:
        yield Cluster(_gpus(address, mine), mine)
    finally:
        driver.kill()


def _check_ray() -> None:
    """Raises ToolMissing."""
    try:
        installed = version("ray")
    except PackageNotFoundError:
        raise ToolMissing(f"--ray needs Ray, which is not installed: {RAY}") from None
    if tuple(int(part) for part in installed.split(".")[:2]) < OLDEST:
        raise ToolMissing(f"--ray needs Ray {OLDEST[0]}.{OLDEST[1]} or a newer one, here is {installed}: {RAY}")


def _knock(address: str) -> None:
    """Whether somebody listens at the address. Raises DeviceError."""
    if address == "auto":
        return
    if address.startswith("ray://"):
        raise DeviceError(f"--ray {address} is Ray's client; run accprobe on a node of the cluster, with --ray auto")
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise DeviceError(f"--ray {address}: an address is auto or HOST:PORT, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), KNOCKING).close()
    except (OSError, OverflowError) as e:
        raise DeviceError(f"no Ray cluster answers at {address}: {getattr(e, 'strerror', None) or e}") from None


def _gpus(address: str, driver: Connection) -> list[FleetGpu]:
    try:
        answer: list[FleetGpu] | NoCluster = driver.recv() if driver.poll(CONNECTING) else NoCluster("")
    except EOFError:
        answer = NoCluster("")
    if isinstance(answer, NoCluster):
        raise DeviceError(_why_none(address, answer.reason))
    if not answer:
        raise DeviceError(f"no node of the Ray cluster at {address} claims a GPU: `ray status` shows what they claim")
    return answer


def _why_none(address: str, reason: str) -> str:
    words = " ".join(reason.split()).rstrip(".")
    if "ersion mismatch" in reason:
        return f"the Ray cluster at {address} has other versions than this host: {words}"
    if address == "auto" and "Could not find any running Ray" in reason:
        return "there is no Ray cluster on this host: `ray start --address HOST:PORT` joins one, --ray HOST:PORT names one"
    return f"no Ray cluster answers at {address}" + (f": {words}" if words else f" within {CONNECTING:.0f} s")

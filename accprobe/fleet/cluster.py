"""A Ray cluster: its GPUs, and tasks for them."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection

from accprobe.build.install import RAY
from accprobe.errors import DeviceError, ToolMissing, UnknownName
from accprobe.fleet.driver import FleetEvent, FleetGpu, Task, drive
from accprobe.health.check import check_named
from accprobe.survey.workers import interrupts_held_back

OLDEST = 2, 51
"""The first version of Ray whose placement groups stay on a given node (ray-project/ray#55599)."""

KNOCKING = 3.0
"""Seconds within which a listening address accepts a connection."""

CONNECTING = 20.0
"""Seconds within which a cluster must reply; Ray itself waits for minutes."""


class Cluster:
    """A connected cluster. gpus: every GPU that its nodes claim, node by node."""

    def __init__(self, gpus: Sequence[FleetGpu], driver: Connection) -> None:
        self.gpus = tuple(gpus)
        self._driver = driver

    def run(self, tasks: Iterable[Task], retry: Callable[[int], bool]) -> Iterator[FleetEvent]:
        """Run at most one task per GPU, and yield the events of each until all have ended.

        retry: called with a GPU whose process died; if true the task is repeated. Raises DeviceError if the cluster is lost.
        """
        running = {task.gpu: task for task in tasks}
        for task in running.values():
            self._driver.send(task)
        while running:
            try:
                event: FleetEvent = self._driver.recv()
            except EOFError:
                raise DeviceError("the Ray cluster is lost: the process that is connected to it has ended") from None
            if event.what == "died" and retry(event.gpu):
                self._driver.send(running[event.gpu])
            elif event.what in ("ended", "died", "failed"):
                del running[event.gpu]
            yield event


def replacements(devices: str, gpus: int) -> list[str | None]:
    """Return the simulated device that replaces each GPU: names separated by commas in turn; None for "all".

    Raises UnknownName where one is not a simulated device.
    """
    if devices == "all":
        return [None] * gpus
    names = [name.strip() for name in devices.split(",")]
    if real := next((name for name in names if not name.startswith(("sim:", "faulty:"))), None):
        raise UnknownName(f"--ray uses every GPU of the cluster: leave out --device {real}, or give sim: devices")
    for name in dict.fromkeys(names):
        check_named(name)
    return [names[i % len(names)] for i in range(gpus)]


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to the cluster of this host ("auto") or at "HOST:PORT"; at the end Ray stops what still runs there.

    Raises ToolMissing without Ray; DeviceError if no cluster replies, or none of its nodes claims a GPU.
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
    """Raise ToolMissing without a suitable Ray."""
    try:
        installed = version("ray")
    except PackageNotFoundError:
        raise ToolMissing(f"--ray needs Ray, which is not installed: {RAY}") from None
    if tuple(int(part) for part in installed.split(".")[:2]) < OLDEST:
        raise ToolMissing(f"--ray needs Ray {OLDEST[0]}.{OLDEST[1]} or a newer one, here is {installed}: {RAY}")


def _knock(address: str) -> None:
    """Raise DeviceError if nothing listens at the address."""
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
        raise DeviceError(f"no Ray cluster replies at {address}: {getattr(e, 'strerror', None) or e}") from None


def _gpus(address: str, driver: Connection) -> list[FleetGpu]:
    try:
        found: list[FleetGpu] | str = driver.recv() if driver.poll(CONNECTING) else ""
    except EOFError:
        found = ""
    if isinstance(found, str):
        raise DeviceError(_why_none(address, found))
    if not found:
        raise DeviceError(f"no node of the Ray cluster at {address} claims a GPU: `ray status` shows what they claim")
    return found


def _why_none(address: str, reason: str) -> str:
    words = " ".join(reason.split()).rstrip(".")
    if "ersion mismatch" in reason:
        return f"the Ray cluster at {address} has other versions than this host: {words}"
    if address == "auto" and "Could not find any running Ray" in reason:
        return "there is no Ray cluster on this host: `ray start --address HOST:PORT` joins one, --ray HOST:PORT names one"
    return f"no Ray cluster replies at {address}" + (f": {words}" if words else f" within {CONNECTING:.0f} s")

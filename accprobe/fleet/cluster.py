"""Health of every GPU of a Ray cluster: the connection to it, and the outcomes that its driver process sends."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection

from accprobe.build.install import RAY
from accprobe.errors import DeviceError, ToolMissing, UnknownName
from accprobe.fleet.driver import FleetGpu, drive
from accprobe.health.check import check_named
from accprobe.health.outcome import OnOutcome
from accprobe.health.plan import CheckPlan
from accprobe.survey.workers import interrupts_held_back

# The first version of Ray with placement groups that stay on a given node (ray-project/ray#55599).
OLDEST = 2, 51

# Seconds within which a listening address accepts a connection, and within which a cluster must reply; Ray waits for minutes.
KNOCKING, CONNECTING = 3.0, 20.0


def check_cluster(
    driver: Connection,
    gpus: Sequence[FleetGpu],
    devices: Sequence[str | None],
    plan: CheckPlan,
    patience: float,
    on_change: OnOutcome,
) -> None:
    """Check all GPUs at once. devices: the simulated device that replaces each, or None.

    patience: seconds after its last outcome, or after the planned end, when a GPU counts as hanging. on_change: called with
    each change, and with each unfinished GPU if the cluster is lost.
    """
    latest = [gpu.unopened(device) for gpu, device in zip(gpus, devices, strict=True)]
    driver.send((devices, plan, patience))
    try:
        while not all(gpu.ended for gpu in latest):
            index, latest[index] = driver.recv()
            on_change(index, latest[index])
    except EOFError:
        for index, so_far in enumerate(latest):
            if not so_far.ended:
                on_change(index, so_far.stopped("the Ray cluster is lost: the process that is connected to it has ended"))


def replacements(devices: str, gpus: int) -> list[str | None]:
    """Return the simulated device that replaces each GPU: names separated by commas in turn; None for "all".

    Raises UnknownName if one is not a simulated device.
    """
    if devices == "all":
        return [None] * gpus
    names = [name.strip() for name in devices.split(",")]
    for name in dict.fromkeys(names):
        if not name.startswith(("sim:", "faulty:")):
            raise UnknownName(f"--ray uses every GPU of the cluster: leave out --device {name}, or give sim: devices")
        check_named(name)
    return [names[i % len(names)] for i in range(gpus)]


@contextmanager
def connected(address: str) -> Iterator[tuple[list[FleetGpu], Connection]]:
    """Connect to the cluster of this host ("auto") or at "HOST:PORT"; yield its GPUs, node by node, and the driver's pipe.

    At the end Ray stops what still runs there. Raises ToolMissing without a suitable Ray; DeviceError if no cluster replies, or
    none of its nodes claims a GPU.
    """
    _check_ray()
    if address != "auto":
        _check_address(address)
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    driver = context.Process(target=drive, args=(address, theirs), daemon=True)
    with interrupts_held_back():
        driver.start()
    theirs.close()
    try:
        yield _gpus(address, mine), mine
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


def _check_address(address: str) -> None:
    """Raise DeviceError unless the address is HOST:PORT and something listens there."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
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
    if found == []:
        raise DeviceError(f"no node of the Ray cluster at {address} claims a GPU: `ray status` shows what they claim")
    if not isinstance(found, str):
        return found
    if address == "auto" and "Could not find any running Ray" in found:
        raise DeviceError(
            "there is no Ray cluster on this host: `ray start --address HOST:PORT` joins one, --ray HOST:PORT names one"
        )
    reason = f": {' '.join(found.split())}".rstrip(".") if found else f" within {CONNECTING:.0f} s"
    raise DeviceError(f"no Ray cluster replies at {address}{reason}")

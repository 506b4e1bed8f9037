"""The process that is Ray's driver: it starts a check on each GPU and sends the outcomes to the command.

It is a process of its own because Ray prints, takes over signals, and ends its driver if the cluster is lost.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import accprobe
from accprobe.errors import AccprobeError
from accprobe.health.check import check_gpu
from accprobe.health.outcome import ClusterNode, GpuOutcome
from accprobe.health.plan import CheckPlan
from accprobe.survey.workers import end_with_parent

# Seconds to wait for results before late tasks are handled, and between two checks for dead nodes.
RESULT_POLL, NODE_CHECK = 0.2, 2.0

# Seconds within which Ray must find a free GPU and start a process for it.
STARTING = 120.0


@dataclass(frozen=True)
class FleetGpu:
    """A GPU that a node claims. address: of the node; node: Ray's id, hexadecimal; number: which of `count`, in no order."""

    address: str
    node: str
    number: int
    count: int

    def unopened(self, device: str | None) -> GpuOutcome:
        """Return the outcome before anything is known. device: the simulated device that replaces the GPU, or None."""
        name = device or f"GPU {self.number + 1} of {self.count}"
        return GpuOutcome.unopened(name).model_copy(update={"node": ClusterNode(address=self.address, id=self.node)})


def drive(address: str, client: Connection) -> None:
    """Send the list of GPUs, or a text that says why there is no cluster; then check them as the reply says."""
    end_with_parent()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as e:  # Ray raises half a dozen kinds, RuntimeError among them
        client.send(str(e))
        return
    gpus = []
    for node in sorted(ray.nodes(), key=lambda node: (node["NodeManagerAddress"], node["NodeID"])):
        count = int(node["Resources"].get("GPU", 0)) if node["Alive"] else 0
        gpus += [FleetGpu(node["NodeManagerAddress"], node["NodeID"], number, count) for number in range(count)]
    client.send(gpus)
    with suppress(EOFError, OSError):  # the command has ended
        devices, plan, patience = client.recv()
        Checks(gpus, devices, plan, patience, client).run()


@dataclass
class _Running:
    """The check of a GPU. began: whether its process has sent an outcome; heard: when the last outcome came."""

    index: int
    started: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    began: bool = False


class Checks:
    """The checks of all GPUs. A check is repeated once if its process died, unless results had differed before."""

    def __init__(
        self, gpus: Sequence[FleetGpu], devices: Sequence[str | None], plan: CheckPlan, patience: float, client: Connection
    ) -> None:
        from ray.util.placement_group import placement_group

        self._gpus, self._devices, self._plan, self._patience, self._client = gpus, devices, plan, patience, client
        self._latest = [gpu.unopened(device) for gpu, device in zip(gpus, devices, strict=True)]
        self._running: dict[Any, _Running] = {}
        # Each group keeps one GPU for good, so that a repeated check runs on the same GPU.
        self._places = [placement_group([{"GPU": 1}], bundle_label_selector=[{"ray.io/node-id": gpu.node}]) for gpu in gpus]

    def run(self) -> None:
        import ray

        for index in range(len(self._gpus)):
            self._begin(index)
        nodes_checked = time.monotonic()
        while self._running:
            ready, _ = ray.wait(list(self._running), num_returns=1, timeout=RESULT_POLL)
            if ready:
                ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
            for generator in ready:
                self._receive(generator)
            self._cancel_late()
            if time.monotonic() - nodes_checked > NODE_CHECK:
                self._drop_dead_nodes()
                nodes_checked = time.monotonic()

    def _begin(self, index: int) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        gpu = self._gpus[index]
        remote = ray.remote(
            num_cpus=0,
            num_gpus=1,
            max_retries=0,  # `_died` decides whether a check is repeated
            name=f"accprobe: GPU {gpu.number + 1} of {gpu.count} on {gpu.address} ({gpu.node[:8]})",
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._places[index], 0),
        )(check_on_node)
        device, so_far = self._devices[index], self._latest[index]
        self._running[remote.remote(accprobe.__version__, device, self._plan, so_far)] = _Running(index)

    def _receive(self, generator: Any) -> None:
        import ray
        from ray.exceptions import NodeDiedError, RayError, RayTaskError

        running = self._running[generator]
        so_far = self._latest[running.index]
        try:
            outcome = ray.get(next(generator))
        except StopIteration:
            del self._running[generator]
            if not so_far.ended:
                self._send(running.index, so_far.stopped("its process ended before the check did"))
        except RayTaskError as e:
            self._fail(generator, _raised(e))
        except RayError as e:
            self._died(generator, "its node died" if isinstance(e, NodeDiedError) else "its process died")
        else:
            self._send(running.index, outcome)
            running.began, running.heard = True, time.monotonic()

    def _died(self, generator: Any, reason: str) -> None:
        index = self._running[generator].index
        so_far = self._latest[index].model_copy(update={"deaths": self._latest[index].deaths + 1})
        if so_far.deaths == 1 and not so_far.wrong:
            del self._running[generator]
            self._send(index, so_far)
            self._begin(index)
        else:
            self._latest[index] = so_far
            self._fail(generator, f"{reason}, {so_far.deaths} times" if so_far.deaths > 1 else reason)

    def _fail(self, generator: Any, reason: str) -> None:
        index = self._running.pop(generator).index
        self._send(index, self._latest[index].stopped(reason))

    def _send(self, index: int, outcome: GpuOutcome) -> None:
        self._latest[index] = outcome
        self._client.send((index, outcome))

    def _cancel_late(self) -> None:
        import ray

        now = time.monotonic()
        for generator, running in list(self._running.items()):
            due = min(running.heard, running.started + self._plan.seconds) + self._patience
            if now > (due if running.began else running.started + STARTING):
                ray.cancel(generator, force=True)
                silent = now > running.heard + self._patience
                hangs = f"it hangs: {'no result for' if silent else 'not finished'} {self._patience:.0f} s"
                hangs += "" if silent else " after the planned end"
                waits = f"no process began on its node within {STARTING:.0f} s: other work of the cluster may have the GPU"
                self._fail(generator, hangs if running.began else waits)

    def _drop_dead_nodes(self) -> None:
        import ray

        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        for generator, running in list(self._running.items()):
            if self._gpus[running.index].node not in alive:
                self._fail(generator, "its node died")


def _raised(error: Exception) -> str:
    """Return the message of an exception on a node, without its traceback."""
    last = str(error).strip().splitlines()[-1]
    kind, _, text = last.partition(": ")
    if "ModuleNotFoundError" in kind or "ImportError" in kind:
        return f"accprobe cannot be imported there ({text}): install accprobe {accprobe.__version__} on every node"
    return text if kind.startswith("accprobe.errors.") else last


def check_on_node(version: str, device: str | None, plan: CheckPlan, before: GpuOutcome) -> Iterator[GpuOutcome]:
    """Yield the outcomes of a check under the cluster's name of the GPU. Most processes see one GPU, as cuda:0.

    version: of the accprobe that sent the task. before: the outcome so far. Raises AccprobeError if another accprobe is
    installed here.
    """
    import ray

    if accprobe.__version__ != version:
        raise AccprobeError(f"accprobe {accprobe.__version__} is installed there, not {version}: install the same everywhere")
    (gpu,) = ray.get_runtime_context().get_accelerator_ids()["GPU"]
    assert before.node is not None
    shown = device or f"cuda:{gpu}"
    ours = {"device": shown, "node": before.node.model_copy(update={"gpu": gpu}), "deaths": before.deaths}
    yield before.model_copy(update=ours)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")  # one GPU, unless Ray is set not to narrow it
    name = device or f"cuda:{visible.index(gpu) if gpu in visible else int(gpu)}"
    for so_far in check_gpu(name, plan):
        ours |= {"reason": so_far.reason.replace(name, shown), "name": so_far.name if so_far.kind else shown}
        yield so_far.model_copy(update=ours)

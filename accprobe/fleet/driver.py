"""The process that is Ray's driver: it starts tasks on GPUs and reports their events.

It is a process of its own because Ray prints, takes over signals, and ends its driver if the cluster is lost.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal

import accprobe
from accprobe.errors import AccprobeError
from accprobe.survey.workers import end_with_parent

RESULT_POLL = 0.2
"""Seconds to wait for results before new tasks and late ones are handled."""

STARTING = 120.0
"""Seconds within which Ray must find a free GPU and start a process for it."""

NODE_CHECK = 2.0
"""Seconds between two checks for dead nodes."""

Work = Callable[..., Iterator[str]]
"""A generator function of a module; its arguments are the device's name on its node, and those of the task."""


@dataclass(frozen=True)
class FleetGpu:
    """A GPU that a node claims. address: of the node; node: Ray's id, hexadecimal; number: which of `count`, in no order."""

    address: str
    node: str
    number: int
    count: int


@dataclass(frozen=True)
class Task:
    """Work for the GPU of that index in the cluster's list.

    device: a simulated device that replaces the GPU, or None. seconds: how long the work takes; patience: seconds after which
    silence counts as hanging.
    """

    gpu: int
    work: Work
    arguments: tuple[Any, ...]
    device: str | None
    seconds: float
    patience: float


@dataclass(frozen=True)
class FleetEvent:
    """An event of a GPU's task. text: of "began" the number that Ray gave the GPU, of "said" a text of the work, of
    "died" and "failed" the reason; after "failed" a second try is useless.
    """

    gpu: int
    what: Literal["began", "said", "ended", "died", "failed"]
    text: str = ""


def drive(address: str, client: Connection) -> None:
    """Send the list of GPUs, or a text that says why there is no cluster; then run tasks until the other end closes."""
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
    try:
        _Driver(gpus, client).serve()
    except (EOFError, OSError):  # the command has ended
        ray.shutdown()


@dataclass
class _Running:
    task: Task
    started: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    began: bool = False

    @property
    def due(self) -> float:
        if not self.began:
            return self.started + STARTING
        return min(self.heard, self.started + self.task.seconds) + self.task.patience


class _Driver:
    def __init__(self, gpus: list[FleetGpu], client: Connection) -> None:
        from ray.util.placement_group import placement_group

        self._gpus, self._client = gpus, client
        self._running: dict[Any, _Running] = {}
        # Each group keeps one GPU for good, so that all tasks of an index run on the same GPU.
        self._places = [placement_group([{"GPU": 1}], bundle_label_selector=[{"ray.io/node-id": gpu.node}]) for gpu in gpus]
        self._checked = time.monotonic()
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        """Read without a pause: reports are larger than a pipe, and neither end may wait for the other."""
        try:
            while True:
                self._tasks.put(self._client.recv())
        except (EOFError, OSError):
            self._tasks.put(None)

    def serve(self) -> None:
        """Serve until the other end closes, which raises EOFError."""
        import ray

        while True:
            while not (self._running and self._tasks.empty()):
                self._begin(self._tasks.get())
            generators = list(self._running)
            if ray.wait(generators, num_returns=1, timeout=RESULT_POLL)[0]:
                for generator in ray.wait(generators, num_returns=len(generators), timeout=0)[0]:
                    self._forward(generator)
            self._cancel_late()
            if time.monotonic() - self._checked > NODE_CHECK:
                self._drop_dead_nodes()

    def _begin(self, task: Task | None) -> None:
        if task is None:
            raise EOFError
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        gpu = self._gpus[task.gpu]
        remote = ray.remote(
            num_cpus=0,
            num_gpus=1,
            max_retries=0,  # the command decides whether a task is repeated
            name=f"accprobe: GPU {gpu.number + 1} of {gpu.count} on {gpu.address} ({gpu.node[:8]})",
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._places[task.gpu], 0),
        )(run_on_node)
        self._running[remote.remote(accprobe.__version__, task.work, task.device, task.arguments)] = _Running(task)

    def _forward(self, generator: Any) -> None:
        import ray
        from ray.exceptions import NodeDiedError, RayError, RayTaskError

        running = self._running[generator]
        try:
            text = ray.get(next(generator))
        except StopIteration:
            self._end(generator, "ended")
        except RayTaskError as e:
            self._end(generator, "failed", _raised(e))
        except RayError as e:
            self._end(generator, "died", "its node died" if isinstance(e, NodeDiedError) else "its process died")
        else:
            self._client.send(FleetEvent(running.task.gpu, "said" if running.began else "began", text))
            running.began, running.heard = True, time.monotonic()

    def _end(self, generator: Any, what: Literal["ended", "died", "failed"], text: str = "") -> None:
        self._client.send(FleetEvent(self._running.pop(generator).task.gpu, what, text))

    def _cancel_late(self) -> None:
        import ray

        now = time.monotonic()
        for generator, running in list(self._running.items()):
            if now > running.due:
                ray.cancel(generator, force=True)
                hangs = f"it hangs: no result for {running.task.patience:.0f} s"
                waits = f"no process began on its node within {STARTING:.0f} s: other work of the cluster may have the GPU"
                self._end(generator, "failed", hangs if running.began else waits)

    def _drop_dead_nodes(self) -> None:
        import ray

        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        for generator, running in list(self._running.items()):
            if self._gpus[running.task.gpu].node not in alive:
                self._end(generator, "failed", "its node died")
        self._checked = time.monotonic()


def _raised(error: Exception) -> str:
    """Return the message of an exception on a node, without its traceback."""
    last = str(error).strip().splitlines()[-1]
    kind, _, text = last.partition(": ")
    if "ModuleNotFoundError" in kind or "ImportError" in kind:
        return f"accprobe cannot be imported there ({text}): install accprobe {accprobe.__version__} on every node"
    return text if kind.startswith("accprobe.errors.") else last


def run_on_node(version: str, work: Work, device: str | None, arguments: tuple[Any, ...]) -> Iterator[str]:
    """Yield the number of the GPU that Ray gave this process, then the texts of the work.

    version: of the accprobe that sent the task. Raises AccprobeError where another one is installed here; in errors of the work
    the GPU has its name on the node, as this process sees that GPU only.
    """
    import ray

    if accprobe.__version__ != version:
        raise AccprobeError(f"accprobe {accprobe.__version__} is installed there, not {version}: install the same everywhere")
    (gpu,) = ray.get_runtime_context().get_accelerator_ids()["GPU"]
    yield gpu
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")  # one GPU, unless Ray is set not to narrow it
    name = device or f"cuda:{visible.index(gpu) if gpu in visible else int(gpu)}"
    try:
        yield from work(name, *arguments)
    except AccprobeError as e:
        raise AccprobeError(str(e).replace(name, device or f"cuda:{gpu}")) from None

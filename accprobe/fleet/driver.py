"""The process that is Ray's driver: it hands out work and tells what becomes of it.

A process of its own, as Ray prints what it likes, takes over signals, and ends its driver where the cluster is lost.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any

import accprobe
from accprobe.fleet.events import FleetEvent, FleetGpu, NoCluster, Task
from accprobe.fleet.worker import working
from accprobe.survey.workers import end_with_parent

LISTENING = 0.2
"""Seconds for which results are waited for before there is a look at errands and at what is late."""

BEGINNING = 120.0
"""Seconds within which Ray has to find a GPU free and to start a process for it."""

LOOK = 2.0
"""Seconds between two looks for nodes that died."""


def drive(address: str, asker: Connection) -> None:
    """Answers with a list of `FleetGpu`, or `NoCluster`; then takes `Errand`s and tells `News` until the other end closes."""
    end_with_parent()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as e:  # Ray raises half a dozen kinds, RuntimeError among them
        asker.send(NoCluster(str(e)))
        return
    nodes = sorted(
        (node for node in ray.nodes() if node["Alive"]), key=lambda node: (node["NodeManagerAddress"], node["NodeID"])
    )
    claimed = [(node, int(node["Resources"].get("GPU", 0))) for node in nodes]
    gpus = [
        FleetGpu(node["NodeManagerAddress"], node["NodeID"], number, count)
        for node, count in claimed
        for number in range(count)
    ]
    asker.send(gpus)
    try:
        _Driver(gpus, asker).serve()
    except (EOFError, OSError):  # nobody listens any longer
        ray.shutdown()


@dataclass
class _Running:
    errand: Task
    started: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    began: bool = False

    @property
    def due(self) -> float:
        if not self.began:
            return self.started + BEGINNING
        return min(self.heard, self.started + self.errand.seconds) + self.errand.patience


class _Driver:
    def __init__(self, gpus: list[FleetGpu], asker: Connection) -> None:
        from ray.util.placement_group import placement_group

        self._gpus, self._asker = gpus, asker
        self._running: dict[Any, _Running] = {}
        # Each holds one GPU for good: whatever is asked of that place later, is asked of the same one.
        self._places = [placement_group([{"GPU": 1}], bundle_label_selector=[{"ray.io/node-id": gpu.node}]) for gpu in gpus]
        self._looked = time.monotonic()
        self._errands: SimpleQueue[Task | None] = SimpleQueue()
        Thread(target=self._take_errands, daemon=True).start()

    def _take_errands(self) -> None:
        """All the time, so that neither end waits for the other to read: reports are larger than a pipe."""
        try:
            while True:
                self._errands.put(self._asker.recv())
        except (EOFError, OSError):
            self._errands.put(None)

    def serve(self) -> None:
        import ray

        while True:
            while not (self._running and self._errands.empty()):
                self._begin(self._errands.get())
            generators = list(self._running)
            if ray.wait(generators, num_returns=1, timeout=LISTENING)[0]:
                for generator in ray.wait(generators, num_returns=len(generators), timeout=0)[0]:
                    self._listen(generator)
            self._give_up_what_is_late()
            if time.monotonic() - self._looked > LOOK:
                self._give_up_what_was_on_dead_nodes()

    def _begin(self, errand: Task | None) -> None:
        """Raises EOFError where none will come any more."""
        if errand is None:
            raise EOFError
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        gpu = self._gpus[errand.gpu]
        task = ray.remote(
            num_cpus=0,
            num_gpus=1,
            max_retries=0,  # what died is told, and who is told decides
            name=f"accprobe: GPU {gpu.number + 1} of {gpu.count} on {gpu.address} ({gpu.node[:8]})",
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._places[errand.gpu], 0),
        )(working)
        self._running[task.remote(accprobe.__version__, errand.work, errand.device, errand.arguments)] = _Running(errand)

    def _listen(self, generator: Any) -> None:
        import ray
        from ray.exceptions import RayError, RayTaskError

        running = self._running[generator]
        try:
            text = ray.get(next(generator))
        except StopIteration:
            self._end(generator, "ended")
        except RayTaskError as e:
            self._end(generator, "failed", _raised(e))
        except RayError as e:
            self._end(generator, "died", _how(e))
        else:
            self._asker.send(FleetEvent(running.errand.gpu, "said" if running.began else "began", text))
            running.began, running.heard = True, time.monotonic()

    def _end(self, generator: Any, what: Any, text: str = "") -> None:
        self._asker.send(FleetEvent(self._running.pop(generator).errand.gpu, what, text))

    def _give_up_what_is_late(self) -> None:
        import ray

        now = time.monotonic()
        for generator, running in list(self._running.items()):
            if now > running.due:
                ray.cancel(generator, force=True)
                self._end(generator, "failed", self._why_late(running))

    def _why_late(self, running: _Running) -> str:
        from ray.util.placement_group import placement_group_table

        if running.began:
            return f"it hangs: nothing came back for {running.errand.patience:.0f} s"
        if placement_group_table(self._places[running.errand.gpu])["state"] == "PENDING":
            return f"no GPU came free on its node within {BEGINNING:.0f} s: other work of the cluster has it"
        return f"no process began on its node within {BEGINNING:.0f} s"

    def _give_up_what_was_on_dead_nodes(self) -> None:
        import ray

        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        for generator, running in list(self._running.items()):
            if self._gpus[running.errand.gpu].node not in alive:
                self._end(generator, "failed", "its node died")
        self._looked = time.monotonic()


def _raised(error: Exception) -> str:
    """What an exception on a node says, without where it was raised."""
    last = str(error).strip().splitlines()[-1]
    kind, _, text = last.partition(": ")
    if "ModuleNotFoundError" in kind or "ImportError" in kind:
        return f"accprobe cannot be imported there ({text}): install accprobe {accprobe.__version__} on every node"
    return text if kind.startswith("accprobe.errors.") else last


def _how(error: Exception) -> str:
    from ray.exceptions import NodeDiedError, OutOfMemoryError

    if isinstance(error, NodeDiedError):
        return "its node died"
    if isinstance(error, OutOfMemoryError):
        return "Ray ended its process, as its node had too little memory"
    return "its process died"

"""A Ray cluster on one machine whose nodes claim GPUs that do not exist: `with SimulatedCluster(2) as cluster: cluster.add(3)`.

It runs in its own process, because Ray warns and installs handlers: this file is the program, which adds a node for each line
of its input. It starts as few of Ray's processes as Ray allows, and reports nothing to the makers of Ray.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

LITTLE_MEMORY = 80_000_000
"""Bytes of a node's object store: near the least that Ray takes."""

LONG = 300.0
"""Seconds after which a wait has failed."""

LATE = 200_000
"""Milliseconds after which Ray gives up a process that lives but does not reply; a dead one refuses at once."""


class SimulatedCluster:
    """gpus: number that the first node, the head, claims. nodes: ids of all nodes, in order of their start.

    slowest: the longest start of a node in seconds, a measure of the load of this machine.
    """

    def __init__(self, gpus: int = 0) -> None:
        self._gpus = gpus
        self.nodes: list[str] = []
        self.slowest = 0.0

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="ray.")  # short: paths of sockets are
        self._held = Path(self._folder, "held")
        self._held.mkdir()
        self.environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": self._folder}
        on_nodes = {
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "simulated_node"), *sys.path]),
            "HELD": str(self._held),
            "RAY_memory_monitor_refresh_ms": "0",  # else Ray ends workers where others of this machine take the memory
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self._gpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.environment | on_nodes,
        )
        self.address: str = self._reply()
        self.nodes.append(self._reply())
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its input, on which it ends, and waits
            pass
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, gpus: int, **environment: str) -> str:
        """Add a node that claims so many GPUs, and return its id."""
        assert self._process.stdin is not None
        started = time.monotonic()
        print(json.dumps([gpus, environment]), file=self._process.stdin, flush=True)
        self.nodes.append(self._reply())
        self.slowest = max(self.slowest, time.monotonic() - started)
        return self.nodes[-1]

    def hold(self, node: str, gpu: int) -> None:
        """Make later checks of that GPU (1: the first of a node) print their first results and then wait."""
        self._hold(node, gpu).write_text("")

    def let_go(self, node: str, gpu: int) -> None:
        """Let later checks run through."""
        self._hold(node, gpu).unlink()

    def held(self, node: str, gpu: int) -> int:
        """Wait until a check waits, and return its process id, each once."""
        file, until = self._hold(node, gpu), time.monotonic() + LONG
        while not (said := file.read_text()).endswith("\n"):
            assert time.monotonic() < until, f"no check of GPU {gpu} of {node} began"
            time.sleep(0.05)
        file.write_text("")
        return int(said)

    def _hold(self, node: str, gpu: int) -> Path:
        return self._held / f"{node[:8]} {gpu}"

    def _reply(self) -> Any:
        while not (line := self._process.stdout.readline()).startswith("reply "):
            assert line, "the cluster ended"
        return json.loads(line.removeprefix("reply "))


def kill_node(node: str) -> None:
    """End all processes of a node at once, as a power failure does: first the one that would report the others."""
    raylet, workers = [], []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if "raylet/raylet" in words and f"--node_id={node}" in words:
            raylet.append(int(folder.name))
        elif words.startswith("ray::accprobe") and node[:8] in words:
            workers.append(int(folder.name))
    for process in raylet + workers:
        os.kill(process, signal.SIGKILL)


def _serve(gpus_of_head: int) -> None:
    from ray.cluster_utils import Cluster

    little = {"num_cpus": 0, "object_store_memory": LITTLE_MEMORY, "include_log_monitor": False}
    cluster = Cluster(
        initialize_head=True,
        head_node_args=little
        | {
            "num_gpus": gpus_of_head,
            "include_dashboard": False,
            "no_monitor": True,
            "_system_config": {
                "health_check_period_ms": 1000,
                "health_check_failure_threshold": 3,
                "health_check_timeout_ms": LATE,
                "agent_register_timeout_ms": LATE,
                "worker_register_timeout_seconds": LATE // 1000,
            },
        },
    )
    _send(cluster.address)
    _send(cluster.head_node.node_id)
    for line in sys.stdin:
        gpus, environment = json.loads(line)
        _send(cluster.add_node(num_gpus=gpus, env_vars={**os.environ, **environment}, **little).node_id)
    cluster.shutdown()


def _send(reply: str) -> None:
    print("reply", json.dumps(reply), flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))

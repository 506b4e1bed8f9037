"""A Ray cluster on one machine whose nodes claim GPUs that nobody has: `with SimulatedCluster(2) as cluster: cluster.add(3)`.

It runs in a process of its own, as Ray warns and installs handlers; that is this file as a program, which adds a node for each
line of its input. Of Ray's own processes as few are started as it lets one choose. Nothing is reported to Ray's makers.
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
"""Seconds after which something that must come will not."""

LATE = 200_000
"""Milliseconds after which Ray gives up what lives and does not answer; what is dead refuses at once."""


class SimulatedCluster:
    """Its first node, the head, claims so many GPUs. nodes: the ids of all, in the order in which they came.

    slowest: seconds that a node took to start at most, which tells how busy this machine is.
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
            "PYTHONPATH": str(Path(__file__).parent / "simulated_node"),
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
        self.address: str = self._answer()
        self.nodes.append(self._answer())
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its input, on which it ends, and waits
            pass
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, gpus: int, **environment: str) -> str:
        """A node that claims so many GPUs; its id."""
        assert self._process.stdin is not None
        started = time.monotonic()
        print(json.dumps([gpus, environment]), file=self._process.stdin, flush=True)
        self.nodes.append(self._answer())
        self.slowest = max(self.slowest, time.monotonic() - started)
        return self.nodes[-1]

    def hold(self, node: str, gpu: int) -> None:
        """From now on a check of that GPU, 1 is the first of a node, tells its first results, and then waits to be ended."""
        self._hold(node, gpu).write_text("")

    def let_go(self, node: str, gpu: int) -> None:
        """Those that begin from now on do not wait."""
        self._hold(node, gpu).unlink()

    def held(self, node: str, gpu: int) -> int:
        """The process of the check that waits, as soon as it does; each is told once."""
        file, until = self._hold(node, gpu), time.monotonic() + LONG
        while not (said := file.read_text()).endswith("\n"):
            assert time.monotonic() < until, f"no check of GPU {gpu} of {node} began"
            time.sleep(0.05)
        file.write_text("")
        return int(said)

    def _hold(self, node: str, gpu: int) -> Path:
        return self._held / f"{node[:8]} {gpu}"

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        while not (line := self._process.stdout.readline()).startswith("answer "):
            assert line, "the cluster ended"
        return json.loads(line.removeprefix("answer "))


def kill_node(node: str) -> None:
    """As if its power went: all of its processes end at once, first the one that would tell that the others did."""
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
    _tell(cluster.address)
    _tell(cluster.head_node.node_id)
    for line in sys.stdin:
        gpus, environment = json.loads(line)
        _tell(cluster.add_node(num_gpus=gpus, env_vars={**os.environ, **environment}, **little).node_id)
    cluster.shutdown()


def _tell(answer: str) -> None:
    print("answer", json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))

"""A Ray cluster on one machine whose nodes claim GPUs that nobody has: `with SimulatedCluster() as cluster: cluster.add(3)`.

It runs in a process of its own, as Ray warns and installs handlers; that is this file as a program, which adds a node for each
line of its input. Nothing is reported to Ray's makers.
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


class SimulatedCluster:
    """The head claims no GPU."""

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="ray.")  # short: paths of sockets are
        self.environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": self._folder}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.environment,
        )
        self.address: str = self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its input, on which it ends, and waits
            pass
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, gpus: int, **environment: str) -> str:
        """A node that claims so many GPUs; its id."""
        assert self._process.stdin is not None
        print(json.dumps([gpus, environment]), file=self._process.stdin, flush=True)
        node: str = self._answer()
        return node

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        while not (line := self._process.stdout.readline()).startswith("answer "):
            assert line, "the cluster ended"
        return json.loads(line.removeprefix("answer "))


def worker(node: str, gpu: int, timeout: float = 60.0) -> int:
    """The process that checks that GPU of a node, as soon as there is one."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        for process, words in _processes():
            if words.startswith("ray::accprobe") and f"GPU {gpu} of" in words and node[:8] in words:
                return process
        time.sleep(0.1)
    raise TimeoutError(f"no process for GPU {gpu} of {node}")


def kill_node(node: str) -> None:
    """As if its power went: all of its processes end at once."""
    for process, words in _processes():
        is_raylet = "raylet/raylet" in words and f"--node_id={node}" in words
        if is_raylet or (words.startswith("ray::accprobe") and node[:8] in words):
            os.kill(process, signal.SIGKILL)


def _processes() -> list[tuple[int, str]]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        found.append((int(folder.name), words))
    return found


def _serve() -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "num_gpus": 0,
            "include_dashboard": False,
            "object_store_memory": LITTLE_MEMORY,
            "_system_config": {"health_check_period_ms": 1000, "health_check_failure_threshold": 3},
        },
    )
    print("answer", json.dumps(cluster.address), flush=True)
    for line in sys.stdin:
        gpus, environment = json.loads(line)
        node = cluster.add_node(
            num_cpus=0, num_gpus=gpus, object_store_memory=LITTLE_MEMORY, env_vars={**os.environ, **environment}
        )
        print("answer", json.dumps(node.node_id), flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    _serve()

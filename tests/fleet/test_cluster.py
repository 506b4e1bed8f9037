"""`--ray` on a cluster of this machine: nodes claim GPUs, simulated devices stand in for them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster import LONG, SimulatedCluster, kill_node

pytest.importorskip("ray", reason="Ray is not installed; extra fleet")


def start(arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "accprobe", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True, env=environment, cwd="/")  # Ray puts its driver's folder on every path


def gpus_of(file: Path) -> list[dict[str, Any]]:
    outcome = json.loads(file.read_text())
    assert outcome["schema"] == 1
    gpus: list[dict[str, Any]] = outcome["gpus"]
    assert all("SIMULATED" in gpu["remark"] for gpu in gpus if gpu["dots"])
    return gpus


def is_quiet(errors: str) -> bool:
    """Nothing but sentences of ours."""
    return all(line.startswith("accprobe: ") for line in errors.splitlines())


@pytest.mark.slow  # it waits for a hanging process, longer than a busy machine delays one that runs
def test_what_errs_dies_and_hangs_is_named(tmp_path: Path) -> None:
    """Five GPUs of two nodes. Of the first node one errs, one is killed once, one is killed twice, one hangs; the second node
    loses its power. Each after its first results."""
    file = tmp_path / "health.json"
    with SimulatedCluster(4) as cluster:
        cluster.add(1)
        first, second = cluster.nodes
        before = 0 if first < second else 1
        devices = ",".join("faulty:h100" if i == before else "sim:h100" for i in range(5))
        for node, number in ((first, 2), (first, 3), (first, 4), (second, 1)):
            cluster.hold(node, number)
        patience = f"{max(12.0, 6 * cluster.slowest):.0f}"
        limits = ["--minutes", "10", "--patience", patience]
        asked = ["health", "--ray", cluster.address, "--device", devices, *limits, "-o", str(file)]
        checking = start(asked, cluster.environment)
        os.kill(cluster.held(first, 4), signal.SIGSTOP)
        unlucky, doomed = cluster.held(first, 2), cluster.held(first, 3)
        cluster.let_go(first, 2)
        for process in (doomed, unlucky):
            os.kill(process, signal.SIGKILL)
        os.kill(cluster.held(first, 3), signal.SIGKILL)
        cluster.held(second, 1)
        kill_node(second)
        out, errors = checking.communicate(timeout=LONG)
    assert checking.returncode == 1
    assert is_quiet(errors)
    told = {node: [gpu for gpu in gpus_of(file) if gpu["node"]["id"] == node] for node in cluster.nodes}
    erring, unlucky, died, hung = told[first]
    assert (erring["status"], erring["reason"], list(erring["wrong_by_sm"])) == ("differs", "", ["2"])
    assert (unlucky["status"], unlucky["reason"], unlucky["deaths"]) == ("healthy", "", 1)
    assert (died["status"], died["deaths"], died["reason"]) == ("failed", 2, "its process died, 2 times")
    assert (hung["status"], hung["reason"]) == ("failed", f"it hangs: no result for {patience} s")
    assert hung["dots"] > 0
    assert {gpu["node"]["gpu"] for gpu in told[first]} == {"0", "1", "2", "3"}
    assert all(gpu["finished"] for gpu in (erring, unlucky))
    assert [(gpu["status"], gpu["reason"]) for gpu in told[second]] == [("failed", "its node died")]

    assert "SIMULATED" in out
    for sentence in ("on SM 2", "its process died, 2 times", "it hangs", "died once, and it was begun again", "its node died"):
        assert sentence in out
    assert f"({second[:8]}): its node died" in errors

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


def test_what_errs_dies_and_hangs_is_named(tmp_path: Path) -> None:
    """Eight GPUs of three nodes. Of the first node one errs, one is killed, and killed again, one hangs; of the second one is
    killed once; the third node loses its power. Each when it has told its first results."""
    file = tmp_path / "health.json"
    with SimulatedCluster(3) as cluster:
        cluster.add(3)
        cluster.add(2)
        gpus = {node: 2 if i == 2 else 3 for i, node in enumerate(cluster.nodes)}
        first, second, third = sorted(cluster.nodes[:2]) + cluster.nodes[2:]
        before = sum(gpus[node] for node in sorted(gpus) if node < first)
        devices = ",".join("faulty:h100" if i == before else "sim:h100" for i in range(8))
        for node, number in ((first, 2), (first, 3), (second, 1), (third, 1), (third, 2)):
            cluster.hold(node, number)
        patience = f"{max(12.0, 6 * cluster.slowest):.0f}"
        limits = ["--minutes", "10", "--patience", patience]
        asked = ["health", "--ray", cluster.address, "--device", devices, *limits, "-o", str(file)]
        checking = start(asked, cluster.environment)
        os.kill(cluster.held(first, 3), signal.SIGSTOP)
        doomed, unlucky = cluster.held(first, 2), cluster.held(second, 1)
        cluster.let_go(second, 1)
        for process in (doomed, unlucky):
            os.kill(process, signal.SIGKILL)
        os.kill(cluster.held(first, 2), signal.SIGKILL)
        for number in (1, 2):
            cluster.held(third, number)
        kill_node(third)
        out, errors = checking.communicate(timeout=LONG)
    assert checking.returncode == 1
    assert is_quiet(errors)
    told = {node: [gpu for gpu in gpus_of(file) if gpu["node"]["id"] == node] for node in gpus}
    assert {node: len(outcomes) for node, outcomes in told.items()} == gpus

    erring, died, hung = told[first]
    assert (erring["status"], erring["reason"], list(erring["wrong_by_sm"])) == ("differs", "", ["2"])
    assert (died["status"], died["deaths"], died["reason"]) == ("failed", 2, "its process died, 2 times")
    assert (hung["status"], hung["reason"]) == ("failed", f"it hangs: nothing came back for {patience} s")
    assert hung["dots"] > 0
    assert {gpu["node"]["gpu"] for gpu in told[first]} == {"0", "1", "2"}

    assert [(gpu["status"], gpu["reason"], gpu["deaths"]) for gpu in told[second]] == [
        ("healthy", "", 1),
        ("healthy", "", 0),
        ("healthy", "", 0),
    ]
    assert all(gpu["finished"] for gpu in (erring, *told[second]))
    assert [(gpu["status"], gpu["reason"]) for gpu in told[third]] == [("failed", "its node died")] * 2

    assert "SIMULATED" in out
    for sentence in ("on SM 2", "its process died, 2 times", "it hangs", "died once, and it was begun again", "its node died"):
        assert sentence in out
    assert f"({third[:8]}): its node died" in errors

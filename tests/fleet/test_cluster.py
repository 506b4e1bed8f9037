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

INTERRUPTED = 130


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


@pytest.mark.slow
def test_a_cluster_in_all_else(tmp_path: Path) -> None:
    """One test, so that there is one cluster."""
    says_that_there_is_none()
    with SimulatedCluster() as cluster:
        says_that_nobody_claims_a_gpu(cluster)
        cluster.add(3)
        cluster.add(3)
        names_nodes_without_this_accprobe(cluster, tmp_path)
        keeps_what_it_saw(cluster, tmp_path / "interrupted.json")
        says_that_versions_differ(cluster, tmp_path)


def says_that_there_is_none() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    asked = start(["health", "--ray", "auto"], environment)
    out, errors = asked.communicate(timeout=LONG)
    assert (asked.returncode, out) == (2, "")
    assert "there is no Ray cluster on this host" in errors


def says_that_nobody_claims_a_gpu(cluster: SimulatedCluster) -> None:
    asked = start(["health", "--ray", cluster.address], cluster.environment)
    out, errors = asked.communicate(timeout=LONG)
    assert (asked.returncode, out) == (2, "")
    assert errors.startswith("accprobe: no node of the Ray cluster at ")
    assert "claims a GPU" in errors
    assert is_quiet(errors)


def names_nodes_without_this_accprobe(cluster: SimulatedCluster, folder: Path) -> None:
    """Six healthy GPUs, a node where accprobe cannot be imported, and one with another version."""
    absent, other = folder / "absent" / "accprobe", folder / "other"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'accprobe'\")")
    other.mkdir()
    (other / "sitecustomize.py").write_text("import accprobe\naccprobe.__version__ = '0.0.1'")
    without, old = cluster.add(1, PYTHONPATH=str(absent.parent)), cluster.add(1, PYTHONPATH=str(other))
    file = folder / "two-bad-nodes.json"
    asked = ["health", "--ray", cluster.address, "--device", "sim:h100", "--minutes", "0.001", "-o", str(file)]
    checking = start(asked, cluster.environment)
    _, errors = checking.communicate(timeout=LONG)
    assert checking.returncode == 2
    assert is_quiet(errors)
    reasons = {gpu["node"]["id"]: gpu["reason"] for gpu in gpus_of(file)}
    assert "accprobe cannot be imported there (No module named 'accprobe'): install accprobe " in reasons.pop(without)
    assert "accprobe 0.0.1 is installed there, not " in reasons.pop(old)
    assert set(reasons.values()) == {""}


def keeps_what_it_saw(cluster: SimulatedCluster, file: Path) -> None:
    """Interrupted when one GPU has ended; the others of its node are in the midst of it."""
    for number in (2, 3):
        cluster.hold(cluster.nodes[1], number)
    asked = ["health", "--ray", cluster.address, "--device", "sim:h100", "--minutes", "10", "-o", str(file)]
    checking = start(asked, cluster.environment)
    assert checking.stderr is not None
    assert any("healthy: " in line for line in checking.stderr)
    for number in (2, 3):
        cluster.held(cluster.nodes[1], number)
    checking.send_signal(signal.SIGTERM)  # as Ctrl-C, which a shell's background jobs ignore
    _, errors = checking.communicate(timeout=LONG)
    assert checking.returncode == INTERRUPTED
    assert "interrupted: " in errors
    gpus = gpus_of(file)
    assert any(gpu["finished"] and gpu["dots"] for gpu in gpus)
    assert sum(gpu["finished"] for gpu in gpus) <= len(gpus) - 2


def says_that_versions_differ(cluster: SimulatedCluster, folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import ray\nray.__version__ = '2.51.0'")
    asked = ["health", "--ray", cluster.address]
    asking = start(asked, cluster.environment | {"PYTHONPATH": str(folder)})
    _, errors = asking.communicate(timeout=LONG)
    assert asking.returncode == 2
    assert "has other versions than this host: Version mismatch" in errors
    assert is_quiet(errors)
    assert len(errors.splitlines()) == 1

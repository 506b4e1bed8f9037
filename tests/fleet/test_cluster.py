"""`--ray` on a cluster of this machine: nodes claim GPUs, simulated devices stand in for them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster import SimulatedCluster, kill_node, worker

from accprobe.report.report import Report

pytest.importorskip("ray", reason="Ray is not installed; extra fleet")

pytestmark = pytest.mark.slow
"""It mostly waits, more than a minute; on a busy machine what it waits for comes too late: `pytest -m slow tests/fleet`."""

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


def test_a_cluster_of_three_nodes_in_trouble(tmp_path: Path) -> None:
    """One test, so that there is one cluster: it takes a quarter of a minute to start."""
    says_that_there_is_none()
    with SimulatedCluster() as cluster:
        says_that_nobody_claims_a_gpu(cluster)
        nodes = [cluster.add(3), cluster.add(3), cluster.add(2)]
        names_what_errs_dies_and_hangs(cluster, nodes, tmp_path / "health.json")
        surveys_one_of_each_kind(cluster, tmp_path)
        keeps_what_it_saw(cluster, tmp_path / "interrupted.json")
        says_that_versions_differ(cluster, tmp_path)


def says_that_there_is_none() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    asked = start(["health", "--ray", "auto"], environment)
    out, errors = asked.communicate(timeout=120)
    assert (asked.returncode, out) == (2, "")
    assert "there is no Ray cluster on this host" in errors


def says_that_nobody_claims_a_gpu(cluster: SimulatedCluster) -> None:
    asked = start(["health", "--ray", cluster.address], cluster.environment)
    out, errors = asked.communicate(timeout=120)
    assert (asked.returncode, out) == (2, "")
    assert errors.startswith("accprobe: no node of the Ray cluster at ")
    assert "claims a GPU" in errors
    assert is_quiet(errors)


def names_what_errs_dies_and_hangs(cluster: SimulatedCluster, nodes: list[str], file: Path) -> None:
    """Eight GPUs. Of the first node one errs, one is killed, and killed again, one hangs; of the second one is killed once; the
    third node loses its power."""
    first, second, third = sorted(nodes[:2]) + nodes[2:]
    order = sorted(nodes)
    sick = sum(3 if node in nodes[:2] else 2 for node in order[: order.index(first)])
    devices = ",".join("sick:h100" if i == sick else "sim:h100" for i in range(8))
    limits = ["--minutes", "0.25", "--patience", "60"]
    checking = start(["health", "--ray", cluster.address, "--device", devices, *limits, "-o", str(file)], cluster.environment)
    doomed, hanging, unlucky = worker(first, 2), worker(first, 3), worker(second, 1)
    worker(third, 2)
    time.sleep(5)  # they are in the middle of it
    kill_node(third)
    os.kill(hanging, signal.SIGSTOP)
    for process in (doomed, unlucky):
        os.kill(process, signal.SIGKILL)
    time.sleep(1)
    again = worker(first, 2)
    time.sleep(3)
    os.kill(again, signal.SIGKILL)
    out, errors = checking.communicate(timeout=400)
    assert checking.returncode == 1
    assert is_quiet(errors)
    gpus = gpus_of(file)
    assert sorted(gpu["node"]["id"] for gpu in gpus) == sorted([first] * 3 + [second] * 3 + [third] * 2)
    told = {node: [gpu for gpu in gpus if gpu["node"]["id"] == node] for node in nodes}

    erring, died, hung = told[first]
    assert (erring["status"], erring["finished"], list(erring["wrong_by_sm"])) == ("differs", True, ["2"])
    assert (died["status"], died["deaths"], died["reason"]) == ("failed", 2, "its process died, 2 times")
    assert hung["status"] == "failed"
    assert "hangs: nothing came back for 60 s" in hung["reason"]
    assert {gpu["node"]["gpu"] for gpu in told[first]} == {"0", "1", "2"}

    assert [(gpu["status"], gpu["finished"], gpu["deaths"]) for gpu in told[second]] == [
        ("healthy", True, 1),
        ("healthy", True, 0),
        ("healthy", True, 0),
    ]
    assert [(gpu["status"], gpu["reason"]) for gpu in told[third]] == [("failed", "its node died")] * 2

    assert "SIMULATED" in out
    for sentence in ("on SM 2", "its process died, 2 times", "it hangs", "died once, and it was begun again", "its node died"):
        assert sentence in out
    assert f"({third[:8]}): its node died" in errors


def surveys_one_of_each_kind(cluster: SimulatedCluster, folder: Path) -> None:
    """Six GPUs that take part, of two kinds; a node where accprobe cannot be imported, and one that has another accprobe."""
    absent, other = folder / "absent" / "accprobe", folder / "other"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'accprobe'\")")
    other.mkdir()
    (other / "sitecustomize.py").write_text("import accprobe\naccprobe.__version__ = '0.0.1'")
    without, old = cluster.add(1, PYTHONPATH=str(absent.parent)), cluster.add(1, PYTHONPATH=str(other))
    wanted = ["--select", "mma.sync.m8n8k4.f64*", "--dots", "512", "--device", "sim:h100,sim:a100"]
    asking = start(["run", "--ray", cluster.address, *wanted, "-o", str(folder / "report.json")], cluster.environment)
    out, errors = asking.communicate(timeout=400)
    assert asking.returncode == 2
    assert is_quiet(errors)
    for chip in ("h100", "a100"):
        report = Report.load(folder / f"report-simulated-{chip}.json")
        assert [row.status for row in report.instructions] == ["simulated"]
    assert out.count("SIMULATED") == 2
    assert errors.count(": measured, into ") == 2
    assert errors.count("1 instructions, 512 dot products, none differs") == 4
    lines = {node: next(line for line in errors.splitlines() if f"({node[:8]}): " in line) for node in (without, old)}
    assert "accprobe cannot be imported there (No module named 'accprobe'): install accprobe " in lines[without]
    assert "accprobe 0.0.1 is installed there, not " in lines[old]
    assert errors.splitlines()[-1] == "accprobe: 6 of 8 GPUs were measured or verified, the others failed"


def keeps_what_it_saw(cluster: SimulatedCluster, file: Path) -> None:
    asked = ["health", "--ray", cluster.address, "--device", "sim:h100", "--minutes", "10", "-o", str(file)]
    checking = start(asked, cluster.environment)
    assert checking.stderr is not None
    for line in checking.stderr:  # until results of a GPU are told
        if "nothing differs so far: " in line:
            break
    checking.send_signal(signal.SIGTERM)  # as Ctrl-C, which a shell's background jobs ignore
    _, errors = checking.communicate(timeout=120)
    assert checking.returncode == INTERRUPTED
    assert "interrupted: " in errors
    assert sum(gpu["dots"] for gpu in gpus_of(file)) > 0


def says_that_versions_differ(cluster: SimulatedCluster, folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import ray\nray.__version__ = '2.51.0'")
    asked = ["health", "--ray", cluster.address]
    asking = start(asked, cluster.environment | {"PYTHONPATH": str(folder)})
    _, errors = asking.communicate(timeout=120)
    assert asking.returncode == 2
    assert "has other versions than this host: Version mismatch" in errors
    assert is_quiet(errors)
    assert len(errors.splitlines()) == 1

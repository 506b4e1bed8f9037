"""Set-up of a test run: examples of Hypothesis, and caches that all processes share.

Hypothesis draws the same examples in every run, unless `--hypothesis-profile=fresh` is given. A kernel is compiled and
disassembled once per run. One process compiles the evaluator before the first test.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import subprocess
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from once import compile_evaluator, folder_of_run, keep_disassemblies, once

if TYPE_CHECKING:
    from accprobe.devices.cuda import CudaDevice

gc.set_threshold(2_000, 20, 100)  # The tests make many objects at collection, none of which is garbage.

settings.register_profile("fixed", derandomize=True)
settings.register_profile("fresh", derandomize=False)
settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def without_progress_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the lines that a slow machine would see after ten seconds out of what commands print."""
    monkeypatch.setattr("accprobe.render.progress.BETWEEN_LINES", 1e9)


def pytest_xdist_auto_num_workers() -> int:
    """Return one more than the cores: many tests wait for a subprocess."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect in one process first; the others read its byte code. Meanwhile another process compiles the evaluator."""
    folder = folder_of_run(session.config._tmp_path_factory)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        if not session.config.pluginmanager.has_plugin("dsession"):
            return (yield)
        with subprocess.Popen([sys.executable, once.__code__.co_filename, folder / "evaluator"]):
            return (yield)
    with open(folder / "collecting", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
        return (yield)


def pytest_collection_finish() -> None:
    """Exclude the half a million objects of the collected tests from garbage collection, until the process ends."""
    gc.freeze()
    atexit.register(gc.unfreeze)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the tests of the cluster first: they wait longest."""
    items.sort(key=lambda item: item.path.name != "test_cluster.py")


@pytest.fixture(scope="session", autouse=True)
def _caches(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = folder_of_run(tmp_path_factory)
    keep_disassemblies(folder / "disassembled")
    os.environ["ACCPROBE_CACHE_DIR"] = str(folder / "cubins")
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    once(folder / "evaluator", compile_evaluator)


@pytest.fixture(scope="session")
def h200() -> CudaDevice:
    """Return the GPU of this machine. Skips the test unless the recorded models of the H200 are models of it."""
    from accprobe.devices.cuda import CudaDevice

    device = CudaDevice(0)
    if device.architecture != "sm_90a":
        pytest.skip("the recorded models are of sm_90a")
    return device

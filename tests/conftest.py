"""Hypothesis draws the same examples in every run, unless `--hypothesis-profile=fresh` asks for others.

A kernel is compiled and disassembled once a run, by whichever process and test needs it first: the caches on disk are the
run's. The evaluator is compiled before the first test, by one process while the others wait or collect.
"""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from once import folder_of_run, keep_disassemblies, once

if TYPE_CHECKING:
    from accprobe.devices.cuda import CudaDevice

gc.set_threshold(2_000, 20, 100)  # thousands of tests are half a million objects, of which none is garbage

settings.register_profile("fixed", derandomize=True)
settings.register_profile("fresh", derandomize=False)
settings.load_profile("fixed")


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, as many tests wait for a process of theirs."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """One process collects before the others: what it compiles of the tests, and of all that they import, the others read.
    Meanwhile another compiles the evaluator.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    folder = folder_of_run(session.config._tmp_path_factory)
    with open(folder / "collecting", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            once(folder / "evaluator", _compile_evaluator)
            fcntl.flock(lock, fcntl.LOCK_SH)
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A cluster is waited for longest, so it begins first, beside other tests."""
    items.sort(key=lambda item: item.path.name != "test_cluster.py")


@pytest.fixture(scope="session", autouse=True)
def _caches(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = folder_of_run(tmp_path_factory)
    keep_disassemblies(folder / "disassembled")
    os.environ["ACCPROBE_CACHE_DIR"] = str(folder / "cubins")
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    once(folder / "evaluator", _compile_evaluator)


def _compile_evaluator(_: Path) -> None:
    """Numba takes ten seconds for each of the two ways to lay out rows, and every process that cannot wait for another would
    begin again.
    """
    from accprobe.evaluate import tiles
    from accprobe.evaluate.steps import step_of
    from accprobe.isa.instructions import parse
    from accprobe.model.published import known_models
    from accprobe.operands.request import Request

    if not tiles.is_there():
        return
    inst = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
    step = step_of(known_models("h100")[inst].model, inst)
    assert step is not None
    for columns in (1, 2):
        zeros = Request.zeros(inst, columns)
        tiles.sums(step, inst, zeros.a[:1], zeros.b, zeros.c[None])


@pytest.fixture(scope="session")
def h200() -> CudaDevice:
    """The GPU that is here, where the models recorded of the H200 are models of it."""
    from accprobe.devices.cuda import CudaDevice

    device = CudaDevice(0)
    if device.architecture != "sm_90a":
        pytest.skip("the recorded models are of sm_90a")
    return device

"""Hypothesis draws the same examples in every run, unless `--hypothesis-profile=fresh` asks for others.

A kernel is compiled once a run, by whichever process and test needs it first: the caches on disk are the run's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from accprobe.devices.cuda import CudaDevice

settings.register_profile("fixed", derandomize=True)
settings.register_profile("fresh", derandomize=False)
settings.load_profile("fixed")


@pytest.fixture(scope="session", autouse=True)
def _caches(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    os.environ["ACCPROBE_CACHE_DIR"] = str(folder / "cubins")
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")


@pytest.fixture(scope="session")
def h200() -> CudaDevice:
    """The GPU that is here, where the models recorded of the H200 are models of it."""
    from accprobe.devices.cuda import CudaDevice

    device = CudaDevice(0)
    if device.architecture != "sm_90a":
        pytest.skip("the recorded models are of sm_90a")
    return device

"""What runs in a process that Ray started for one GPU, where Ray is played: it sees that GPU alone, as cuda:0."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import accprobe
from accprobe.errors import AccprobeError
from accprobe.fleet import driver
from accprobe.fleet.driver import run_on_node
from accprobe.health.outcome import GpuOutcome
from accprobe.health.plan import CheckPlan


@pytest.fixture(autouse=True)
def _third_gpu_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_gpu(device: str, plan: CheckPlan) -> Iterator[GpuOutcome]:
        yield GpuOutcome.unopened(device)

    context = SimpleNamespace(get_accelerator_ids=lambda: {"GPU": ["2"]})
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: context))
    monkeypatch.setattr(driver, "check_gpu", check_gpu)


@pytest.mark.parametrize(
    ("device", "visible", "here"),
    [
        (None, "2", "cuda:0"),
        ("sim:h100", "2", "sim:h100"),
        (None, "", "cuda:2"),
        (None, "0,1,2,3", "cuda:2"),
        (None, "5,2", "cuda:1"),
    ],
)
def test_a_gpu_has_its_name_in_this_process(
    device: str | None, visible: str, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    number, outcome = run_on_node(accprobe.__version__, CheckPlan(), device)
    assert (number, json.loads(outcome)["device"]) == ("2", here)


def test_another_version_is_refused() -> None:
    with pytest.raises(AccprobeError, match=r"is installed there, not 0\.0\.1: install the same everywhere"):
        next(run_on_node("0.0.1", CheckPlan(), None))

"""What runs in a process that Ray started for one GPU, where Ray is played: it sees that GPU alone, as cuda:0."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import accprobe
from accprobe.errors import AccprobeError, DeviceError
from accprobe.fleet.driver import run_on_node


@pytest.fixture(autouse=True)
def _third_gpu_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(get_accelerator_ids=lambda: {"GPU": ["2"]})
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: context))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")


def lost(device: str) -> Iterator[str]:
    yield f"opened {device}"
    raise DeviceError(f"{device} is lost")


@pytest.mark.parametrize(("device", "here", "told"), [(None, "cuda:0", "cuda:2"), ("sim:h100", "sim:h100", "sim:h100")])
def test_a_gpu_that_fails_is_named_as_on_its_node(device: str | None, here: str, told: str) -> None:
    texts = run_on_node(accprobe.__version__, lost, device, ())
    assert [next(texts), next(texts)] == ["2", f"opened {here}"]
    with pytest.raises(AccprobeError, match=f"^{told} is lost$"):
        next(texts)


@pytest.mark.parametrize(("visible", "here"), [(None, "cuda:2"), ("0,1,2,3", "cuda:2"), ("5,2", "cuda:1")])
def test_more_gpus_are_seen_where_ray_was_told_not_to_narrow(
    visible: str | None, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert list(run_on_node(accprobe.__version__, lambda device: iter([device]), None, ())) == ["2", here]


def test_another_version_is_refused() -> None:
    with pytest.raises(AccprobeError, match=r"is installed there, not 0\.0\.1: install the same everywhere"):
        next(run_on_node("0.0.1", lost, None, ()))

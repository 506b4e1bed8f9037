"""A Triton kernel whose four slices are added with atomics, on a GPU; where there is none, its compilation and its numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmark import loaded
from gpus import only_on_a_gpu

KERNEL = Path(__file__).parents[1] / "programs" / "triton_split_k.py"

BY_THE_INTERPRETER = """
import torch
import triton_split_k
a, b = torch.randn(128, 512), torch.randn(512, 256)
assert torch.allclose(triton_split_k.split_k(a, b), a @ b, atol=1e-3)
"""


@pytest.mark.parametrize("shape", ["256x256x2048", pytest.param("4096x4096x4096", marks=pytest.mark.slow)])
@pytest.mark.gpu
@only_on_a_gpu[1]
def test_four_slices_are_found(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert loaded("atomics").measured(f"{KERNEL}:split_k", shape, "bf16", None)
    told = capsys.readouterr().out
    k = int(shape.rpartition("x")[2])
    assert f"slice_sizes: {', '.join([str(k // 4)] * 4)}\n" in told
    assert "repeatable: no" in told


def test_the_kernel_is_a_product() -> None:
    pytest.importorskip("triton")
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": str(KERNEL.parent)}
    subprocess.run([sys.executable, "-c", BY_THE_INTERPRETER], env=environment, check=True)

"""What runs a sweep on a GPU, with the GPU's part played by tensors of the CPU and a kernel in Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from accprobe.build.lowerings import Lowering
from accprobe.callables.arrays import TorchArrays
from accprobe.sweep import masks
from accprobe.sweep.configurations import DTYPES, Configuration
from accprobe.sweep.kernel import Compiled, GpuBench
from accprobe.sweep.masks import draw_matrices

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

CONFIG = Configuration(DTYPES["e4m3"], 64, 4)
QGMMA = "QGMMA.64x64x32.F32.E4M3.E4M3"
LOWERING = Lowering((QGMMA,), ((QGMMA, 2), ("FADD", 32)), "nvdisasm", "ab" * 32)


class Kernel:
    """Exact sums of blocks that lose their last ten bits, masked."""

    n_regs, n_spills, name = 80, 0, "masked_gemm"

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        import torch

        def launch(a: Any, b: Any, c: Any, n: int, k: int, mask: int, *constants: Any) -> None:
            self.launched.append((grid, n, k, mask))
            total = torch.zeros(c.shape)
            for start in range(0, k, CONFIG.block_k):
                block = slice(start, start + CONFIG.block_k)
                partial = (a[:, block].double() @ b[:, block].double().T).float()
                total += (partial.view(torch.int32) & masks.mask(10) & mask).view(torch.float32)
            c.copy_(total)

        return launch


class Bench(GpuBench):
    """On the CPU."""

    def __init__(self) -> None:
        import torch

        self._torch, self._arrays, self._uploaded = torch, TorchArrays("cpu"), None

    @contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        yield

    def _tflops(self, compiled: Compiled, a: Any, b: Any) -> float:
        return 1.5


def test_a_planted_kernel_is_measured_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compiled, "arguments", ())
    kernel = Kernel()
    operands = draw_matrices("full-width", CONFIG.dtype, 128, 64, 128, 64, seed=0)
    rows, columns = np.arange(0, 128, 9), np.arange(0, 64, 5)
    compiled = Compiled(CONFIG, kernel=kernel, lowering=LOWERING)
    found = Bench().measure(compiled, operands, (rows, columns))
    assert kernel.launched[0] == ((2, 1, 1), 64, 128, -1)
    assert [each[-1] for each in kernel.launched[1:]] == [masks.mask(cut) for cut in masks.CUTS]
    assert found.changed[:11] == [0] * 11
    assert all(found.changed[11:])
    assert found.sampled.shape == (24, len(rows), len(columns))
    assert masks.unnoticed(found.changed) == 10
    assert (found.tflops, found.registers, found.spills) == (1.5, 80, 0)
    assert found.errors[0] < found.errors[12] < found.errors[23]

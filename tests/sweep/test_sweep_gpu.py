"""What runs a sweep on a GPU, with the GPU's part played by tensors of the CPU and a kernel in Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from accprobe.audit import ncu
from accprobe.cli import main
from accprobe.errors import DeviceError
from accprobe.report.sweeps import Profile, SweepRecord
from accprobe.sass.lowering import Lowering
from accprobe.sass.reading import Function, Line
from accprobe.sweep import __main__ as child
from accprobe.sweep import gpu, masks, sweeper
from accprobe.sweep.compilation import Compiled
from accprobe.sweep.configurations import DTYPES, Configuration, configurations
from accprobe.sweep.gpu import GpuBench
from accprobe.sweep.operands import draw_matrices

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

        self._torch, self._index, self._device, self._uploaded = torch, 0, torch.device("cpu"), None

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
    found = Bench().measure(compiled, operands, masks.CUTS, (rows, columns))
    assert kernel.launched[0] == ((2, 1, 1), 64, 128, -1)
    assert [each[-1] for each in kernel.launched[1:]] == [masks.mask(cut) for cut in masks.CUTS]
    assert found.changed[:11] == [0] * 11
    assert all(found.changed[11:])
    assert found.sampled.shape == (24, len(rows), len(columns))
    assert masks.unnoticed(found.changed) == 10
    assert (found.tflops, found.registers, found.spills) == (1.5, 80, 0)
    assert found.errors[0] < found.errors[12] < found.errors[23]


def test_errors_of_a_launch_are_sentences() -> None:
    bench = Bench()
    bench._torch = type("Torch", (), {"cuda": type("Cuda", (), {"device": staticmethod(lambda _: nullcontext())})})
    with (
        pytest.raises(DeviceError, match=r"^cuda:0 failed: two lines of it$"),
        GpuBench._guard(bench, "failed"),
    ):
        raise RuntimeError("two lines\n  of it")


def test_configurations_reach_the_profilers_child_as_they_are() -> None:
    every = configurations(["e4m3", "int8"], [32, 128], [2], 128, 64, promote_every=64, rounded=True)
    assert [child.parse_configuration(gpu.argument(config)) for config in (*every, CONFIG)] == [*every, CONFIG]
    assert gpu.argument(CONFIG) == "e4m3:64:4:64:64"


def test_expected_executions_are_those_that_an_h200_showed() -> None:
    """4,096 QGMMA and 65,536 HMMA were counted by Nsight Compute for M = N = K = 512."""
    four = Configuration(DTYPES["e4m3"], 128, 4)
    lowering = Lowering((QGMMA,), ((QGMMA, 4), ("FADD", 32)), "nvdisasm")
    assert gpu.expected(Compiled(four, lowering=lowering)) == {QGMMA: 4096}
    two = Configuration(DTYPES["e4m3"], 128, 2)
    lowering = Lowering(("HMMA.16816.F32",), (("HMMA.16816.F32", 128),), "nvdisasm")
    assert gpu.expected(Compiled(two, lowering=lowering)) == {"HMMA.16816.F32": 65536}


def _launch(count: int) -> ncu.Launch:
    return ncu.Launch(Function("masked_gemm", "", (Line(0, "", QGMMA, ""),), {}), (count,))


def test_profiles_hold_what_was_counted_beside_what_was_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def launches(command: list[str], names: str) -> list[ncu.Launch]:
        asked.append((command[1:], names))
        return [_launch(4096), _launch(7)]

    monkeypatch.setattr(ncu, "launches", launches)
    other = Configuration(DTYPES["e4m3"], 32, 4)
    compiled = [Compiled(each, kernel=Kernel(), lowering=LOWERING) for each in (CONFIG, other)]
    found = gpu.profiles(1, [compiled[0], Compiled(CONFIG, "too large"), compiled[1]])
    command = ["-m", "accprobe.sweep", "--device", "1", "e4m3:64:4:64:64", "e4m3:32:4:64:64"]
    assert asked == [(command, "^masked_gemm$")]
    assert found[CONFIG] == Profile(size=512, executed=((QGMMA, 4096),), expected=((QGMMA, 4096),))
    assert (found[CONFIG].agrees, found[other].agrees) == (True, False)
    with pytest.raises(DeviceError, match="the profiler saw 2 of 1 configurations on cuda:0"):
        gpu.profiles(0, compiled[:1])


@pytest.mark.parametrize(("counted", "status", "told"), [(64, 0, "counted as many executions"), (63, 1, "counted 63×")])
def test_counts_that_disagree_are_a_finding(monkeypatch: pytest.MonkeyPatch, counted: int, status: int, told: str) -> None:
    executed = Profile(size=512, executed=((QGMMA, counted),), expected=((QGMMA, 64),))
    swept = sweeper.Sweeper._record

    def record(self: sweeper.Sweeper, *rest: Any) -> SweepRecord:
        return swept(self, *rest).model_copy(update={"profile": executed, "opcode_source": "ncu"})

    monkeypatch.setattr(sweeper.Sweeper, "_record", record)
    arguments = ["sweep", "--device", "sim:h100", "--k", "64", "--block-k", "64", "--num-warps", "4"]
    result = CliRunner(env={"COLUMNS": "300"}).invoke(main, arguments)
    assert result.exit_code == status
    assert told in result.stdout

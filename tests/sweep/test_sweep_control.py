"""What the sweep measures and concludes of planted accumulators, its kernel, the control, and what models predict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache, reduce
from typing import Any

import numpy as np
import pytest

from accprobe.build.lowerings import Lowering
from accprobe.callables.arrays import TorchArrays
from accprobe.sweep import masks, prediction
from accprobe.sweep.configurations import DTYPES, Configuration
from accprobe.sweep.kernel import Compiled, GpuBench
from accprobe.sweep.masks import SETS, OperandSet, Totals, draw_matrices

K, SIDE = 256, 16


@cache
def exact(kind: OperandSet, dtype: str, block_k: int) -> list[masks.Totals]:
    config = Configuration(DTYPES[dtype], block_k, 4)
    return list(prediction.exact_partials(config, draw_matrices(kind, DTYPES[dtype], SIDE, SIDE, K, block_k, seed=1)))


def planted(partials: list[masks.Totals], bits: int) -> list[masks.Totals]:
    """Sums of a unit that keeps that many fraction bits."""
    keep = np.int32(masks.mask(23 - bits))
    return [(each.view(np.int32) & keep).view(np.float32) for each in partials]


def bits_of(counts: list[int], control: list[int], elements: int) -> tuple[int, str]:
    found = masks.fraction_bits(masks.Measured(counts, [], np.zeros((1, elements), np.uint32)), control)
    return found.value, found.bound


def concluded(kind: OperandSet, dtype: str, block_k: int, bits: int) -> tuple[int, str]:
    partials = exact(kind, dtype, block_k)
    counts = masks.changed(masks.totals(planted(partials, bits)))
    control = masks.changed(masks.totals(partials))
    return bits_of(counts, control, SIDE * SIDE)


@pytest.mark.parametrize("block_k", [32, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_full_width_operands_find_every_planted_width(dtype: str, block_k: int) -> None:
    for bits in (1, 7, 10, 13, 14, 20, 22, 23):
        assert concluded("full-width", dtype, block_k, bits) == (bits, "exact")


@pytest.mark.parametrize("bits", [22, 23])
def test_where_normal_operands_need_no_more_bits_the_answer_is_a_bound(bits: int) -> None:
    value, bound = concluded("normal", "e4m3", 32, bits)
    assert bound == "at_least"
    assert value <= bits


def test_a_sweep_that_notices_every_mask_is_exact_only_if_half_of_the_sums_end_in_a_one() -> None:
    noticed = [0, *[9] * 23]
    assert bits_of(noticed, [0, 50, *[100] * 22], 100) == (23, "exact")
    assert bits_of(noticed, [0, 49, *[100] * 22], 100) == (23, "at_least")


def test_unnoticed_masks_prove_nothing_that_the_control_does_not_notice() -> None:
    counts = [0] * 11 + [5] * 13
    assert bits_of(counts, [0] + [1] * 23, 100) == (13, "exact")
    assert bits_of(counts, [0] * 11 + [5] * 13, 100) == (13, "at_least")


@pytest.mark.parametrize("kind", SETS)
def test_exact_sums_of_blocks_are_those_of_fractions(kind: OperandSet) -> None:
    dtype = DTYPES["e4m3"]
    a, b = draw_matrices(kind, dtype, SIDE, SIDE, K, 64, seed=1)
    rows, columns = ([[Fraction(float(v)) for v in row] for row in dtype.format.values(x)] for x in (a, b))
    for number, partial in enumerate(exact(kind, "e4m3", 64)):
        block = slice(64 * number, 64 * number + 64)
        for i, j in ((0, 0), (3, 5), (15, 2)):
            total = sum(x * y for x, y in zip(rows[i][block], columns[j][block], strict=True))
            assert partial[i, j] == np.float32(float(total))


E4M3_OF_SWEEPS = DTYPES["e4m3"]


def predicted(target: str, opcode: str, block_k: int, promote_every: int | None = None) -> list[Totals]:
    """The sum of each block, [blocks][M, N], of the same operands whatever the block."""
    chain = prediction.published_chain(target, E4M3_OF_SWEEPS, Lowering((opcode,), ((opcode, 1),), "nvdisasm"))
    operands = draw_matrices("full-width", E4M3_OF_SWEEPS, SIDE, SIDE, K, K, seed=1)
    return list(prediction.partials(Configuration(E4M3_OF_SWEEPS, block_k, 4, promote_every=promote_every), chain, operands))


def test_a_promoted_block_is_the_sum_of_its_parts() -> None:
    opcode = "QGMMA.64x64x32.F32.E4M3.E4M3"
    (promoted,), (whole,) = predicted("sm_90a", opcode, K, 64), predicted("sm_90a", opcode, K)
    parts = predicted("sm_90a", opcode, 64)
    assert len(parts) == K // 64
    np.testing.assert_array_equal(promoted, reduce(np.add, parts))
    assert (promoted != whole).any()


def test_what_is_not_promoted_ignores_the_limit() -> None:
    opcode = "QMMA.16832.F32.E4M3.E4M3"
    np.testing.assert_array_equal(predicted("sm_89", opcode, K, 64), predicted("sm_89", opcode, K))


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


def test_a_planted_kernel_is_measured_bit_for_bit() -> None:
    pytest.importorskip("torch")
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
    assert (found.tflops, found.registers, found.spills) == (1.5, 80, 0)
    assert found.errors[0] < found.errors[12] < found.errors[23]


CHILD = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import torch
from accprobe.callables.arrays import TorchArrays
from accprobe.probes.triton_dot import masked_gemm
from accprobe.sweep.configurations import DTYPES
from accprobe.sweep.masks import mask
from accprobe.sweep.masks import draw_matrices
found = []
for name, kind, cut in json.loads(sys.argv[1]):
    dtype, m, n, k, block_k = DTYPES[name], 32, 16, 128, 64
    a, b = draw_matrices(kind, dtype, m, n, k, block_k, seed=3)
    arrays = TorchArrays("cpu")
    x, y = (arrays.operand(role, each, dtype.format) for role, each in (("a", a), ("b", b)))
    c = torch.full((m, n), -1, dtype=torch.float32)
    masked_gemm[(m // 16, n // 16)](
        x, y, c, n, k, mask(cut), BLOCK_M=16, BLOCK_N=16, BLOCK_K=block_k,
        PRECISION=dtype.precision, PROMOTE_EVERY=None,
    )
    found.append(c.view(torch.int32).tolist())
print(json.dumps(found))
"""

CASES = [
    ("e4m3", "full-width", 0),
    ("e4m3", "full-width", 10),
    ("e5m2", "full-width", 5),
]
"""Operand type, operand set, low bits masked."""


@pytest.fixture(scope="module")
def interpreted() -> list[Any]:
    """The results of all cases: the interpreter has to be asked for before Triton is imported."""
    for needed in ("triton", "torch"):
        pytest.importorskip(needed)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "TRITON_DEFAULT_FP_FUSION": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD, json.dumps(CASES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=["-".join(map(str, case)) for case in CASES])
def test_each_result_is_the_exact_sum_masked(interpreted: list[Any], number: int) -> None:
    name, kind, cut = CASES[number]
    config = Configuration(DTYPES[name], 64, 4)
    operands = masks.draw_matrices(kind, config.dtype, 32, 16, 128, 64, seed=3)
    expected = masks.totals(prediction.exact_partials(config, operands))[cut]
    assert interpreted[number] == expected.view(np.int32).tolist()

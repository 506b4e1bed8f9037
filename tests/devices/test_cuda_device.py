"""The CUDA device: what can be said without a GPU, and exact sums on every instruction of the GPU that is here."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from marks import only_on_a_gpu

from accprobe.build import driver
from accprobe.devices import cuda, open_device
from accprobe.errors import DeviceError, ToolMissing
from accprobe.isa import tile
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request
from accprobe.operands.sparse import laid_out


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Sets what the driver answers."""
    answer: list[object] = [0, "there is no NVIDIA driver"]
    monkeypatch.setattr(driver, "gpus", lambda: tuple(answer))
    return answer


def test_no_cupy(told: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    told[:] = 1, ""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert driver.gpu_count() == 0
    assert "install -e '.[cuda13]' in accprobe's checkout" in str(driver.explain_missing_gpu())
    with pytest.raises(ToolMissing, match="pip install"):
        open_device("cuda:0")


@pytest.mark.parametrize(("count", "known"), [(1, "only cuda:0"), (4, "cuda:0 to cuda:3")])
def test_gpu_that_is_not_here(told: list[object], count: int, known: str) -> None:
    told[:] = count, ""
    with pytest.raises(DeviceError, match=f"there is no cuda:7; this machine has {known}"):
        open_device("cuda:7")


def small_integers(random: np.random.Generator, fmt: Format, shape: tuple[int, ...]) -> tuple[Bits, np.ndarray]:
    """(bit patterns, values) of integers from -2 to 2, from 0 to 2, or of bits."""
    values = random.integers(-2 if fmt.signed else 0, 2 if fmt.kind == "bit" else 3, shape)
    return encode(fmt, values), values


def encode(fmt: Format, values: np.ndarray) -> Bits:
    if fmt.is_integer:
        return (values & ((1 << fmt.bits) - 1)).astype(fmt.dtype)
    assert fmt.ml_dtype is not None
    return values.astype(fmt.ml_dtype).view(fmt.dtype)


@pytest.fixture(scope="module")
def gpu() -> cuda.CudaDevice:
    device = cuda.CudaDevice(0)
    device.prepare(device.instructions())
    return device


def runnable(device: cuda.CudaDevice) -> list[Instruction]:
    return [inst for inst in device.instructions() if device.explain_unavailable(inst) is None]


class TestGpu:
    pytestmark = only_on_a_gpu

    def test_exact_sums_at_every_placement(self, gpu: cuda.CudaDevice) -> None:
        random = np.random.default_rng(1)
        wrong = []
        for inst in runnable(gpu):
            count, k = 3 * tile.problems(inst) + 1, inst.stored.k
            a, a_values = small_integers(random, inst.a, (count, k))
            b, b_values = small_integers(random, inst.b, (count, k))
            c, c_values = small_integers(random, inst.c, (count,))
            products = inst.multiplied(a_values, b_values)
            expected, request = encode(inst.d, products.sum(1) + c_values), laid_out(inst, Request(a, b, c))
            places = range(gpu.placements(inst))
            wrong += [(inst.name, p) for p in places if not np.array_equal(gpu.dot(inst, request, p), expected)]
        assert wrong == []

    def test_random_bits_do_not_depend_on_the_placement(self, gpu: cuda.CudaDevice) -> None:
        random = np.random.default_rng(2)
        moved = []
        for inst in runnable(gpu):
            columns = [
                random.integers(0, np.iinfo(fmt.dtype).max, shape, fmt.dtype, endpoint=True)
                for fmt, shape in ((inst.a, (200, inst.stored.k)), (inst.b, (200, inst.stored.k)), (inst.c, (200,)))
            ]
            request = laid_out(inst, Request(*columns))
            first, last = gpu.dot(inst, request), gpu.dot(inst, request, gpu.placements(inst) - 1)
            if not np.array_equal(first, last):
                moved.append(inst.name)
        assert moved == []

    def test_chunks_give_the_same_bits(self, gpu: cuda.CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
        random = np.random.default_rng(3)
        inst = runnable(gpu)[0]
        a, _ = small_integers(random, inst.a, (1000, inst.k))
        b, _ = small_integers(random, inst.b, (1000, inst.k))
        c, _ = small_integers(random, inst.c, (1000,))
        whole = gpu.dot(inst, Request(a, b, c))
        monkeypatch.setattr(cuda, "CHUNK_BYTES", 4000)
        np.testing.assert_array_equal(gpu.dot(inst, Request(a, b, c)), whole)

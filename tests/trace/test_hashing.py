"""Hashes of tensors: the sums of the GPU's kernel are torch's, and a view is hashed as its contents."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from compiled import library

from accprobe.build.probes import device_code
from accprobe.trace import hashing
from accprobe.trace.hash_kernel import HashKernel, find_memory_layout
from accprobe.trace.hashing import HASH_LANES, hash_of, lanes
from accprobe.trace.recorder import Recorder, pause_recording

torch = pytest.importorskip("torch")

HOST = """
#define __device__
#define __noinline__
#define __clz __builtin_clz
{code}
extern "C" void hash_on_host(const TensorBatch* batch, u32 blocks) {{
    for (u32 block = 0; block < blocks; block++)
        for (u32 thread = 0; thread < THREADS; thread++) {{
            u64 sums[LANES] = {{}};
            u64* total = add_of_batch(*batch, thread, block, sums);
            for (u32 lane = 0; lane < LANES; lane++) total[lane] += sums[lane];
        }}
}}
"""

DTYPES = (torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.complex64)


class Driver:
    """A driver that has no GPU: it runs the kernel's code on the host."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def cuLaunchKernel(self, _: Any, blocks: int, *rest: Any) -> int:  # noqa: N802 -- a name of CUDA
        self.function(ctypes.c_void_p(rest[-2][0]), blocks)
        return 0


@pytest.fixture(scope="module")
def kernel() -> HashKernel:
    function = library(HOST.format(code=device_code("tensor_hash.cu"))).hash_on_host
    return HashKernel(Driver(function), None, 0, lambda device: 0)


@pytest.fixture(autouse=True)
def host_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)


def use(kernel: HashKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash tensors of the CPU as those of a GPU are."""
    monkeypatch.setattr(hashing, "open_hash_kernel", lambda device: kernel)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: None)


def drawn(dtype: Any, *shape: int) -> Any:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(-128, 127, (*shape, dtype.itemsize), dtype=torch.int8, generator=generator).view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_kernel_computes_the_sums_of_torch(kernel: HashKernel, dtype: Any) -> None:
    wholes = [drawn(dtype, *shape) for shape in ((), (5,), (0, 3), (4099,), (9001, 3), (3, 4, 5, 6))]
    views = [view for x in wholes[3:] for view in (x[1:], x[..., ::2], x.transpose(0, -1), x.expand(2, *x.shape))]
    heads = drawn(dtype, 3, 70, 41, 8)
    views += [heads.transpose(1, 2), heads.transpose(1, 2)[..., 1:5], heads.transpose(0, 1)[..., :4]]  # rows of whole words
    tensors = [*wholes, *views]
    sums = torch.zeros(len(tensors), HASH_LANES, dtype=torch.int64)
    layouts = [find_memory_layout(x.shape, x.stride(), x.dtype) for x in tensors]
    kernel.launch([x.data_ptr() for x in tensors], layouts, sums.data_ptr(), 0)
    for tensor, got in zip(tensors, sums.tolist(), strict=True):
        assert got == lanes(tensor).tolist(), (tensor.shape, tensor.stride())


def test_a_hash_is_of_the_contents() -> None:
    x = drawn(torch.bfloat16, 300, 70)
    assert hash_of(x.t()) == hash_of(x.t().contiguous()) != hash_of(x)
    assert hash_of(x[:0]) != hash_of(x[:0].float())
    flipped = x.clone()
    flipped.view(torch.int16)[299, 69] ^= 1
    assert hash_of(flipped) != hash_of(x)


def paused_write(y: Any) -> None:
    with pause_recording():
        y.add_(1)


def unseen_kernel(y: Any) -> None:
    knobs = pytest.importorskip("triton.knobs")
    knobs.runtime.launch_enter_hook({})
    y.numpy().fill(3)


WRITES = {
    "in place": lambda y: y.add_(1),
    "to a view": lambda y: y.view(-1)[2:].zero_(),
    "out": lambda y: torch.add(y, 1, out=y),
    "copy": lambda y: y.copy_(torch.ones(())),
    "several": lambda y: torch._foreach_add_([y], 1),
    "of detached": lambda y: y.data.mul_(3),
    "paused": paused_write,
    "kernel of Triton": unseen_kernel,
}


@pytest.mark.parametrize("name", WRITES)
def test_a_result_has_the_hash_of_its_value_before_a_write(
    name: str, kernel: HashKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(kernel, monkeypatch)
    recorder, x = Recorder(), drawn(torch.float32, 8, 8)
    with torch.no_grad(), recorder.recording():
        WRITES[name](x * 2)
    recorder.finish()
    assert recorder.operations[0].outputs[0].hash == hash_of(x * 2)


def test_tensors_that_wait_do_not_change_the_operations(kernel: HashKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autograd copies a gradient to which something else refers."""

    def names() -> list[str]:
        w, v, recorder = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True), Recorder()
        with recorder.recording():
            for _ in range(2):
                torch.relu(w * 2 + v.sin() + v.cos() + w @ v).sum().backward()
        recorder.finish()
        return [x.name for x in recorder.operations]

    without = names()
    use(kernel, monkeypatch)
    assert names() == without

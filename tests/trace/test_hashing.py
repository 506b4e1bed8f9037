"""Hashes of tensors: the sums of the GPU's kernel are torch's, a view is hashed as its contents, and launches are few."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from accprobe.build.probes import device_code  # noqa: E402
from accprobe.trace import hashing  # noqa: E402
from accprobe.trace.hash_kernel import HashKernel  # noqa: E402
from accprobe.trace.hashing import HASH_LANES, hash_of, lanes  # noqa: E402
from accprobe.trace.recorder import Recorder  # noqa: E402

HOST = """
#define __device__
#define __noinline__
{code}
extern "C" void hash_on_host(const TensorView* view, u32 blocks) {{
    for (u32 block = 0; block < blocks; block++)
        for (u32 thread = 0; thread < THREADS; thread++) add_words(*view, thread, block, blocks, view->sums);
}}
"""

DTYPES = (torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.complex64)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> HashKernel:
    """The kernel's code compiled for the host, in a driver that has no GPU."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("hash")
    (folder / "hash.cpp").write_text(HOST.format(code=device_code("tensor_hash.cu")))
    command = [compiler, "-O1", "-w", "-shared", "-fPIC", "-o", str(folder / "hash.so"), str(folder / "hash.cpp")]
    subprocess.run(command, check=True)
    return on_host(ctypes.CDLL(str(folder / "hash.so")).hash_on_host)


def on_host(function: Any) -> HashKernel:
    class Driver:
        launches = 0

        def cuLaunchKernel(self, _: Any, blocks: int, *rest: Any) -> int:  # noqa: N802
            Driver.launches += 1
            function(ctypes.c_void_p(rest[-2][0]), blocks)
            return 0

    found = HashKernel(Driver(), None, 0)
    found.driver = Driver  # type: ignore[attr-defined]
    return found


@pytest.fixture(autouse=True)
def host_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)


def drawn(dtype: Any, *shape: int) -> Any:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(-128, 127, (*shape, dtype.itemsize), dtype=torch.int8, generator=generator).view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (5,), (4099,), (9001, 3), (3, 4, 5, 6)], ids=str)
def test_the_kernel_computes_the_sums_of_torch(kernel: HashKernel, dtype: Any, shape: tuple[int, ...]) -> None:
    whole = drawn(dtype, *shape)
    views = [whole]
    views += [whole[1:], whole[..., ::2], whole.transpose(0, -1)] if shape else []
    for tensor in (*views, whole.expand(2, *shape)):
        sums = torch.zeros(HASH_LANES, dtype=torch.int64)
        kernel.add_to(sums.data_ptr(), tensor, tensor.shape, tensor.stride(), tensor.dtype)
        assert sums.tolist() == lanes(tensor).tolist(), (tensor.shape, tensor.stride())


def test_a_hash_is_of_the_contents() -> None:
    x = drawn(torch.bfloat16, 300, 70)
    assert hash_of(x.t()) == hash_of(x.t().contiguous()) != hash_of(x)
    assert hash_of(x[:0]) != hash_of(x[:0].float())
    flipped = x.clone()
    flipped.view(torch.int16)[299, 69] ^= 1
    assert hash_of(flipped) != hash_of(x)


def test_each_result_is_hashed_by_one_launch_and_weights_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = on_host(lambda view, blocks: None)
    monkeypatch.setattr(hashing, "hash_kernel", lambda device: kernel)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: None)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.ReLU(), torch.nn.Linear(64, 64, bias=False))
    x = torch.randn(4, 64)
    recorder = Recorder()
    with torch.no_grad(), recorder.recording():
        model(x)
        before = kernel.driver.launches  # type: ignore[attr-defined]
        for _ in range(10):
            model(x)
        added = kernel.driver.launches - before  # type: ignore[attr-defined]
    recorder.finish()
    assert added == 10 * 3
    assert len(recorder.operations) == 11 * 3 + 1

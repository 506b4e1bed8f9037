"""Exceptions of callables and libraries become one sentence. The errors of torch, CuPy and Triton are copied literally."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accprobe.errors import AccprobeError
from accprobe.gemm.callables.arrays import NumpyArrays, TorchArrays
from accprobe.gemm.callables.failures import one_sentence
from accprobe.gemm.callables.opening import ProductRequest, find_callable, open_callable
from accprobe.isa.formats import FORMATS

ADVICE = "give a smaller --shape or fewer --elements, or end other processes (`nvidia-smi` lists them)"


class OutOfMemoryError(RuntimeError):
    """As torch and CuPy call it."""


class Own(BaseException):
    """An exception that `except Exception` does not catch."""


TRITON = "at 2:8:\ndef kernel(X):\n    o = tl.arange(0, 15)\n        ^\narange's range must be a power of 2"
CALLING = "at 4:8:\ndef outer(X):\n    y = kernel(X)\n        ^"


def sentence(error: BaseException) -> str:
    with pytest.raises(AccprobeError) as told, one_sentence("f raises", "cuda:0"):
        raise error
    return str(told.value)


@pytest.mark.parametrize(
    ("error", "begins"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), "f raises OutOfMemoryError: CUDA out of memory."),
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), "f raises RuntimeError: cudaErrorMemoryAllocation"),
        (RuntimeError("CUDA error: out of memory\nSearch for it"), "f raises RuntimeError: CUDA error: out of memory; the"),
        (RuntimeError("RESOURCE_EXHAUSTED: failed to allocate"), "f raises RuntimeError: RESOURCE_EXHAUSTED"),
        (MemoryError(), "f raises MemoryError; the memory of cuda:0 is full"),
    ],
)
def test_full_memory_comes_with_what_to_do(error: BaseException, begins: str) -> None:
    told = sentence(error)
    assert told.startswith(begins)
    assert told.endswith(f"; the memory of cuda:0 is full: {ADVICE}")


def test_other_errors_have_no_advice_about_memory() -> None:
    assert sentence(RuntimeError("out of resource: shared memory")) == "f raises RuntimeError: out of resource: shared memory"


def test_errors_of_any_class_are_caught_and_ctrl_c_is_not() -> None:
    assert sentence(Own("no")) == "f raises Own: no"
    with pytest.raises(KeyboardInterrupt), one_sentence("f raises", "cpu"):
        raise KeyboardInterrupt


def test_an_error_without_a_text_is_its_class() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert sentence(Silent()) == "f raises Silent"


def test_the_reason_of_a_compiler_comes_before_the_source() -> None:
    told = "f raises ValueError: arange's range must be a power of 2, in `o = tl.arange(0, 15)`"
    assert sentence(ValueError(TRITON)) == told
    outer = ValueError(CALLING)
    outer.__cause__ = ValueError(TRITON)
    assert sentence(outer) == told


@pytest.mark.parametrize("role", ["operand", "received", "patterns"])
def test_memory_that_is_full_where_operands_and_results_are_copied(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OutOfMemoryError("CUDA out of memory")

    called = open_callable("numpy:matmul", ProductRequest((8, 8, 8))).adapter
    monkeypatch.setattr(NumpyArrays, role, full)
    with pytest.raises(
        AccprobeError, match=r"numpy:matmul .*: OutOfMemoryError: CUDA out of memory; the memory of cpu is full"
    ):
        called.check()


def test_a_file_that_raises_anything_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("class Own(BaseException): pass\nraise Own\n")
    with pytest.raises(AccprobeError, match=r"own.py cannot be imported: Own \(.*own.py, line 2\)"):
        find_callable(f"{tmp_path}/own.py:f")


def test_gradients_are_recorded_in_a_callable_as_outside(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "own.py").write_text(
        "import torch\ndef backward(a, b):\n    x = torch.zeros(len(a), b.shape[0], requires_grad=True)\n"
        "    (d,) = torch.autograd.grad(x @ b, x, torch.ones(len(a), b.shape[1]))\n"
        "    return (a * d / b.sum(1)) @ b.requires_grad_()\n"
    )
    assert torch.is_grad_enabled()
    called = open_callable(f"{tmp_path}/own.py:backward", ProductRequest((4, 8, 2))).adapter
    assert isinstance(called.library, TorchArrays)
    for _ in range(2):
        d = called.product(*(np.ones((rows, 2), np.float32).view(np.uint32) for rows in (4, 8)))
        assert (d.view(np.float32) == 2).all()
    assert called.spec.out is FORMATS["f32"]

"""Launches of kernels that torch's dispatcher does not see, and the names of the kernels of an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def before_launches(start: Callable[[], None]) -> Iterator[None]:
    """Call a function before each launch of a Triton kernel, which may write to a tensor unseen by the dispatcher."""
    try:
        from triton import knobs
    except ImportError:
        yield
        return

    def hook(_: Any) -> None:
        start()

    knobs.runtime.launch_enter_hook.add(hook)
    try:
        yield
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)


@contextmanager
def inductor_kernels(record: Callable[[str, Mapping[str, Any], Callable[[], Any]], Any]) -> Iterator[None]:
    """Pass each launch of Inductor's Triton kernels to `record`."""
    import torch

    if not torch.cuda.is_available():  # importing Inductor takes seconds, and its kernels for CPUs are not seen
        yield
        return
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    except ImportError:  # without Triton
        yield
        return
    original = CachingAutotuner.run

    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if keywords.get("benchmark_run"):
            return original(self, *arguments, **keywords)
        named = dict(zip(self.triton_meta.get("signature", {}), arguments, strict=False))
        return record(self.fn.__name__, named, lambda: original(self, *arguments, **keywords))

    CachingAutotuner.run = run
    try:
        yield
    finally:
        CachingAutotuner.run = original


def profiled(function: Any, arguments: Any, keywords: Any) -> tuple[Any, tuple[str, ...]]:
    """Run an operation under torch's profiler, and return the result and the names of its kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        return function(*arguments, **keywords), ()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        result = function(*arguments, **keywords)
        torch.cuda.synchronize()
    return result, tuple(dict.fromkeys(event.name for event in profiler.events() if event.device_type.name == "CUDA"))

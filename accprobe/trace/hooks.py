"""Hooks into torch and Triton: modules and steps of optimizers, and launches of kernels that the dispatcher does not see.

Calls of modules are seen in `Module._call_impl`: torch's global hooks take several microseconds a call.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class ModuleTracker:
    """The module path and phase of the operation that runs."""

    def __init__(self) -> None:
        import torch

        self._node, self._is_grad_enabled = torch._C._current_autograd_node, torch.is_grad_enabled
        self._sequence_number = torch._C._autograd._get_sequence_nr
        self._places = [("", "forward")]
        """Module paths and phases of the modules that run, below the place outside of modules."""
        self._outermost: Any = None
        self._of_modules: dict[Any, tuple[str, str]] = {}
        self._of_sequence: dict[int, str] = {}
        self._optimizer = torch.optim.Optimizer
        self._in_optimizer = self._has_optimizer = False
        self._calls = self._optimizer_steps = 0

    def has_finished(self, steps: int) -> bool:
        """Return whether so many optimizer steps have finished, or calls of outermost modules if there is no optimizer."""
        if self._calls >= steps and not self._has_optimizer:
            gc.unfreeze()  # objects that the recorder froze are not listed
            self._has_optimizer = any(issubclass(type(x), self._optimizer) for x in gc.get_objects())
            gc.freeze()
            return not self._has_optimizer
        return self._optimizer_steps >= steps

    def place(self) -> tuple[str, str]:
        """Return the module path and the phase of the operation that runs now.

        A backward operation has the path of the forward operation with the same sequence number of its autograd node.
        """
        if self._in_optimizer:
            return "", "optimizer"
        node, place = self._node(), self._places[-1]
        if node is not None:
            return self._of_sequence.get(node._sequence_nr(), place[0]), "backward"
        if self._is_grad_enabled():
            self._of_sequence.setdefault(self._sequence_number() - 1, place[0])
        return place

    @contextmanager
    def tracking(self) -> Iterator[None]:
        """See calls of modules and steps of optimizers inside."""
        import torch
        from torch.optim import optimizer

        call, is_compiling, places = torch.nn.Module._call_impl, torch.compiler.is_compiling, self._places

        def recorded_call(module: Any, *arguments: Any, **keywords: Any) -> Any:
            if is_compiling():  # the program that dynamo compiles stays the same
                return call(module, *arguments, **keywords)
            if len(places) == 1 and module is not self._outermost:
                self._name_modules(module)
            places.append(self._of_modules.get(module) or (type(module).__name__, "forward"))
            try:
                return call(module, *arguments, **keywords)
            finally:
                places.pop()
                self._calls += len(places) == 1

        torch.nn.Module._call_impl = recorded_call
        enter = optimizer.register_optimizer_step_pre_hook(self._enter_optimizer)
        leave = optimizer.register_optimizer_step_post_hook(self._leave_optimizer)
        try:
            yield
        finally:
            torch.nn.Module._call_impl = call
            enter.remove()
            leave.remove()

    def _name_modules(self, outermost: Any) -> None:
        self._outermost = outermost
        names = {each: name.removeprefix("_orig_mod").removeprefix(".") for name, each in outermost.named_modules()}
        self._of_modules = {each: (name, "forward") for each, name in names.items()}

    def _enter_optimizer(self, optimizer: Any, *arguments: Any) -> None:
        self._in_optimizer = True

    def _leave_optimizer(self, optimizer: Any, *arguments: Any) -> None:
        self._in_optimizer, self._has_optimizer = False, True
        self._optimizer_steps += 1


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
    """Pass each launch of Inductor's Triton kernels on a GPU to `record`, except those of its benchmarks."""
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


def profile_call(function: Any, arguments: Any, keywords: Any) -> tuple[Any, tuple[str, ...]]:
    """Run an operation under torch's profiler, and return the result and the names of its kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        return function(*arguments, **keywords), ()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        result = function(*arguments, **keywords)
        torch.cuda.synchronize()
    return result, tuple(dict.fromkeys(event.name for event in profiler.events() if event.device_type.name == "CUDA"))

"""The module path, the phase and the step in which an operation runs, from torch's global hooks."""

from __future__ import annotations

from typing import Any


class ModuleTracker:
    """path: of the module that runs, "" outside of modules. steps: finished calls of outermost modules, or optimizer steps."""

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._modules: list[Any] = []
        self._names: dict[int, str] = {}
        self._of_sequence: dict[int, str] = {}
        self._hooks: list[Any] = []
        self._in_optimizer = False
        self.calls = self.optimizer_steps = 0

    @property
    def path(self) -> str:
        return self._stack[-1] if self._stack else ""

    @property
    def steps(self) -> int:
        return self.optimizer_steps or self.calls

    def place(self) -> tuple[str, str]:
        """Return the module path and the phase of the operation that runs now.

        A backward operation has the path of the forward operation whose autograd node has the same sequence number.
        """
        import torch

        if self._in_optimizer:
            return "", "optimizer"
        node = torch._C._current_autograd_node()
        if node is None and not torch.is_grad_enabled():
            return self.path, "forward"
        if node is None:
            self._of_sequence.setdefault(torch._C._autograd._get_sequence_nr() - 1, self.path)
            return self.path, "forward"
        return self._of_sequence.get(node._sequence_nr(), self.path), "backward"

    def start(self) -> None:
        """Register the hooks."""
        from torch.nn.modules import module
        from torch.optim import optimizer

        self._hooks = [
            module.register_module_forward_pre_hook(self._enter),
            module.register_module_forward_hook(self._leave, always_call=True),
            optimizer.register_optimizer_step_pre_hook(self._enter_optimizer),
            optimizer.register_optimizer_step_post_hook(self._leave_optimizer),
        ]

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _enter(self, module: Any, arguments: Any) -> None:
        import torch

        if torch.compiler.is_compiling():  # dynamo drops the hook, and the program that it compiles stays the same
            return
        if not self._stack:
            self._names = {id(each): name for name, each in module.named_modules()}
            self._modules = [module]
        name = self._names.get(id(module), type(module).__name__)
        self._stack.append(name.removeprefix("_orig_mod").removeprefix("."))

    def _leave(self, module: Any, arguments: Any, result: Any) -> None:
        import torch

        if torch.compiler.is_compiling() or not self._stack:
            return
        self._stack.pop()
        self.calls += not self._stack

    def _enter_optimizer(self, optimizer: Any, *arguments: Any) -> None:
        self._in_optimizer = True

    def _leave_optimizer(self, optimizer: Any, *arguments: Any) -> None:
        self._in_optimizer = False
        self.optimizer_steps += 1

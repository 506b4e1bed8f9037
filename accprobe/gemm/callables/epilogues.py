"""Products of torch with an epilogue: a bias or an addend C, alpha and beta, an activation.

The product is inferred while the epilogue is neutral: C = -0, which changes no sum, alpha = beta = 1, and no activation. An
activation is recognised and left out if it is an operation of torch, after which nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from accprobe.errors import UnknownName, nearest
from accprobe.gemm.blackbox import Spec
from accprobe.gemm.callables.arrays import ArrayLibrary, torch_type
from accprobe.gemm.callables.options import Options, flags_set, given_flags
from accprobe.isa.formats import Bits

# Values of the option `activation` of torch:linear: functions of torch.nn.functional and their arguments.
ACTIVATIONS: Mapping[str, tuple[str, dict[str, str]]] = {
    "relu": ("relu", {}),
    "gelu": ("gelu", {}),
    "gelu_tanh": ("gelu", {"approximate": "tanh"}),
    "silu": ("silu", {}),
}
# Operations of torch that are recognised as an activation, and those that may follow it because they compute nothing.
RECOGNISED = ("relu", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "elu", "hardswish", "mish", "softplus")
COMPUTES_NOTHING = ("_to_copy", "view", "_unsafe_view", "select", "slice", "t", "transpose", "clone", "detach", "alias")
# The call in which operations are recorded. In the first one, torch.compile compiles, which it never does while they are.
OBSERVED_CALL = 2


@dataclass(frozen=True)
class Activation:
    """An operation of torch with the arguments that follow its operand."""

    name: str
    operation: Any
    arguments: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, x: Any) -> Any:
        return self.operation(x, *self.arguments, **self.options)

    def __str__(self) -> str:
        given = ", ".join(map(str, (*self.arguments, *self.options.values())))
        return f"{self.name}({given})" if given else self.name


@cache
def _watch_type() -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[misc]  # torch's class has no type
        """Record the operations of torch that run inside. left_out: an operation that returns its operand instead."""

        def __init__(self, left_out: Any = None) -> None:
            super().__init__()
            self.left_out, self.ran = left_out, list[tuple[Any, Sequence[Any], Mapping[str, Any]]]()

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # True imports torch's compiler at the first operation, which takes two seconds.

        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.ran.append((operation, args[1:], kwargs or {}))
            return args[0] if operation is self.left_out else operation(*args, **(kwargs or {}))

    return Watch


def _last_activation(ran: Sequence[tuple[Any, Sequence[Any], Mapping[str, Any]]]) -> Activation | None:
    """Return the activation among operations that ran, if it is the only one and nothing is computed after it."""
    names = [str(operation).split(".")[1] for operation, _, _ in ran]
    places = [i for i, name in enumerate(names) if name.removesuffix("_") in RECOGNISED]
    if len(places) != 1 or not set(names[places[0] + 1 :]) <= set(COMPUTES_NOTHING):
        return None
    return Activation(names[places[0]].removesuffix("_"), *ran[places[0]])


@dataclass
class Epilogue:
    """A product a · b with an epilogue.

    call: multiplies a, b, the addend, alpha and beta. shape: of the addend, [N] or [M, N], in the format of D; None without
    one. flags: of torch. active: whether the epilogue is on. activation: known after the observed call.
    """

    call: Callable[..., Any]
    spec: Spec
    library: ArrayLibrary
    shape: tuple[int, ...] | None
    flags: Options
    alpha: float = 1.0
    beta: float = 1.0
    active: bool = False
    activation: Activation | None = None
    calls: int = 0

    def __post_init__(self) -> None:
        import torch

        self._torch: Any = torch
        self._addend: Any = None
        if self.shape is not None:
            type_ = torch_type(self.library, self.spec.out)
            self._addend = torch.full(self.shape, -0.0, dtype=type_, device=self.library.device)

    def __call__(self, a: Any, b: Any) -> Any:
        with flags_set(self._torch, self.flags):
            if self.active:
                return self.call(a, b, self._addend, self.alpha, self.beta)
            self.calls += 1
            if self.activation is None and self.calls != OBSERVED_CALL:
                return self.call(a, b, self._addend, 1, 1)
            with _watch_type()(self.activation and self.activation.operation) as watch:
                d = self.call(a, b, self._addend, 1, 1)
            self.activation = self.activation or _last_activation(watch.ran)
            return d

    def switch_on(self, addend: Bits) -> None:
        """Give the next calls this addend, [rows, N]; a bias is its first row."""
        if self.shape is not None:
            words = addend if len(self.shape) == 2 else addend[:1]
            given = self.library.operand("addend", words.copy(), self.spec.out)
            self._addend.copy_(given.reshape(self.shape))
        self.active = True


def linear(spec: Spec, options: Options, library: ArrayLibrary) -> Epilogue:
    """Return `torch.nn.functional.linear`, whose weight is b as [N, K], and an activation."""
    import torch

    functional: Any = torch.nn.functional
    name = options["activation"]
    if name is not None and name not in ACTIVATIONS:
        raise UnknownName(f"there is no activation '{name}'; {nearest(str(name), ACTIVATIONS)}")
    function, arguments = ACTIVATIONS[str(name)] if name else ("", {})
    activated: Any = partial(getattr(functional, function), **arguments) if name else lambda d: d

    def call(a: Any, b: Any, bias: Any, alpha: float, beta: float) -> Any:
        return activated(functional.linear(a, b.t(), bias))

    return Epilogue(call, spec, library, (spec.n,), given_flags(options, spec.a.name))


def addmm(spec: Spec, options: Options, library: ArrayLibrary) -> Epilogue:
    """Return `torch.addmm` of C [M, N]."""
    import torch

    def call(a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
        return torch.addmm(c, a, b, alpha=alpha, beta=beta)

    return _with_factors(call, spec, options, library)


def baddbmm(spec: Spec, options: Options, library: ArrayLibrary) -> Epilogue:
    """Return the first of equal batched products of `torch.baddbmm`."""
    import torch

    batch = int(str(options["batch"]))

    def call(a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
        batched = (x.expand(batch, *x.shape).contiguous() for x in (c, a, b))
        return torch.baddbmm(*batched, alpha=alpha, beta=beta)[0]

    return _with_factors(call, spec, options, library)


def _with_factors(call: Callable[..., Any], spec: Spec, options: Options, library: ArrayLibrary) -> Epilogue:
    alpha, beta = (float(str(options[name])) for name in ("alpha", "beta"))
    return Epilogue(call, spec, library, (spec.m, spec.n), given_flags(options, spec.a.name), alpha, beta)

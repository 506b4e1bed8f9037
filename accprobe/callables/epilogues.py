"""Products of torch with an epilogue: a bias or an addend C, alpha and beta, an activation.

The product is inferred while the epilogue is neutral: C = -0, which changes no sum, alpha = beta = 1, and no activation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from accprobe.callables.arrays import ArrayLibrary, torch_type
from accprobe.callables.options import Options, flags_set, given_flags, positive_option
from accprobe.callables.spec import Spec
from accprobe.errors import UnknownName, nearest
from accprobe.isa.formats import Bits

# Values of the option `activation` of torch:linear: functions of torch.nn.functional and their arguments.
ACTIVATIONS: Mapping[str, tuple[str, dict[str, str]]] = {
    "relu": ("relu", {}),
    "gelu": ("gelu", {}),
    "gelu_tanh": ("gelu", {"approximate": "tanh"}),
    "silu": ("silu", {}),
}


@dataclass(frozen=True)
class Activation:
    """A function of torch. name: with its arguments, such as "gelu(tanh)"."""

    name: str
    function: Callable[[Any], Any]


def activation_named(name: str) -> Activation:
    """Return the activation of an option's value. Raises UnknownName."""
    import torch

    if name not in ACTIVATIONS:
        raise UnknownName(f"there is no activation '{name}'; {nearest(name, ACTIVATIONS)}")
    function, arguments = ACTIVATIONS[name]
    words = f"{function}({', '.join(arguments.values())})" if arguments else function
    return Activation(words, partial(getattr(torch.nn.functional, function), **arguments))


@dataclass
class Epilogue:
    """A product a · b with an epilogue.

    call: the function of a, b, the addend, alpha and beta. shape: of the addend, [N] or [M, N], in the format of D. flags: of
    torch. activation: of the results of `call`. active: whether the epilogue is on.
    """

    call: Callable[..., Any]
    spec: Spec
    library: ArrayLibrary
    shape: tuple[int, ...]
    flags: Options
    alpha: float = 1.0
    beta: float = 1.0
    activation: Activation | None = None
    active: bool = False

    def __post_init__(self) -> None:
        import torch

        type_ = torch_type(self.library, self.spec.out)
        self._torch: Any = torch
        self._addend: Any = torch.full(self.shape, -0.0, dtype=type_, device=self.library.device)

    def __call__(self, a: Any, b: Any) -> Any:
        with flags_set(self._torch, self.flags):
            if not self.active:
                return self.call(a, b, self._addend, 1, 1)
            d = self.call(a, b, self._addend, self.alpha, self.beta)
            return d if self.activation is None else self.activation.function(d)

    def switch_on(self, addend: Bits) -> None:
        """Switch the epilogue on with this addend, [M, N]; a bias is its first row."""
        words = addend if len(self.shape) == 2 else addend[:1]
        self._addend.copy_(self.library.operand("addend", words.copy(), self.spec.out).reshape(self.shape))
        self.active = True


def linear(spec: Spec, options: Options, library: ArrayLibrary) -> Epilogue:
    """Return `torch.nn.functional.linear` with b as weight [N, K], and an activation."""
    import torch

    activation = None if options["activation"] is None else activation_named(str(options["activation"]))

    def call(a: Any, b: Any, bias: Any, alpha: float, beta: float) -> Any:
        return torch.nn.functional.linear(a, b.t(), bias)

    return Epilogue(call, spec, library, (spec.n,), given_flags(options, spec.a.name), activation=activation)


def addmm(spec: Spec, options: Options, library: ArrayLibrary) -> Epilogue:
    """Return `torch.addmm` of C [M, N]."""
    import torch

    def call(a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
        return torch.addmm(c, a, b, alpha=alpha, beta=beta)

    return _with_factors(call, spec, options, library)


def baddbmm(spec: Spec, options: Options, library: ArrayLibrary) -> Epilogue:
    """Return the first of equal batched products of `torch.baddbmm`."""
    import torch

    batch = positive_option(options, "batch")

    def call(a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
        batched = (x.expand(batch, *x.shape).contiguous() for x in (c, a, b))
        return torch.baddbmm(*batched, alpha=alpha, beta=beta)[0]

    return _with_factors(call, spec, options, library)


def _with_factors(call: Callable[..., Any], spec: Spec, options: Options, library: ArrayLibrary) -> Epilogue:
    alpha, beta = (float(str(options[name])) for name in ("alpha", "beta"))
    return Epilogue(call, spec, library, (spec.m, spec.n), given_flags(options, spec.a.name), alpha, beta)

"""Products of torch with an epilogue: a bias or an addend C, alpha and beta, an activation.

The product is inferred while the epilogue is neutral: C = 0, alpha = beta = 1, no activation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accprobe.errors import UnknownName, nearest
from accprobe.gemm.callables.arrays import ArrayLibrary, torch_type
from accprobe.gemm.callables.options import Options, flags_set, given_flags
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits

ACTIVATIONS = ("relu", "gelu", "silu")


@dataclass
class Epilogue:
    """A product a · b with an epilogue.

    call: multiplies a, b, the addend, alpha and beta. shape: of the addend, [N] or [M, N], in the format of D. flags: of torch.
    active: whether the epilogue is on.
    """

    call: Callable[..., Any]
    spec: Spec
    library: ArrayLibrary
    shape: tuple[int, ...]
    flags: Options
    alpha: float = 1.0
    beta: float = 1.0
    activation: str | None = None
    active: bool = False

    def __post_init__(self) -> None:
        import torch

        if self.activation is not None and self.activation not in ACTIVATIONS:
            raise UnknownName(f"there is no activation '{self.activation}'; {nearest(self.activation, ACTIVATIONS)}")
        self._torch: Any = torch
        self._addend = torch.zeros(self.shape, dtype=torch_type(self.library, self.spec.out), device=self.library.device)

    def __call__(self, a: Any, b: Any) -> Any:
        with flags_set(self._torch, self.flags):
            if not self.active:
                return self.call(a, b, self._addend, 1, 1)
            return self.activated(self.call(a, b, self._addend, self.alpha, self.beta))

    def activated(self, d: Any) -> Any:
        """Return torch's activation of a tensor."""
        return d if self.activation is None else getattr(self._torch.nn.functional, self.activation)(d)

    def switch_on(self, addend: Bits) -> None:
        """Give the next calls this addend, [rows, N]; a bias is its first row."""
        words = addend if len(self.shape) == 2 else addend[:1]
        given = self.library.operand("addend", words.copy(), self.spec.out)
        self._addend.copy_(given.reshape(self.shape))
        self.active = True


def linear(spec: Spec, options: Options, library: ArrayLibrary) -> Epilogue:
    """Return `torch.nn.functional.linear`, whose weight is b as [N, K]."""
    import torch

    activation = options["activation"]
    flags = given_flags(options, spec.a.name)
    call = lambda a, b, bias, alpha, beta: torch.nn.functional.linear(a, b.t(), bias)  # noqa: E731
    return Epilogue(call, spec, library, (spec.n,), flags, activation=None if activation is None else str(activation))


def addmm(spec: Spec, options: Options, library: ArrayLibrary) -> Epilogue:
    """Return `torch.addmm` of C [M, N]."""
    import torch

    alpha, beta = (float(str(options[name])) for name in ("alpha", "beta"))
    call = lambda a, b, c, alpha, beta: torch.addmm(c, a, b, alpha=alpha, beta=beta)  # noqa: E731
    return Epilogue(call, spec, library, (spec.m, spec.n), given_flags(options, spec.a.name), alpha, beta)


def baddbmm(spec: Spec, options: Options, library: ArrayLibrary) -> Epilogue:
    """Return the first of equal batched products of `torch.baddbmm`."""
    import torch

    alpha, beta, batch = (float(str(options[name])) for name in ("alpha", "beta", "batch"))

    def call(a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
        several = (x.expand(int(batch), *x.shape).contiguous() for x in (c, a, b))
        return torch.baddbmm(*several, alpha=alpha, beta=beta)[0]

    return Epilogue(call, spec, library, (spec.m, spec.n), given_flags(options, spec.a.name), alpha, beta)

"""Attention as a product: P·V, of which only V can be chosen.

If Q is zero, all scores are 0 and the softmax gives each key the weight 1/keys. D = A·B then has an A of 1/keys, B is V, and K
is the number of keys. A kernel may keep weights of 1 and divide by their sum at the end, or at the end of each split. For a
power of two of keys that division is exact and gives the same bits.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from warnings import catch_warnings, simplefilter

from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.gemm.callables.adapter import Multiply
from accprobe.gemm.callables.arrays import ArrayLibrary
from accprobe.gemm.callables.options import Options, OptionValue, given_flags, under_flags, whole_option
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Format

# Names of `torch.nn.attention.SDPBackend`.
BACKENDS = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}

# How torch's errors begin if a back end does not support the operands, on the CPU and on GPUs.
UNSUPPORTED = ("No viable backend", "No available kernel")

ATTENTION_PART = "P·V of attention: Q = 0 makes every weight 1/keys, so only V varies and all queries are equal"


def weight_exponent(fmt: Format, keys: int) -> int:
    """Return the exponent of 1/keys. Raises AccprobeError if it is not a power of two or not a normal number."""
    exponent = 1 - keys.bit_length()
    if keys & (keys - 1):
        raise AccprobeError(f"attention over {keys} keys has weights of 1/{keys}, which are rounded: give a power of two as K")
    if exponent < fmt.min_exponent:
        raise AccprobeError(f"{fmt} cannot hold weights of 1/{keys}: give at most {2**-fmt.min_exponent} keys as K")
    return exponent


def attention(spec: Spec, options: Options, library: ArrayLibrary) -> Multiply:
    """Return `scaled_dot_product_attention` of M queries and K keys; N / head_dim heads lie side by side in the columns of V.

    Raises AccprobeError, UnknownName.
    """
    import torch

    backend, head_dim, device = options["backend"], whole_option(options, "head_dim"), library.device
    if backend is not None and backend not in BACKENDS:
        raise UnknownName(f"torch:sdpa has no back end '{backend}'; {nearest(str(backend), BACKENDS)}")
    if head_dim < 1 or spec.n % head_dim:
        raise AccprobeError(f"N is {spec.n}, not a multiple of the head_dim {head_dim}: see option head_dim")
    heads = spec.n // head_dim
    zeros: dict[Any, Any] = {}

    def attend(v: Any, name: OptionValue) -> Any:
        q, k = (zeros.setdefault(n, torch.zeros(1, heads, n, head_dim, dtype=v.dtype, device=device)) for n in (spec.m, spec.k))
        chosen = nullcontext() if name is None else _chosen(BACKENDS[str(name)])
        with chosen, catch_warnings():
            simplefilter("ignore")  # torch warns why a back end does not support the operands
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    def is_supported(v: Any, name: str) -> bool:
        try:
            attend(v, name)
        except RuntimeError:
            return False
        return True

    def multiply(a: Any, b: Any) -> Any:
        v = b.view(spec.k, heads, head_dim).transpose(0, 1)[None]
        try:
            d = attend(v, backend)
        except RuntimeError as e:
            if not str(e).startswith(UNSUPPORTED):
                raise
            others = [name for name in BACKENDS if is_supported(v, name)]
            advice = f"give --option backend={' or '.join(others)}" if others else "no back end supports it"
            raise AccprobeError(f"torch has no {backend} attention for {spec.b} {spec.shape} on {device}: {advice}") from None
        return d[0].transpose(0, 1).reshape(spec.m, spec.n)

    return under_flags(multiply, given_flags(options, spec.a.name))


def _chosen(name: str) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(getattr(SDPBackend, name))

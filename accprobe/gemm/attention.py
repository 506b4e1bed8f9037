"""Attention as a product: P·V, of which only V can be chosen.

Where Q is zero all scores are 0, and the softmax gives each key the weight 1/keys: D = A·B whose A is 1/keys everywhere and
whose B is V, the K of the product the keys. A kernel may keep weights of 1 and divide by their sum at the end, or at the end of
each split: with a power of two of keys that is exact, and the same bits.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from warnings import catch_warnings, simplefilter

from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.gemm.adapter import Multiply
from accprobe.gemm.options import OptionValue
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Format

BACKENDS = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}
"""Names of `torch.nn.attention.SDPBackend`."""

NONE_RUNS = ("No viable backend", "No available kernel")
"""How torch's errors begin where a back end does not take the operands: on the CPU, and on GPUs."""

ASKS = "attention: P·V along the keys; Q = 0 makes every weight 1/keys, so V alone is asked, and of every query the same"


def weight(fmt: Format, keys: int) -> int:
    """The exponent of 1/keys. Raises AccprobeError where that is no power of two, or no normal number."""
    exponent = 1 - keys.bit_length()
    if keys & (keys - 1):
        raise AccprobeError(f"attention over {keys} keys has weights of 1/{keys}, which are rounded: give a power of two as K")
    if exponent < fmt.min_exponent:
        raise AccprobeError(f"{fmt} has no weights of 1/{keys}: give at most {2**-fmt.min_exponent} keys as K")
    return exponent


def attention(spec: Spec, backend: OptionValue, head_dim: int, device: str) -> Multiply:
    """`scaled_dot_product_attention` of M queries and K keys, N / head_dim heads beside one another in V's columns.

    Raises AccprobeError, UnknownName.
    """
    import torch

    if backend is not None and backend not in BACKENDS:
        raise UnknownName(f"torch:sdpa has no back end '{backend}'; {nearest(str(backend), BACKENDS)}")
    if head_dim < 1 or spec.n % head_dim:
        raise AccprobeError(f"N = {spec.n} is no number of heads of {head_dim} columns: see option head_dim")
    heads = spec.n // head_dim
    zeros: dict[Any, Any] = {}

    def attended(v: Any, name: OptionValue) -> Any:
        q, k = (zeros.setdefault(n, torch.zeros(1, heads, n, head_dim, dtype=v.dtype, device=device)) for n in (spec.m, spec.k))
        chosen = nullcontext() if name is None else _chosen(BACKENDS[str(name)])
        with chosen, catch_warnings():
            simplefilter("ignore")  # in which torch tells why a back end takes no such operands
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    def runs(v: Any, name: str) -> bool:
        try:
            attended(v, name)
        except RuntimeError:
            return False
        return True

    def multiplied(a: Any, b: Any) -> Any:
        v = b.view(spec.k, heads, head_dim).transpose(0, 1)[None]
        try:
            d = attended(v, backend)
        except RuntimeError as e:
            if not str(e).startswith(NONE_RUNS):
                raise
            there = [name for name in BACKENDS if runs(v, name)]
            instead = f"give --option backend={' or '.join(there)}" if there else "it has none"
            raise AccprobeError(f"torch has no {backend} attention of {spec.b} {spec.shape} on {device}: {instead}") from None
        return d[0].transpose(0, 1).reshape(spec.m, spec.n)

    return multiplied


def _chosen(name: str) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(getattr(SDPBackend, name))

"""A product whose A is 2:4 sparse, through cuSPARSELt, as a product of what A stores.

Of four neighbours in a row of A, two are stored: the K that is asked about is that of stored products, and the matrix that the
library is given is twice as wide. Rows of B that meet no stored element hold ones, which must not be seen.
"""

from __future__ import annotations

from typing import Any

from accprobe.errors import AccprobeError
from accprobe.gemm.adapter import Multiply
from accprobe.gemm.spec import Spec

STORED = (0, 3)
"""Places, of each four neighbours, of those that are stored."""

ASKS = "a 2:4 sparse A: K counts what is stored, at places 0 and 3 of each 4; rows of B that meet nothing stored hold ones"


def semi_structured(spec: Spec, out: Any, algorithm: int, split_k: int) -> Multiply:
    """`torch._cslt_sparse_mm` of A [M, K] and B [K, N], spread. out: the type of D, None where it is that of A.

    Raises AccprobeError where K is odd.
    """
    import torch

    if spec.k % 2:
        raise AccprobeError(f"K is {spec.k}; of a sparse A two of each four are stored: give an even K")

    def multiply(a: Any, b: Any) -> Any:
        dtype = a.dtype
        one = torch.ones((), device=a.device).to(dtype)
        plain = torch.uint8 if dtype.itemsize == 1 else dtype  # few operations take 8-bit floats
        a, b, filling = (x.view(plain) for x in (a, b.contiguous(), one))
        wide_a = a.new_zeros(spec.m, spec.k // 2, 4)
        wide_b = filling.expand(spec.k // 2, 4, spec.n).contiguous()
        wide_a[:, :, STORED] = a.reshape(spec.m, -1, 2)
        wide_b[:, STORED] = b.reshape(-1, 2, spec.n)
        packed = torch._cslt_compress(wide_a.reshape(spec.m, -1).view(dtype))
        dense = wide_b.reshape(-1, spec.n)
        dense = dense.t().contiguous().t().view(dtype) if plain is not dtype else dense
        return torch._cslt_sparse_mm(packed, dense, out_dtype=out, alg_id=algorithm, split_k=split_k)

    return multiply

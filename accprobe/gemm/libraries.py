"""Products of libraries that torch does not bring: cuBLASLt, an algorithm at a time, and DeepGEMM.

Written from nvmath-python 1.0 (nvmath.linalg.advanced) and from DeepGEMM's csrc/apis/gemm.hpp; the latter never ran on
hardware.
"""

from __future__ import annotations

from typing import Any

from accprobe.errors import AccprobeError
from accprobe.gemm.adapter import Multiply
from accprobe.gemm.spec import Spec

_RESULTS = {"f32": "CUDA_R_32F", "bf16": "CUDA_R_16BF", "f16": "CUDA_R_16F"}
"""What CUDA calls the types that products of 8 bits are given in."""

_SINGLE = {"f32": "COMPUTE_32F", "tf32": "COMPUTE_32F_FAST_TF32"}


def cublaslt(spec: Spec, algorithm: int, fast_accumulation: bool) -> Multiply:
    """The algorithm of that number, of those that cuBLASLt's heuristic has for the shape, the likeliest first.

    What is planned for the first operands is kept: later ones lie at the same addresses.
    """
    from nvmath import CudaDataType
    from nvmath.linalg import ComputeType
    from nvmath.linalg.advanced import Matmul

    options: dict[str, Any] = {}
    small = spec.a.storage_bits == 8
    if small:
        if spec.out.name not in _RESULTS:
            raise AccprobeError(f"cublaslt:matmul gives no {spec.out} of {spec.a}: give --out {' or '.join(_RESULTS)}")
        options = {"result_type": CudaDataType[_RESULTS[spec.out.name]], "fast_accumulation": fast_accumulation}
    elif spec.a.name in _SINGLE:
        options = {"compute_type": ComputeType[_SINGLE[spec.a.name]]}
    planned: list[Any] = []

    def multiply(a: Any, b: Any, *scales: Any) -> Any:
        of_each = [scale.reshape(1) for scale in scales] or [1.0, 1.0]
        given = {"quantization_scales": dict(zip("ab", of_each, strict=True))} if small else {}
        if planned:
            planned[0].reset_operands(a=a, b=b, **given)
        else:
            matmul = Matmul(a, b, options=options, **given)
            found = len(matmul.plan(preferences={"limit": max(0, algorithm) + 1}))
            if not 0 <= algorithm < found:
                raise AccprobeError(
                    f"cuBLASLt has no algorithm {algorithm} for {spec.shape}: give --option algorithm=0 or more"
                )
            planned.append(matmul)
        return planned[0].execute(algorithm=planned[0].algorithms[algorithm])

    return multiply


def fp8_gemm_nt(spec: Spec, out: Any) -> Multiply:
    """A scaled by 1 x 128, B by 128 x 128, as sm_90 takes them, in float32. B and its scales are given by columns."""
    from deep_gemm import fp8_gemm_nt as multiply_into

    def multiply(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
        d = a.new_empty((spec.m, spec.n), dtype=out)
        multiply_into((a, scale_a), (b.t(), scale_b.t().contiguous()), d)
        return d

    return multiply


def bf16_gemm_nt(spec: Spec, out: Any) -> Multiply:
    """B is given by columns."""
    from deep_gemm import bf16_gemm_nt as multiply_into

    def multiply(a: Any, b: Any) -> Any:
        d = a.new_empty((spec.m, spec.n), dtype=out)
        multiply_into(a, b.t(), d)
        return d

    return multiply

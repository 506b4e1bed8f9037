"""cuBLASLt and cuSPARSELt, with stand-ins that check their operands and multiply with torch."""

from __future__ import annotations

import sys
from enum import Enum
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from accprobe.callables.adapter import CallableAdapter
from accprobe.callables.arrays import TorchArrays
from accprobe.callables.builtin import BUILTIN, semi_structured
from accprobe.callables.spec import Spec
from accprobe.errors import AccprobeError
from accprobe.evaluate.product import ScaleWords
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import ScaleOf

torch = pytest.importorskip("torch")


class CudaDataType(Enum):
    CUDA_R_32F = torch.float32
    CUDA_R_16BF = torch.bfloat16
    CUDA_R_16F = torch.float16


class ComputeType(Enum):
    COMPUTE_32F = 4
    COMPUTE_32F_FAST_TF32 = 77


class Matmul:
    """`nvmath.linalg.advanced.Matmul` of which three algorithms are known: number n is off by n, so that it shows which ran."""

    made: list[Matmul]

    def __init__(self, a: Any, b: Any, *, quantization_scales: Any = None, options: Any = None) -> None:
        small = a.dtype.itemsize == 1
        if small:
            assert b.stride(0) == 1, "operands of 8 bits lie along K"
        self.options, self._small = options, small
        self.algorithms: list[int] = []
        self._set(a, b, quantization_scales)
        Matmul.made.append(self)

    def _set(self, a: Any, b: Any, scales: Any) -> None:
        assert (scales is not None) == self._small
        for scale in (scales or {}).values():
            assert isinstance(scale, float) or (tuple(scale.shape) in ((1,), ()) and scale.dtype == torch.float32)
        self._a, self._b, self._scales = a, b, scales or {}

    def plan(self, *, preferences: dict[str, int]) -> list[int]:
        self.algorithms = list(range(min(3, preferences["limit"])))
        return self.algorithms

    def reset_operands(self, *, a: Any, b: Any, quantization_scales: Any = None) -> None:
        self._set(a, b, quantization_scales)

    def execute(self, *, algorithm: int) -> Any:
        d = self._a.float() @ self._b.float()
        for scale in self._scales.values():
            d = d * scale
        return (d + algorithm).to(self.options["result_type"].value if self._small else self._a.dtype)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    Matmul.made = []
    of_nvmath: dict[str, dict[str, Any]] = {
        "nvmath": {"CudaDataType": CudaDataType},
        "nvmath.linalg": {"ComputeType": ComputeType},
        "nvmath.linalg.advanced": {"Matmul": Matmul},
    }
    for name, has in of_nvmath.items():
        module = ModuleType(name)
        vars(module).update(has)
        monkeypatch.setitem(sys.modules, name, module)


def called(
    name: str, a: Format, out: Format, scale: ScaleOf | None = None, shape: Any = (16, 256, 256), **options: Any
) -> CallableAdapter:
    builtin, library = BUILTIN[name], TorchArrays("cpu")
    spec = Spec(*shape, a, a, out, scale)
    function = builtin.make(spec, {**builtin.options, **options}, library)
    return CallableAdapter(spec, function, library, name, builtin.by_columns)


def powers(fmt: Format, shape: tuple[int, int], seed: int) -> Bits:
    random = np.random.default_rng(seed)
    patterns = np.array([fmt.encode(False, 1, exponent) for exponent in range(-1, 1)], fmt.dtype)
    return patterns[random.integers(0, 2, shape)]


def exact(asked: CallableAdapter, a: Bits, b: Bits) -> Any:
    spec = asked.spec
    return spec.a.values(a) @ spec.b.values(b).T


@pytest.mark.parametrize(("a", "out"), [("bf16", "bf16"), ("f16", "f16"), ("f32", "f32"), ("e4m3", "f32"), ("e5m2", "bf16")])
def test_cublaslt_multiplies_by_what_was_planned_once(a: str, out: str) -> None:
    asked = called("cublaslt:matmul", FORMATS[a], FORMATS[out], shape=(4, 8, 16))
    for seed in (0, 1):
        x, y = powers(FORMATS[a], (4, 16), seed), powers(FORMATS[a], (8, 16), seed + 9)
        np.testing.assert_array_equal(asked.spec.out.values(asked.product(x, y)), exact(asked, x, y))
    assert len(Matmul.made) == 1


def test_cublaslt_takes_the_algorithm_of_that_number() -> None:
    f32 = FORMATS["f32"]
    x, y = powers(f32, (16, 256), 0), powers(f32, (256, 256), 1)
    found = [f32.values(called("cublaslt:matmul", f32, f32, algorithm=n).product(x, y))[0, 0] for n in range(3)]
    assert np.diff(found).tolist() == [1, 1]
    for wrong, given in (3, "0 to 2$"), (-1, "0 or more$"):
        with pytest.raises(
            AccprobeError, match=f"cuBLASLt has no algorithm {wrong} for 16x256x256: give --option algorithm={given}"
        ):
            called("cublaslt:matmul", f32, f32, algorithm=wrong).product(x, y)


def test_cublaslt_is_given_types_flags_and_scales() -> None:
    e4m3, bf16 = FORMATS["e4m3"], FORMATS["bf16"]
    asked = called("cublaslt:matmul", e4m3, bf16, "tensor", fast_accumulation=True)
    x, y = powers(e4m3, (16, 256), 0) & 0x38, powers(e4m3, (256, 256), 1) & 0x38
    scales = ScaleWords(np.full((1, 1), 2, np.float32), np.full((1, 1), 4, np.float32))
    np.testing.assert_array_equal(bf16.values(asked.product(x, y, scales)), 8 * bf16.values(asked.product(x, y)))
    assert Matmul.made[0].options == {"result_type": CudaDataType.CUDA_R_16BF, "fast_accumulation": True}
    for name, compute in (("f32", "COMPUTE_32F"), ("tf32", "COMPUTE_32F_FAST_TF32")):
        fmt = FORMATS[name]
        called("cublaslt:matmul", fmt, FORMATS["f32"]).product(powers(fmt, (16, 256), 0), powers(fmt, (256, 256), 1))
        assert Matmul.made[-1].options == {"compute_type": ComputeType[compute]}


@pytest.mark.parametrize(("a", "out", "given"), [("bf16", "f32", "bf16"), ("tf32", "bf16", "f32"), ("e4m3", "f64", "f32 or")])
def test_types_that_cublaslt_does_not_give_are_one_sentence(a: str, out: str, given: str) -> None:
    with pytest.raises(AccprobeError, match=f"give --out {given}"):
        called("cublaslt:matmul", FORMATS[a], FORMATS[out])


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Refuses an A that is not 2:4 sparse, and reads no row of B that meets nothing stored; the options that it was given."""
    given: list[dict[str, object]] = []

    def compress(a: torch.Tensor) -> torch.Tensor:
        groups = a.view(a.shape[0], -1, 4).float()
        assert int((groups != 0).sum(dim=2).max()) <= 2
        assert a.is_contiguous()
        return a

    def multiply(packed: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None, **options: object) -> torch.Tensor:
        assert b.is_contiguous() or b.dtype.itemsize == 1
        given.append(options)
        return (packed.float() @ b.float()).to(out_dtype or packed.dtype)

    monkeypatch.setattr(torch, "_cslt_compress", compress)
    monkeypatch.setattr(torch, "_cslt_sparse_mm", multiply)
    return given


@pytest.mark.parametrize(("name", "out"), [("f16", "f16"), ("bf16", "bf16"), ("e4m3", "f32"), ("s8", "s32")])
def test_it_is_the_product_of_what_is_stored(name: str, out: str, library: list[dict[str, object]]) -> None:
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "s8": torch.int8}[name]
    fmt = FORMATS[name]
    function = semi_structured(Spec(8, 16, 32, fmt, fmt, FORMATS[out]), {"alg_id": 3, "split_k": 2}, TorchArrays("cpu"))
    rng = np.random.default_rng(0)
    a, b = (torch.tensor(rng.integers(-4, 5, shape)).to(torch.float32).to(dtype) for shape in ((8, 32), (32, 16)))
    d = function(a, b)
    np.testing.assert_array_equal(d.float().numpy(), (a.float() @ b.float()).numpy())
    assert library == [{"alg_id": 3, "split_k": 2}]


def test_an_odd_k_is_refused() -> None:
    fmt = FORMATS["f16"]
    with pytest.raises(AccprobeError, match="K is 33: a 2:4 sparse A stores two of each four elements, so give an even K"):
        semi_structured(Spec(8, 16, 33, fmt, fmt, fmt), {"alg_id": 0, "split_k": 1}, TorchArrays("cpu"))

"""A 2:4 sparse product probed by its stored elements, with a stand-in for cuSPARSELt."""

from __future__ import annotations

import numpy as np
import pytest

from accprobe.errors import AccprobeError
from accprobe.gemm.callables.libraries import semi_structured
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS

torch = pytest.importorskip("torch")


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


@pytest.mark.parametrize(("name", "out"), [("f16", None), ("bf16", None), ("e4m3", "float32"), ("s8", "int32")])
def test_it_is_the_product_of_what_is_stored(name: str, out: str | None, library: list[dict[str, object]]) -> None:
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "s8": torch.int8}[name]
    fmt = FORMATS[name]
    function = semi_structured(Spec(8, 16, 32, fmt, fmt, fmt), getattr(torch, out) if out else None, 3, 2)
    rng = np.random.default_rng(0)
    a, b = (torch.tensor(rng.integers(-4, 5, shape)).to(torch.float32).to(dtype) for shape in ((8, 32), (32, 16)))
    d = function(a, b)
    np.testing.assert_array_equal(d.float().numpy(), (a.float() @ b.float()).numpy())
    assert library == [{"alg_id": 3, "split_k": 2}]


def test_an_odd_k_is_refused() -> None:
    fmt = FORMATS["f16"]
    with pytest.raises(AccprobeError, match="K is 33: a 2:4 sparse A stores two of each four elements, so give an even K"):
        semi_structured(Spec(8, 16, 33, fmt, fmt, fmt), None, 0, 1)

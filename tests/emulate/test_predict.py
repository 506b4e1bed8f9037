"""`accprobe.predict`: which recorded row is used, scales, what is refused, and the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from commands import invoke

import accprobe
from accprobe.errors import AccprobeError

E4M3 = ml_dtypes.float8_e4m3fn
EPILOGUE = (512, 512, 1024), ml_dtypes.bfloat16
C = {"c": np.ones((512, 512), ml_dtypes.bfloat16)}
RELU = "this row applies relu, which predict does not compute"
SCALED = "products-h200:torch:_scaled_mm 512x512x512 e4m3 f32 use_fast_accum=True"


def matrices(m: int, n: int, k: int, dtype: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(m + n + k)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


def test_a_scaled_product_is_its_chain_times_the_scales() -> None:
    """The row has one chain of QGMMA, which the model of the instruction computes by itself."""
    a, b = matrices(512, 512, 512, E4M3)
    chain = accprobe.predict("h200:wgmma.m64n256k32.f32.e4m3.e4m3", a, b)
    d = accprobe.predict(SCALED, a, b, scales=(np.float32(0.75), np.float32(3)))
    np.testing.assert_array_equal(d, chain * np.float32(2.25))


def test_the_row_is_chosen_by_shape_and_type() -> None:
    a, b = matrices(16, 128, 4096, np.float16)
    by_type = accprobe.predict("products-h200:torch:mm 16x128x4096 f16 -> f16", a, b)
    assert by_type.dtype == np.float16
    wide = accprobe.predict("products-h200:torch:mm 16x128x4096 f16 -> f32", a, b)
    np.testing.assert_array_equal(by_type, wide.astype(np.float16))
    chosen = accprobe.predict("products-h200:torch:_int_mm", *matrices(256, 256, 4096, np.int8))
    exact = np.matmul(*matrices(256, 256, 4096, np.int8), dtype=np.int32)
    np.testing.assert_array_equal(chosen, exact)


def test_an_option_in_the_name_chooses_a_reduction() -> None:
    x = np.random.default_rng(0).standard_normal((2, 65536)).astype(np.float32)
    name = "reductions-h200:torch.distributed:all_reduce"
    np.testing.assert_array_equal(accprobe.predict(f"{name} op=avg", x, dim=0), x[0] / 2 + x[1] / 2)
    with pytest.raises(AccprobeError, match=r"means 2 reductions for .*; add words of one of them: .*op=sum; .*op=avg"):
        accprobe.predict(name, x, dim=0)


@pytest.mark.parametrize(
    ("like", "shape", "dtype", "more", "sentence"),
    [
        ("products-h200:torch:mm", (512, 512, 512), ml_dtypes.bfloat16, {}, "means 2 products"),
        ("products-h200:torch:mm", (5, 512, 512), ml_dtypes.bfloat16, {}, "has no product for a \\[5, 512\\] bfloat16"),
        (SCALED, (512, 512, 512), E4M3, {}, "no scales"),
        ("products-h200:torch:sdpa * *flash*", (1024, 1024, 1024), np.float16, {}, "was probed in part only"),
        ("products-h200:torch:mm", (512, 512, 512), np.float16, {"promote_every": 64}, "takes no promote_every"),
        ("QGMMA", (16, 16, 64), E4M3, {"scales": (1, 1)}, "has no scales"),
        ("more-products-h200:torch:linear activation=relu", *EPILOGUE, {}, RELU),
        ("more-products-h200:torch:linear", *EPILOGUE, {}, "torch:linear 512x512x1024 bf16 -> bf16: give C"),  # no option
        ("more-products-h200:torch:addmm", *EPILOGUE, {}, "give C, because the row was probed with one"),
        ("QGMMA", (16, 16, 64), E4M3, {"dim": 0}, "is an instruction: it takes no dim"),
    ],
)
def test_refusals(like: str, shape: tuple[int, int, int], dtype: Any, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AccprobeError, match=sentence):
        accprobe.predict(like, *matrices(*shape, dtype), **more)


@pytest.mark.parametrize("dim", [2, "x", None, True])
def test_a_dimension_that_a_matrix_has_not_is_refused(dim: Any) -> None:
    with pytest.raises(AccprobeError, match=f"dim={dim} is not a dimension of a matrix"):
        accprobe.predict("reductions-h200:torch:sum", np.zeros((64, 4096), np.float32), dim=dim)


@pytest.mark.parametrize("like", ["reductions-h200:torch:sum", "functions-h200:ex2.approx.ftz.f32"])
@pytest.mark.parametrize("option", ["c", "scales", "promote_every"])
def test_options_without_effect_are_refused(like: str, option: str) -> None:
    x = np.zeros((64, 4096), np.float32)
    given: dict[str, Any] = {option: {"c": x, "scales": (x, x), "promote_every": 32}[option]}
    with pytest.raises(AccprobeError, match=f"it takes no {option}"):
        accprobe.predict(like, x, **given)


def test_the_types_of_the_operands_choose_the_instruction() -> None:
    a, b = matrices(16, 8, 64, ml_dtypes.bfloat16)
    with pytest.warns(UserWarning, match=r"HGMMA: using h200:wgmma.m64n8k16.f32.bf16.bf16"):
        d = accprobe.predict("HGMMA", a, b)
    np.testing.assert_array_equal(d, accprobe.predict("h200:wgmma.m64n8k16.f32.bf16.bf16", a, b))
    with pytest.raises(AccprobeError, match="HGMMA has no operands of e4m3; it has f16, bf16, tf32"):
        accprobe.predict("HGMMA", *matrices(16, 8, 64, E4M3))


def test_the_command_writes_what_predict_returns(tmp_path: Path) -> None:
    a, b = matrices(16, 128, 4096, ml_dtypes.bfloat16)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    like = "products-h200:torch:mm 16x128x4096 bf16 -> bf16"
    words = ["predict", like, *(str(tmp_path / f"{name}.npy") for name in "ab"), "-o", str(tmp_path / "d.npy")]
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    written = np.load(tmp_path / "d.npy").view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(written, accprobe.predict(like, a, b))
    words[1] = "products-h200:torch:mm"
    refused = invoke(*words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "add words of one of them" in refused.stderr


def test_the_command_computes_a_function_of_each_element(tmp_path: Path) -> None:
    x = np.linspace(-2, 2, 7, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    like = "functions-h200:ex2.approx.ftz.f32"
    result = invoke("predict", like, str(tmp_path / "x.npy"), "-o", str(tmp_path / "y.npy"))
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.exp2(x), rtol=1e-6)
    refused = invoke("predict", "QGMMA", str(tmp_path / "x.npy"), "-o", str(tmp_path / "y.npy"))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "B is missing: QGMMA names no report" in refused.stderr


def test_an_input_is_not_replaced_and_an_earlier_result_is_kept(tmp_path: Path) -> None:
    x, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(x, np.linspace(-2, 2, 7, dtype=np.float32))
    y.write_bytes(b"earlier")
    like, before = "functions-h200:ex2.approx.ftz.f32", x.read_bytes()
    refused = invoke("predict", like, str(x), "-o", str(x))
    assert (refused.exit_code, x.read_bytes()) == (2, before)
    assert "is also an input: give another name" in refused.stderr
    assert invoke("predict", like, str(x), "-o", str(y)).exit_code == 0
    assert (tmp_path / "y.npy~").read_bytes() == b"earlier"

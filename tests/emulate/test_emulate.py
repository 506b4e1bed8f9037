"""`accprobe.predict`: recorded results and explicit chains, the choice of the row, scales, refusals, the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from commands import invoke

import accprobe
from accprobe import emulate
from accprobe.errors import AccprobeError, UnknownName
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import parse
from accprobe.operands.kinds import draw

FP8 = "h200:wgmma.m64n8k32.f32.e4m3.e4m3"
E4M3 = ml_dtypes.float8_e4m3fn
U4 = "h200:mma.sync.m16n8k32.s32.u4.u4.s32"
MXFP4 = "tcgen05.m128n16k64.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.ue8m0"
BYTES = {"a": np.ones((32, 32), np.int8), "b": np.ones((32, 32), np.int8)}

INSTRUCTIONS = [
    "wgmma.m64n8k32.f32.e4m3.e4m3",
    "wgmma.m64n8k32.f16.e5m2.e4m3",
    "wgmma.m64n8k16.f32.bf16.bf16",
    "wgmma.m64n8k8.f32.tf32.tf32",
    "mma.sync.m16n8k32.f32.e4m3.e4m3.f32",
    "mma.sync.m16n8k16.f16.f16.f16.f16",
    "mma.sync.m16n8k32.satfinite.s32.s8.u8.s32",
    "mma.sync.m16n8k4.f64.f64.f64.f64",
]


def typed(words: Bits, fmt: Format) -> Any:
    """Return integers in the type that has their values; the words of floats as they are."""
    return words.view(fmt.ml_dtype) if fmt.is_integer and fmt.bits >= 8 else words


def bits(x: Any) -> Bits:
    return x.view(f"uint{8 * x.dtype.itemsize}")


def operands(name: str, m: int, n: int, blocks: int, kind: str) -> tuple[Any, Any, Any]:
    inst, rng = parse(name), np.random.default_rng(3)
    a = np.hstack([draw(kind, inst, rng, m).a for _ in range(blocks)])
    b = np.hstack([draw(kind, inst, rng, n).b for _ in range(blocks)]).T.copy()
    c = draw(kind, inst, rng, m * n).c.reshape(m, n)
    return typed(a, inst.a), typed(b, inst.b), typed(c, inst.c)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_blocks_are_chained(name: str) -> None:
    like, step = f"h200:{name}", parse(name).k
    a, b, c = operands(name, 5, 3, 6, "extreme" if parse(name).is_integer else "clustered")
    d, running = emulate.predict(like, a, b, c), c
    for k in range(0, a.shape[1], step):
        running = emulate.predict(like, a[:, k : k + step], b[k : k + step], running)
    assert d.dtype == np.dtype(parse(name).d.ml_dtype)
    np.testing.assert_array_equal(bits(d), bits(running))


@pytest.mark.parametrize(
    ("like", "every"), [(FP8, 32), (FP8, 64), (FP8, 128), (FP8, 1024), ("h200:wgmma.m64n8k32.f16.e5m2.e4m3", 64)]
)
def test_chains_are_promoted_to_f32(like: str, every: int) -> None:
    """192 products: also where the last chain is shorter than the others."""
    a, b, _ = operands(like.removeprefix("h200:"), 4, 5, 6, "near one")
    total = c = np.ones((4, 5), np.float32)
    for k in range(0, 192, every):
        total = total + emulate.predict(like, a[:, k : k + every], b[k : k + every]).astype(np.float32)
    d = emulate.predict(like, a, b, c, promote_every=every)
    assert d.dtype == np.float32
    np.testing.assert_array_equal(bits(d), bits(total))


def test_empty_products_return_c() -> None:
    c = np.arange(6, dtype=np.float32).reshape(2, 3)
    for every in (None, 128):
        none = emulate.predict(FP8, np.zeros((2, 0), E4M3), np.zeros((0, 3), E4M3), c, promote_every=every)
        np.testing.assert_array_equal(none, c)


@pytest.mark.parametrize("every", [64, 1024])
def test_nan_of_a_promoted_sum_is_canonical(every: int) -> None:
    """Also where the chain is promoted once, and C alone is NaN."""
    c = np.full((2, 2), 0x7FC00001, np.uint32)
    d = emulate.predict(FP8, np.ones((2, 128), E4M3), np.ones((128, 2), E4M3), c, promote_every=every)
    assert (bits(d) == 0x7FFFFFFF).all()


def test_promotion_matters_where_the_running_sum_keeps_13_bits() -> None:
    a, b = np.ones((1, 4096), E4M3), np.full((4096, 1), 0.0625, E4M3)
    a[0, 0] = b[0, 0] = 256.0
    exact = 65536 + 4095 / 16
    assert emulate.predict(FP8, a, b)[0, 0] == 65536
    assert emulate.predict(FP8, a, b, promote_every=128)[0, 0] == exact - 31 / 16 - 96 / 16
    assert emulate.predict("h200:mma.sync.m16n8k32.f32.e4m3.e4m3.f32", a, b)[0, 0] == exact


@pytest.mark.parametrize(
    ("dtype", "like", "result"),
    [
        ("float8_e4m3fn", FP8, "float32"),
        ("float8_e5m2", "h200:wgmma.m64n8k32.f16.e5m2.e5m2", "float16"),
        ("bfloat16", "h200:wgmma.m64n8k16.f32.bf16.bf16", "float32"),
        ("float16", "sim:a100:mma.sync.m16n8k16.f16.f16.f16.f16", "float16"),
        ("float32", "h200:wgmma.m64n8k8.f32.tf32.tf32", "float32"),
        ("int8", "h200:wgmma.m64n8k32.s32.s8.s8", "int32"),
    ],
)
def test_tensors_are_as_arrays(dtype: str, like: str, result: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, shape) if dtype == "int8" else rng.normal(size=shape) for shape in ((3, 64), (64, 5)))
    c = rng.integers(-9, 9, (3, 5))
    tensors = [torch.from_numpy(x).to(getattr(torch, dtype)) for x in (a, b)]
    start = torch.from_numpy(c).to(getattr(torch, result))
    d = emulate.predict(like, *tensors, start)
    assert d.dtype == getattr(torch, result)
    numpy_type = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": E4M3, "float8_e5m2": ml_dtypes.float8_e5m2}
    arrays = [x.astype(np.float32).astype(numpy_type.get(dtype, dtype)) for x in (a, b)]
    same = emulate.predict(like, *arrays, c.astype(result))
    np.testing.assert_array_equal(bits(d.numpy()), bits(same))
    transposed = emulate.predict(like, tensors[0], tensors[1].T.contiguous().T, torch.from_numpy(c).to(getattr(torch, result)))
    assert torch.equal(transposed, d)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"a": np.ones((2, 32), np.float32)}, AccprobeError, "`a` has type float32; expected float8_e4m3fn .e4m3., or"),
        ({"b": np.ones((33, 2), E4M3)}, AccprobeError, r"`a` has shape \[2, 32\] and `b` \[33, 2\]; expected"),
        ({"c": np.ones((3, 2), np.float32)}, AccprobeError, r"`c` has shape \[3, 2\]; expected \[2, 2\]"),
        ({"c": np.ones((2, 2))}, AccprobeError, "`c` has type float64; expected float32"),
        ({"a": None}, AccprobeError, "an operand is a NoneType"),
        ({"promote_every": 48}, AccprobeError, "promote_every=48: give a positive multiple of 32, the K of wgmma.m64n8k32"),
        ({"like": "h200"}, UnknownName, "'h200' names no instruction"),
        ({"like": None}, UnknownName, "like=None names nothing; give a report and an instruction, such as QGMMA"),
        ({"like": "h200:avx512.m1n16k2.f32.bf16.bf16"}, UnknownName, "h200 has no model of 'avx512.m1n16k2.*; did you"),
        ({"like": "sim:b200:mma.sync.m8n8k4.f32.f16.f16.f16"}, AccprobeError, "m8n8k4.f32.f16.f16.f16 has C in f16"),
        ({"like": f"sim:b200:{MXFP4}"}, AccprobeError, f"{MXFP4} needs block scales"),
        ({"like": "h200:mma.sp.m16n8k16.f32.f16.f16.f32"}, AccprobeError, "needs metadata, which emulation does not support"),
        ({"a": np.ones(2, np.uint8), "like": "h200:wgmma.m64n8k32.s32.s8.s8"}, AccprobeError, "uint8; expected int8 .s8.$"),
        ({"a": np.full((2, 32), 16, np.uint8), "b": np.ones((32, 2), ml_dtypes.uint4), "like": U4}, AccprobeError,
         "`a` has the bit pattern 16; bit patterns of u4 are 0 to 15"),
        ({**BYTES, "like": "h200:wgmma.m64n8k32.s32.s8.s8", "promote_every": 32}, AccprobeError, "integers are never promoted"),
    ],
)  # fmt: skip
def test_bad_input(change: dict[str, Any], error: type[Exception], sentence: str) -> None:
    usual = {"a": np.ones((2, 32), E4M3), "b": np.ones((32, 2), E4M3), "c": None, "like": FP8}
    with pytest.raises(error, match=sentence):
        emulate.predict(**usual | change)


def test_the_example_in_the_docstring_runs() -> None:
    lines = [line.removeprefix("    ") for line in (emulate.__doc__ or "").splitlines() if line.startswith("    ")]
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    assert names["d"].shape == names["promoted"].shape == (16, 8)
    assert (names["promoted"] == 256).all()


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
    with pytest.warns(UserWarning, match="using h200:wgmma"):
        assert (accprobe.predict("IGMMA", np.full((2, 64), 3, np.int8), np.full((64, 2), 200, np.uint8)) == 64 * 600).all()
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

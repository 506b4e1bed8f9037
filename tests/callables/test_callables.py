"""Callables by name and their array libraries: found, called with the bits of the operands, with errors of one sentence."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accprobe.callables.adapter import CallableAdapter, one_sentence
from accprobe.callables.arrays import ARRAYS, ArrayLibrary, TorchArrays, open_arrays
from accprobe.callables.opening import Opened, ProductRequest, find_callable, open_callable
from accprobe.callables.operands import ones
from accprobe.callables.options import FLAGS, under_flags
from accprobe.callables.spec import Spec
from accprobe.errors import AccprobeError, ToolMissing
from accprobe.evaluate.product import ScaleWords
from accprobe.isa.formats import FORMATS, Bits, Format

torch = pytest.importorskip("torch")

SHAPE = (32, 48, 64)


def opened(name: str, a: str | None = None, out: str | None = None, scale: Any = None, **options: Any) -> Opened:
    asking = ProductRequest(SHAPE, FORMATS[a] if a else None, None, FORMATS[out] if out else None, scale)
    return open_callable(name, asking, options, "cpu")


def whole_numbers(fmt: Format, shape: tuple[int, int], seed: int) -> Bits:
    """Small ones, whose products' sums every format of results here holds."""
    whole = np.random.default_rng(seed).integers(-1, 2, shape)
    assert fmt.ml_dtype is not None
    return whole.astype(fmt.ml_dtype).view(fmt.dtype)


@pytest.mark.parametrize(
    ("name", "a", "out", "options"),
    [
        ("torch:mm", "f32", None, {}),
        ("torch:mm", "bf16", None, {"allow_bf16_reduced_precision_reduction": False}),
        ("torch:_scaled_mm", "e4m3", "f32", {"use_fast_accum": True}),
        ("torch:_scaled_mm", "e5m2", "bf16", {}),
        ("torch:_int_mm", None, None, {}),
        ("numpy:matmul", None, None, {}),
        ("torch:bmm", "bf16", None, {"batch": 3}),
        ("torch:_grouped_mm", "bf16", None, {"groups": 3}),
    ],
)
def test_built_in_callables_multiply(name: str, a: str | None, out: str | None, options: dict[str, Any]) -> None:
    called = opened(name, a, out, **options).adapter
    spec = called.spec
    first, second = whole_numbers(spec.a, (spec.m, spec.k), 1), whole_numbers(spec.b, (spec.n, spec.k), 2)
    d = called.product(first, second)
    assert np.array_equal(spec.out.values(d), spec.a.values(first) @ spec.b.values(second).T)


def test_products_of_a_batch_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    called, bmm = opened("torch:bmm", "f32").adapter, torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda a, b: torch.cat([bmm(a, b)[:2], bmm(a, b)[2:] + 1]))
    with pytest.raises(AccprobeError, match="product 2 has other bits than product 0 of the same operands"):
        called.product(*ones(called.spec))


@pytest.mark.parametrize("scale", ["tensor", "row"])
def test_scales_reach_the_rows_and_columns_that_they_are_of(scale: Any) -> None:
    called = opened("torch:_scaled_mm", "e4m3", "f32", scale).adapter
    spec = called.spec
    shapes = {"tensor": ((1, 1), (1, 1)), "row": ((spec.m, 1), (1, spec.n))}[scale]
    words = ScaleWords(*(2.0 ** np.arange(np.prod(shape)).reshape(shape).astype(np.float32) % 8 + 1 for shape in shapes))
    words = ScaleWords(*(np.exp2(np.round(np.log2(each))).astype(np.float32) for each in words))
    d = spec.out.values(called.product(*ones(spec), words))
    assert np.array_equal(d, np.broadcast_to(64 * words.a * words.b, d.shape))
    assert np.array_equal(spec.out.values(called.product(*ones(spec))), np.full(d.shape, 64.0))


def test_scales_of_blocks_are_handed_over_as_blocks() -> None:
    seen = []

    def scaled(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
        seen.append((scale_a.shape, scale_b.tolist()))
        return np.zeros((4, 300), np.float32)

    f32 = FORMATS["f32"]
    called = CallableAdapter(Spec(4, 300, 260, f32, f32, f32, "128x128"), scaled, ArrayLibrary(), "scaled")
    of_b = np.repeat(np.arange(9, dtype=np.float32).reshape(3, 3), 128, axis=1)[:, :300]
    called.product(*ones(called.spec), ScaleWords(np.ones((4, 3), np.float32), of_b))
    called.product(*ones(called.spec))
    assert seen == [((4, 3), [[0, 1, 2], [3, 4, 5], [6, 7, 8]]), ((4, 3), [[1] * 3] * 3)]


def test_flags_are_set_for_the_call_and_restored() -> None:
    matmul = torch.backends.cuda.matmul
    before = [getattr(matmul, name) for name in FLAGS]
    for value in (True, False):
        inside = under_flags(lambda: [getattr(matmul, name) for name in FLAGS], dict.fromkeys(FLAGS, value))
        assert inside() == [value] * len(FLAGS)
        with pytest.raises(ZeroDivisionError):
            under_flags(lambda: 1 / 0, {"allow_tf32": value})()
    assert [getattr(matmul, name) for name in FLAGS] == before


def test_a_function_of_the_users_is_given_options_and_torch_its_flags(tmp_path: Path) -> None:
    path = tmp_path / "own_functions.py"
    path.write_text(
        "import torch\ndef f(a, b, *, factor=1):\n    on = torch.backends.cuda.matmul.allow_tf32\n"
        "    return ((a @ b) * (factor if on else 0)).bfloat16()\n"
    )
    for flag in (True, False):
        options = {"allow_tf32": flag, "factor": 2}
        made = open_callable(f"{path}:f", ProductRequest((2, 2, 4)), options, "cpu")
        assert (made.adapter.spec.out, made.options) == (FORMATS["bf16"], options)
        d = made.adapter.product(*ones(made.adapter.spec))
        assert FORMATS["bf16"].values(d).tolist() == [[8 * flag] * 2] * 2


@pytest.mark.parametrize(
    ("name", "keywords", "message"),
    [
        ("torch:mm", {"options": {"allow_tf3": True}}, "torch:mm has no option 'allow_tf3'; did you mean allow_tf32"),
        ("torch:mm", {"options": {"allow_tf32": 3}}, "option allow_tf32 of torch:mm is True or False, not 3"),
        ("torch:mm", {"a": "e4m3"}, "torch:mm does not support e4m3: give --dtype bf16 or f16 or f32 or tf32 or f64"),
        ("torch:mm", {"a": "bf16", "out": "f32"}, "on the CPU torch returns products of bf16 as bf16 only: give --out bf16"),
        ("torch:mm", {"a": "tf32"}, "only GPUs compute tf32 products"),
        ("torch:baddbmm", {"options": {"batch": 0}}, "option batch is 0: give 1 or more"),
        ("torch:mm", {"scale": "row"}, "torch:mm does not support scales by row: it has none"),
        ("cublaslt:matmul", {}, "cublaslt:matmul is not available: nvmath is not installed: pip install 'nvmath"),
        ("cublaslt:mm", {}, "cublaslt:mm is not available: nvmath is not installed: pip install 'nvmath"),
        ("torch:mmm", {}, "torch has no 'mmm'; did you mean torch:mm"),
        ("tarch:mm", {}, "there is no package 'tarch' for 'tarch:mm'; did you mean torch:mm"),
        ("mm", {}, "there is no callable 'mm', and it is not FILE.py:FUNCTION; known are torch:mm"),
        ("gone.py:f", {}, "there is no file gone.py"),
    ],
)
def test_an_unavailable_callable_is_one_sentence(name: str, keywords: dict[str, Any], message: str) -> None:
    options = keywords.pop("options", {})
    with pytest.raises(AccprobeError, match=message):
        opened(name, **keywords, **options)


def test_a_file_that_cannot_be_imported_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import numpy\n\nnumpy.gone\n")
    with pytest.raises(AccprobeError, match=rf"broken.py cannot be imported: AttributeError: .*gone.* \({path}, line 3\)"):
        find_callable(f"{path}:f")
    path.write_text("import sys\nsys.exit('no GPU')\n")
    with pytest.raises(AccprobeError, match=rf"cannot be imported: SystemExit: no GPU \({path}, line 2\)"):
        find_callable(f"{path}:f")


def test_products_of_floats_and_integers_are_refused() -> None:
    request = ProductRequest(SHAPE, FORMATS["f32"], FORMATS["s8"])
    with pytest.raises(AccprobeError, match="accprobe has no model of products of f32 and s8 numbers: give the same kind"):
        open_callable("numpy:dot", request)


@pytest.mark.parametrize("arrays", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["a", "b", "scale of a", "scale of b"])
def test_operands_that_are_changed_in_place_are_named(arrays: str, name: str) -> None:
    def scaled(*given: Any) -> Any:
        d = (given[0] @ given[1]) * given[2] * given[3]
        given[["a", "b", "scale of a", "scale of b"].index(name)][:, -1] += 1
        return d

    f32 = FORMATS["f32"]
    called = CallableAdapter(Spec(4, 8, 16, f32, f32, f32, "row"), scaled, open_arrays(arrays, "cpu"), "own:scaled")
    changed = {"a": "4 of 64", "b": "16 of 128", "scale of a": "4 of 4", "scale of b": "1 of 8"}[name]
    with pytest.raises(AccprobeError, match=f"^own:scaled changes its operand {name} in place, in {changed} elements: let"):
        called.check()


def test_operands_that_a_later_call_changes_are_noticed() -> None:
    calls = []

    def product(a: Any, b: Any) -> Any:
        calls.append(1)
        d = a @ b
        if len(calls) > 5:
            b *= 2
        return d

    f32 = FORMATS["f32"]
    called = CallableAdapter(Spec(4, 8, 16, f32, f32, f32), product, ArrayLibrary(), "own:product")
    for _ in range(7):
        called.check()
    with pytest.raises(AccprobeError, match="changes its operand b in place"):
        called.check()


ADVICE = "give a smaller --shape or fewer --elements, or end other processes (`nvidia-smi` lists them)"


class OutOfMemoryError(RuntimeError):
    """As torch and CuPy call it."""


class Own(BaseException):
    """An exception that `except Exception` does not catch."""


TRITON = "at 2:8:\ndef kernel(X):\n    o = tl.arange(0, 15)\n        ^\narange's range must be a power of 2"
CALLING = "at 4:8:\ndef outer(X):\n    y = kernel(X)\n        ^"


def sentence(error: BaseException) -> str:
    with pytest.raises(AccprobeError) as told, one_sentence("f raises", "cuda:0"):
        raise error
    return str(told.value)


@pytest.mark.parametrize(
    ("error", "begins"),
    [
        (RuntimeError("CUDA error: out of memory\nSearch for it"), "f raises RuntimeError: CUDA error: out of memory; the"),
        (RuntimeError("RESOURCE_EXHAUSTED: failed to allocate"), "f raises RuntimeError: RESOURCE_EXHAUSTED"),
        (MemoryError(), "f raises MemoryError; the memory of cuda:0 is full"),
    ],
)
def test_full_memory_comes_with_what_to_do(error: BaseException, begins: str) -> None:
    told = sentence(error)
    assert told.startswith(begins)
    assert told.endswith(f"; the memory of cuda:0 is full: {ADVICE}")


def test_errors_of_any_class_are_caught_and_ctrl_c_is_not() -> None:
    assert sentence(Own("no")) == "f raises Own: no"
    with pytest.raises(KeyboardInterrupt), one_sentence("f raises", "cpu"):
        raise KeyboardInterrupt


def test_the_reason_of_a_compiler_comes_before_the_source() -> None:
    told = "f raises ValueError: arange's range must be a power of 2, in `o = tl.arange(0, 15)`"
    assert sentence(ValueError(TRITON)) == told
    outer = ValueError(CALLING)
    outer.__cause__ = ValueError(TRITON)
    assert sentence(outer) == told


@pytest.mark.parametrize("role", ["operand", "received", "patterns"])
def test_memory_that_is_full_where_operands_and_results_are_copied(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OutOfMemoryError("CUDA out of memory")

    called = open_callable("numpy:matmul", ProductRequest((8, 8, 8))).adapter
    monkeypatch.setattr(ArrayLibrary, role, full)
    with pytest.raises(
        AccprobeError, match=r"numpy:matmul .*: OutOfMemoryError: CUDA out of memory; the memory of cpu is full"
    ):
        called.check()


def test_gradients_are_recorded_in_a_callable_as_outside(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import torch\ndef backward(a, b):\n    x = torch.zeros(len(a), b.shape[0], requires_grad=True)\n"
        "    (d,) = torch.autograd.grad(x @ b, x, torch.ones(len(a), b.shape[1]))\n"
        "    return (a * d / b.sum(1)) @ b.requires_grad_()\n"
    )
    assert torch.is_grad_enabled()
    called = open_callable(f"{tmp_path}/own.py:backward", ProductRequest((4, 8, 2))).adapter
    assert isinstance(called.library, TorchArrays)
    for _ in range(2):
        d = called.product(*(np.ones((rows, 2), np.float32).view(np.uint32) for rows in (4, 8)))
        assert (d.view(np.float32) == 2).all()
    assert called.spec.out is FORMATS["f32"]


FLOATS = ("f64", "f32", "tf32", "f16", "bf16", "e5m2", "e4m3")
HERE = [name for name in ("torch", "numpy", "jax") if importlib.util.find_spec(name)]
NAMES = (*FLOATS, "s32", "s8", "u8")


def patterns(name: str, shape: tuple[int, int], seed: int = 0) -> Bits:
    """Return random bits, including NaNs."""
    fmt = FORMATS[name]
    rng = np.random.default_rng(seed)
    return rng.integers(0, 1 << min(fmt.bits + fmt.ignored_low_bits, 63), shape, np.uint64).astype(fmt.dtype)


def values_of(given: Any) -> Any:
    """Return the values as float64: torch converts its own types, ml_dtypes those of numpy."""
    return given.double().numpy() if isinstance(given, torch.Tensor) else np.asarray(given).astype(np.float64)


@pytest.mark.parametrize("arrays", HERE)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_bits_survive_the_round_trip(name: str, arrays: str) -> None:
    if (arrays, name) == ("jax", "f64"):
        pytest.skip("jax has f64 only where its environment says so")
    fmt, words = FORMATS[name], patterns(name, (6, 10))
    library = open_arrays(arrays, "cpu")
    given = library.operand("a", words, fmt)
    with np.errstate(invalid="ignore"):
        expected = fmt.values(words | 0) if not fmt.ignored_low_bits else words.view(np.float32).astype(np.float64)
        np.testing.assert_array_equal(values_of(given), expected)
    assert np.array_equal(library.patterns(given, fmt), words)


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
@pytest.mark.parametrize("by_columns", [False, True])
def test_b_is_contiguous_by_rows_or_by_columns_and_stays_where_it_is(arrays: str, by_columns: bool) -> None:
    library = open_arrays(arrays, "cpu")
    addresses = set()
    for seed in range(3):
        words = patterns("bf16", (5, 8), seed)
        given = library.operand("b", words.T, FORMATS["bf16"], by_columns)
        strides = given.stride() if arrays == "torch" else tuple(step // 2 for step in given.strides)
        assert (tuple(given.shape), strides) == ((8, 5), (1, 8) if by_columns else (5, 1))
        assert np.array_equal(library.patterns(given, FORMATS["bf16"]), words.T)
        addresses.add(given.data_ptr() if arrays == "torch" else given.ctypes.data)
    assert len(addresses) == 1


def test_a_matrix_transposed_in_parts_is_complete() -> None:
    words = patterns("f16", (9, 12)).view(np.int16).T
    kept = torch.zeros((12, 9), dtype=torch.int16)
    TorchArrays("cpu")._transpose_into("b", words, kept)
    assert np.array_equal(kept.numpy(), words)


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
def test_a_result_is_copied(arrays: str) -> None:
    """A function that returns its workspace again does not change earlier results."""
    library = open_arrays(arrays, "cpu")
    workspace = torch.ones((2, 2)) if arrays == "torch" else np.ones((2, 2), np.float32)
    first = library.patterns(workspace, FORMATS["f32"])
    workspace[0, 0] = 2
    assert first[0, 0] == 0x3F800000


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
def test_results_are_described_by_shape_type_and_format(arrays: str) -> None:
    library = open_arrays(arrays, "cpu")
    for name in NAMES:
        found = library.received(library.operand("a", patterns(name, (3, 4)), FORMATS[name]))
        assert (found.shape, found.fmt) == ((3, 4), FORMATS["f32" if name == "tf32" else name])
    assert [library.received(what) for what in (None, 3.0, [[1.0]])] == [None, None, None]
    strange = torch.ones(2, dtype=torch.complex64)
    found = library.received(strange if arrays == "torch" else strange.numpy())
    assert (found.fmt, found.type) == (None, "complex64")


def test_arrays_of_other_libraries_are_read_as_results() -> None:
    ours = np.arange(4, dtype=np.float32).reshape(2, 2)
    for library, given in ((TorchArrays("cpu"), ours), (ArrayLibrary(), torch.from_numpy(ours))):
        assert library.received(given) is not None
        assert np.array_equal(library.patterns(given, FORMATS["f32"]), ours.view(np.uint32))


def test_formats_that_a_library_lacks_and_other_libraries_are_named() -> None:
    with pytest.raises(AccprobeError, match="there are no arrays of 'cupy'; did you mean numpy"):
        open_arrays("cupy")
    with pytest.raises(AccprobeError, match="torch has no type for the format e3m2"):
        TorchArrays("cpu").operand("a", patterns("e3m2", (2, 2)), FORMATS["e3m2"])
    with pytest.raises(AccprobeError, match="numpy has no type for the format b1"):
        ArrayLibrary().operand("a", patterns("b1", (2, 2)), FORMATS["b1"])


@pytest.mark.parametrize("arrays", [name for name in ARRAYS if importlib.util.find_spec(name) is None])
def test_a_missing_library_is_named_with_its_install_command(arrays: str) -> None:
    with pytest.raises(ToolMissing, match=rf"^{arrays} is not installed: .*pip install"):
        open_arrays(arrays)

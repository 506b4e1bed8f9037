"""Operands reach an array library with their bits, and results come back with theirs."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from accprobe.callables.arrays import ARRAYS, ArrayLibrary, TorchArrays, open_arrays
from accprobe.errors import AccprobeError, ToolMissing
from accprobe.isa.formats import FORMATS, Bits

torch = pytest.importorskip("torch")

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
        assert found is not None
        assert (found.shape, found.fmt) == ((3, 4), FORMATS["f32" if name == "tf32" else name])
    assert [library.received(what) for what in (None, 3.0, [[1.0]])] == [None, None, None]
    strange = torch.ones(2, dtype=torch.complex64)
    found = library.received(strange if arrays == "torch" else strange.numpy())
    assert found is not None
    assert (found.fmt, found.type) == (None, "complex64")


def test_arrays_of_other_libraries_are_read_as_results() -> None:
    ours = np.arange(4, dtype=np.float32).reshape(2, 2)
    for library, given in ((TorchArrays("cpu"), ours), (ArrayLibrary(), torch.from_numpy(ours))):
        assert library.received(given) is not None
        assert np.array_equal(library.patterns(given, FORMATS["f32"]), ours.view(np.uint32))


def test_formats_that_a_library_lacks_are_named() -> None:
    with pytest.raises(AccprobeError, match="torch has no type for the format e3m2"):
        TorchArrays("cpu").operand("a", patterns("e3m2", (2, 2)), FORMATS["e3m2"])
    with pytest.raises(AccprobeError, match="numpy has no type for the format b1"):
        ArrayLibrary().operand("a", patterns("b1", (2, 2)), FORMATS["b1"])


@pytest.mark.parametrize("arrays", [name for name in ARRAYS if importlib.util.find_spec(name) is None])
def test_a_missing_library_is_named_with_its_install_command(arrays: str) -> None:
    with pytest.raises(ToolMissing, match=rf"^{arrays} is not installed: .*pip install"):
        open_arrays(arrays)

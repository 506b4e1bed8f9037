"""`accprobe explain`, and files of matrices that are damaged or hold something else: one sentence of accprobe's own."""

from __future__ import annotations

import io
import json
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result
from commands import invoke
from planted_plans import FP8, operands

from accprobe.cli.arrays import read_matrix
from accprobe.errors import AccprobeError

CHAIN = replace(FP8, m=8, n=16, k=128)
SPLIT = replace(CHAIN, slices=(64, 64), partial_format="bf16")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """a.npy, b.npy, chain.npy and split.npy, as numpy writes them."""
    monkeypatch.chdir(tmp_path)
    a, b = operands(CHAIN, 1)
    for name, array in {"a": a, "b": b, "chain": CHAIN(a, b), "split": SPLIT(a, b)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def explain(*arguments: str, a: str = "a.npy", b: str = "b.npy", dtype: str | None = "e4m3") -> Result:
    given = ["--dtype", dtype] if dtype else []
    return invoke("explain", "--a", a, "--b", b, *given, *arguments, columns=120)


@pytest.mark.usefixtures("folder")
def test_one_result() -> None:
    result = explain("chain.npy")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == "chain.npy: explained: 128 results, bit for bit, by"
    assert lines[-1] == "plans with another arithmetic may match too: the search ends at the first that explains the results"
    plan = {"each product once yes", "instruction h200:wgmma.m64n8k32.f32.e4m3.e4m3", "promotion interval none", "split-K none"}
    assert plan <= set(lines)


def test_a_square_operand_in_the_other_layout(folder: Path) -> None:
    square = replace(CHAIN, n=128)
    a, b = operands(square, 2)
    np.save(folder / "d.npy", square(a, b))
    np.save(folder / "a.npy", a)
    np.save(folder / "b.npy", b.T.copy())
    result = explain("d.npy")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == "B was read as [N, K]: with B as [K, N], A·B is far from the result"


@pytest.mark.usefixtures("folder")
def test_two_results_that_differ() -> None:
    result = explain("split.npy", "chain.npy")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "the two differ by split-K 2 versus none"


def test_a_flipped_bit(folder: Path) -> None:
    d = np.load(folder / "chain.npy")
    right = int(d.view(np.uint32)[5, 9])
    d.view(np.uint32)[5, 9] ^= 1 << 11
    np.save(folder / "chain.npy", d)
    result = explain("chain.npy")
    assert result.exit_code == 1
    assert "1 of 128 results not explained; the others by" in result.stdout
    assert re.search(f"row 5, column 9: 0x{right ^ 1 << 11:08x} .*, expected 0x{right:08x} ", result.stdout)
    assert "possible causes: other operands, another program, faulty hardware" in result.stdout


def test_a_nan_operand_enters_no_distance(folder: Path) -> None:
    a, d = np.load(folder / "a.npy").view(np.uint8), np.load(folder / "chain.npy").view(np.float32)
    a[0, 3], d[0] = 0x7F, np.nan
    d[1:] *= np.float32(1.001)
    np.save(folder / "a.npy", a)
    np.save(folder / "d.npy", d)
    result = explain("d.npy")
    assert (found := re.search(r"maximum ([\d,]+) ulp", result.stdout))
    assert int(found[1].replace(",", "")) < 1 << 16


def test_where_a_nan_is_expected_any_nan_is(folder: Path) -> None:
    a, b = operands(CHAIN, 1)
    a.view(np.uint8)[2, 3] = 0x7F
    d = CHAIN(a, b)
    d[2, 1] = 1
    np.save(folder / "a.npy", a)
    np.save(folder / "d.npy", d)
    assert "row 2, column 1: 0x3f800000 (1), expected any NaN" in explain("d.npy").stdout
    (result,) = json.loads(explain("d.npy", "--format", "json").stdout)["results"]
    assert result["unexplained"] == [{"row": 2, "column": 1, "got": "0x3f800000", "expected": "any NaN"}]


def test_a_result_without_a_product_differs(folder: Path) -> None:
    a, b = operands(CHAIN, 1)
    kept = a.copy()
    kept[:, 7] = 0
    np.save(folder / "lacks.npy", CHAIN(kept, b))
    result = explain("lacks.npy")
    assert result.stdout.splitlines()[0] == "lacks.npy: WRONG PRODUCTS: k 7 missing"
    assert result.exit_code == 1
    assert "both have the same plan" not in explain("lacks.npy", "chain.npy").stdout


@pytest.mark.parametrize("lacks", [True, False])
def test_a_region_without_a_product_or_with_another_plan_differs(lacks: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((32, 64), np.float32), rng.standard_normal((64, 96), np.float32)
    part = a.astype(np.float64) @ np.where(np.arange(64)[:, None] == 5, 0, b)
    if not lacks:
        part = np.zeros((32, 96), np.float32)
        for k in range(64):
            part += a[:, [k]] * b[k]
    d = np.where(np.arange(96) < 32, part, a.astype(np.float64) @ b).astype(np.float32)
    for name, array in {"a": a, "b": b, "d": d}.items():
        np.save(tmp_path / f"{name}.npy", array)
    result = explain(str(tmp_path / "d.npy"), a=str(tmp_path / "a.npy"), b=str(tmp_path / "b.npy"), dtype=None)
    assert ("with WRONG PRODUCTS in a region" in result.stdout) == lacks
    assert "by 2 plans" in result.stdout
    assert result.exit_code == 1


def test_no_known_plan(folder: Path) -> None:
    a, b = operands(CHAIN, 1)
    np.save(folder / "other.npy", replace(CHAIN, alignment_bits=18, result_bits=18)(a, b))
    result = explain("other.npy", "chain.npy")
    assert result.exit_code == 1
    assert "NOT explained: no known plan gives these bits" in result.stdout
    unexplained, _ = result.stdout.split("chain.npy: explained")
    assert "every k once" not in unexplained  # that the nearest plan counts every k says nothing of the result
    assert "shows no missing, repeated or mispaired k" in unexplained
    assert "differ by" not in result.stdout  # nothing is known of one of them


@pytest.mark.usefixtures("folder")
def test_json() -> None:
    result = explain("split.npy", "chain.npy", "--format", "json")
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [each["file"] for each in told["results"]] == ["split.npy", "chain.npy"]
    assert [(each["words"], each["compared"], each["wrong"]) for each in told["results"]] == [(128, 128, 0)] * 2
    assert told["differ"] == {"split_k": [2, 1]}
    assert told["results"][0]["plans"][0]["findings"]["partial_format"] == "bf16"
    assert told["results"][0]["others_tried"] is False


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"b": "c.npy"}, r"A has shape [8, 128] and B [16, 128]; expected [M, K] and [K, N]; save B transposed"),
        ({"a": "bad.npy"}, "bad.npy is not an .npy file; save it with numpy.save"),
        ({"a": "chain.npy"}, "chain.npy has the type float32; expected e4m3"),
        ({"a": "a.pt", "b": "f32.npy", "dtype": None}, "A has the type bf16 and B f32, and no known instruction multiplies"),
    ],
)
def test_what_is_no_product(folder: Path, files: dict[str, Any], message: str) -> None:
    np.save(folder / "c.npy", np.load(folder / "b.npy").T)
    (folder / "bad.npy").write_text("no numbers at all")
    torch.save(torch.zeros(8, 128, dtype=torch.bfloat16), folder / "a.pt")
    np.save(folder / "f32.npy", np.zeros((128, 16), np.float32))
    result = explain("chain.npy", **files)
    assert result.exit_code == 2
    assert message in result.stderr


LIBRARIES_SAY = ("Error", "weights_only", "torch.load", "Traceback", "invalid literal", "Unpickler")


def with_header(header: bytes, numbers: int = 16) -> bytes:
    return len(header).to_bytes(8, "little") + header + bytes(numbers)


def tensor(**changes: object) -> bytes:
    entry = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]} | changes
    return with_header(json.dumps({"a": entry}).encode())


SAFETENSORS = {
    "nested too deeply": (with_header(b"[" * 200_000), "its header is not JSON"),
    "no text": (with_header(b'{"\xff": 1}'), "its header is not JSON"),
    "a number of 5,000 digits": (with_header(b'{"a": ' + b"9" * 5000 + b"}"), "its header is not JSON"),
    "no object": (with_header(b"[1]"), "its header is not an object that names tensors"),
    "no entry": (with_header(b'{"a": 3}'), "tensor 'a' lacks a dtype, a shape or data_offsets"),
    "no dtype": (tensor(dtype=["F32"]), "tensor 'a' lacks a dtype, a shape or data_offsets"),
    "shape of words": (tensor(shape=["x", 2]), "tensor 'a' lacks a dtype, a shape or data_offsets"),
    "offsets before the file": (tensor(data_offsets=[-16, 16]), "tensor 'a' lacks a dtype, a shape or data_offsets"),
    "offsets in turn": (tensor(data_offsets=[16, 0]), "tensor 'a' has -16 bytes, its shape needs 16"),
    "shape of 2^66": (tensor(shape=[1 << 66, 2]), "tensor 'a' has 16 bytes, its shape needs 590295810358705651712"),
    "another type": (tensor(dtype="F4"), "tensor 'a' has the type F4; expected one of F64, F32"),
    "no length": (b"abc", "or is truncated: it has 3 bytes"),
}


@pytest.mark.parametrize("name", SAFETENSORS)
def test_safetensors_that_are_none_are_one_sentence(name: str, tmp_path: Path) -> None:
    content, sentence = SAFETENSORS[name]
    assert_refused(tmp_path / "x.safetensors", content, sentence)


def test_safetensors_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(tensor()[:-16] + np.arange(4, dtype=np.float32).tobytes())
    bits, fmt = read_matrix(tmp_path / "x.safetensors")
    assert (fmt.name, bits.view(np.float32).tolist()) == ("f32", [[0, 1], [2, 3]])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pickle.dumps({"x": 1, "f": print}, 4), "has Python objects, which accprobe does not run; save only the tensors"),
        (b"no numbers at all", "was not written by torch.save, or is truncated; save it again"),
        (b"", "was not written by torch.save, or is truncated; save it again"),
        (b"PK\3\4 and no more", "was not written by torch.save, or is truncated; save it again"),
    ],
)
def test_objects_in_a_file_of_torch_are_one_sentence_and_no_warning(content: bytes, sentence: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert_refused(tmp_path / "x.pt", content, sentence)


def test_tensors_without_dense_data_are_one_sentence(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for tensor, sentence in ((torch.eye(2).to_sparse(), "is sparse"), (torch.empty(2, 2, device="meta"), "has no data")):
        file = io.BytesIO()
        torch.save(tensor, file)
        assert_refused(tmp_path / "x.pt", file.getvalue(), sentence)


def assert_refused(path: Path, content: bytes, sentence: str) -> None:
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AccprobeError) as raised:
            read_matrix(path)
    said = str(raised.value)
    assert said.startswith(str(path))
    assert sentence in said
    assert not [word for word in LIBRARIES_SAY if word in said.removeprefix(str(path))]

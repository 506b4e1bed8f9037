"""Files of matrices that are damaged, or hold something else: a sentence of accprobe's own, and nothing that a library says."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest

from accprobe.cli.arrays import read_matrix
from accprobe.errors import AccprobeError

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

"""`accprobe verify --vectors`: models against results that somebody recorded, written here or by hardware."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hardware_vectors import FOLDERS, needs_vectors

from accprobe.cli import main
from accprobe.devices.simulated import simulated_device
from accprobe.isa.instructions import parse
from accprobe.operands.kinds import draw


def verify(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(main, ["verify", *arguments])


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Results that a simulated H100 gave, in the layout: f16 with f32 results, fp8 with f16 results."""
    rng = np.random.default_rng(0)
    for operand, name, result in (
        ("fp16", "mma.sync.m16n8k16.f32.f16.f16.f32", "fp32"),
        ("E4M3", "mma.sync.m16n8k32.f16.e4m3.e4m3.f16", "fp16"),
    ):
        inst = parse(name)
        request = draw("normal", inst, rng, 40)
        a, b, c = request.columns
        d = simulated_device("h100").dot(inst, request)
        folder = tmp_path / "H100" / operand
        folder.mkdir(parents=True)
        for letter, fmt, x in (("a", inst.a, a), ("b", inst.b, b)):
            lines = [" ".join(f"{p:08x}" for p in row) for row in fmt.values(x).astype(np.float32).view(np.uint32)]
            (folder / f"{letter}_H100_{operand}.txt").write_text("\n".join(lines) + "\n")
        for letter, x, suffix in (("c", c, "fp32"), ("d", d, result)):
            wide = inst.c.values(x).astype(np.float32).view(np.uint32)
            (folder / f"{letter}_H100_{suffix}.txt").write_text("\n".join(f"{p:032b}" for p in wide) + "\n")
    return tmp_path


def spoil(path: Path, line: int, text: str) -> None:
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines) + "\n")


def test_vectors_agree_and_the_reading_is_told(vectors: Path) -> None:
    result = verify("sim:all", "--vectors", str(vectors))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "mma.sync.m16n8k32.f16.e4m3.e4m3.f16" in result.stdout
    assert re.search(r"H100/E4M3 -> fp16: as wgmma.m64n8k32.f16.e4m3.e4m3 \d+ would differ", result.stdout)
    assert result.stdout.startswith("0 mismatches: 2 sets of results, 80 dot products\n")


def test_h200_report_explains_an_h100(vectors: Path) -> None:
    assert verify("h200", "--vectors", str(vectors)).exit_code == 0
    only = verify("h200", "--vectors", str(vectors), "--select", "*f16.f16*", "--format", "json")
    (row,) = json.loads(only.stdout)["compared"]
    assert (row["gpu"], row["operand"], row["result"], row["dots"], row["mismatches"]) == ("H100", "fp16", "fp32", 40, 0)


def test_wrong_results_are_found(vectors: Path) -> None:
    file = vectors / "H100" / "fp16" / "d_H100_fp32.txt"
    lines = file.read_text().splitlines()
    wrong_line = f"{int(lines[7], 2) ^ 1:032b}"
    spoil(file, 8, wrong_line)
    result = verify("sim:h100", "--vectors", str(vectors))
    assert result.exit_code == 1
    assert "1 mismatch: 2 sets of results, 80 dot products" in result.stdout
    assert "! H100/fp16 -> fp32: k 0: 0x" in result.stdout
    (wrong,) = [
        row
        for row in json.loads(verify("sim:h100", "--vectors", str(vectors), "--format", "json").stdout)["compared"]
        if row["mismatches"]
    ]
    assert wrong["counterexample"]["exchange"][3] == f"{int(wrong_line, 2):08x}"


@pytest.mark.parametrize(
    ("file", "change", "sentence"),
    [
        ("a_H100_fp16.txt", None, "is missing"),
        ("d_H100_fp32.txt", None, "d_H100_fp32.txt is missing"),
        ("d_H100_fp32.txt", "d_H100_fp8.txt", "is not GPU/FORMAT/d_GPU_RESULT.txt with a known format and result"),
        ("c_H100_fp32.txt", (3, "0102"), ":3: '0102' is no binary pattern of a float32"),
        ("b_H100_fp16.txt", (2, "xyz"), ":2: 'xyz' is no hexadecimal pattern of a float32"),
        ("b_H100_fp16.txt", (2, "3f800000"), ":2: 1 values, and 16 on the first line"),
        ("a_H100_fp16.txt", (5, " ".join(["3f800001"] * 16)), ":5: 3f800001 is not a value of f16"),
    ],
)
def test_damaged_vectors(vectors: Path, file: str, change: object, sentence: str) -> None:
    path = vectors / "H100" / "fp16" / file
    match change:
        case None:
            path.unlink()
        case str():
            path.rename(path.with_name(change))
        case (int() as line, str() as text):
            spoil(path, line, text)
    result = verify("sim:all", "--vectors", str(vectors))
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert str(path.parent) in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_gpu_that_is_not_known(vectors: Path) -> None:
    (vectors / "H100").rename(vectors / "K80")
    for file in vectors.glob("*/*/*"):
        file.rename(file.with_name(file.name.replace("H100", "K80")))
    result = verify("sim:all", "--vectors", str(vectors))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no published model of 'K80'" in result.stderr
    other = verify("sim:h100", "--vectors", str(vectors))
    assert "has results of K80; sim:h100 has models of none of them, sim:all of all" in other.stderr


@needs_vectors
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_recorded_result_of_hardware(folder: Path) -> None:
    result = verify("sim:all", "--vectors", str(folder))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("0 mismatches: ")
    if (folder / "H100").is_dir():
        assert "as mma.sync.m16n8k32.f32.e4m3.e4m3.f32 5,000 would differ" in result.stdout

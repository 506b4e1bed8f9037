"""`accprobe budget` and `accprobe tolerance`: whole outputs, files of operands, and exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from click.testing import Result
from commands import assert_refused, invoke

from accprobe.budget import error_report
from accprobe.operands.safetensors import write_tensors
from accprobe.render.subjects.budget import SIMULATED

KEYS = {
    "k",
    "promote_every",
    "split_k",
    "data",
    "scale",
    "outputs",
    "relative_error",
    "bias",
    "bound_over_sum",
}
"""What readers of rows may rely on."""


budget = partial(invoke, "budget")


def small(*arguments: str) -> Result:
    return budget("QGMMA", "--k", "512", "--outputs", "64", *arguments)


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return found


def test_everything_that_json_has() -> None:
    result = small(
        "--data", "normal", "--promote-every", "none,64", "--split-k", "1,2", "--scale", "none,row", "--format", "json"
    )
    told = json.loads(result.stdout)
    assert (told["kind"], told["seed"], told["simulated"], told["interrupted"]) == ("budget", 0, [], False)
    assert told["accumulations"] == ["h200:wgmma.m64n8k32.f32.e4m3.e4m3"]
    assert len(told["rows"]) == 8
    assert all(set(row) >= KEYS for row in told["rows"])
    assert {(row["scale"], row["is_scaled"]) for row in told["rows"]} == {("none", False), ("row", True)}
    assert any(sentence.startswith("normal operands: before D is rounded, ") for sentence in told["words"])
    assert told["notes"]


def test_a_published_model_is_called_simulated() -> None:
    name = "sim:h100:wgmma.m64n8k32.f32.e4m3.e4m3"
    arguments = (name, "QGMMA", "--k", "64", "--outputs", "16")
    assert json.loads(budget(*arguments, "--format", "json").stdout)["simulated"] == [name]
    assert SIMULATED in budget(*arguments, columns=400).stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((8, 96), np.float32), rng.standard_normal((96, 12), np.float32)
    np.save("w.npy", b.T)
    np.save("words.npy", b.astype(ml_dtypes.bfloat16))
    np.save("nan.npy", np.array([[1, np.nan]], np.float32))
    torch.save({"a": torch.from_numpy(a), "b": torch.from_numpy(b).bfloat16()}, "ab.pt")
    torch.save({"x": torch.from_numpy(a), "y": torch.from_numpy(b), "n": 3}, "three.pt")
    write_tensors(tmp_path / "ab.safetensors", {"a": a, "b": b})
    write_tensors(tmp_path / "layers.safetensors", {"0.weight": a, "1.weight": b.T})
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("file", ["w.npy", "ab.pt", "ab.safetensors", "layers.safetensors:1.weight", "./w.npy"])
def test_operands_of_one_s_own(file: str) -> None:
    found = rows(budget("QGMMA", "--data", file, "--outputs", "64", "--format", "json"))
    assert {(row["data"], row["k"]) for row in found} == {(file, 96)}
    assert all(0 < row["relative_error"] < 1e-3 for row in found)


@pytest.mark.usefixtures("folder")
def test_another_k_than_that_of_the_file_is_refused() -> None:
    refused = budget("QGMMA", "--data", "w.npy", "--k", "64,192")
    assert refused.exit_code == 2
    assert refused.stderr.splitlines()[-1] == "accprobe: w.npy has K = 96, and the product K = 64; give K = 96"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("nan.npy", "NaN or infinite"),
        ("words.npy", "words.npy has the type |V2; expected real numbers"),
        ("three.pt", "has 3 tensors, not only a and b; give three.pt:NAME"),
        ("three.pt:n", "has a int, not a tensor"),
        ("layers.safetensors:2.weight", "has no tensor '2.weight'; did you mean"),
    ],
)
def test_files_without_operands_are_refused_in_one_sentence(file: str, said: str) -> None:
    result = budget("QGMMA", "--data", file)
    assert_refused(result, said)


@pytest.mark.parametrize("form", ["terminal", "json"])
def test_an_interruption_keeps_what_is_known(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = error_report.entries

    def interrupted(*asked: Any) -> Iterator[error_report.ErrorRow]:
        known = whole(*asked)
        yield next(known)
        yield next(known)
        raise KeyboardInterrupt

    monkeypatch.setattr(error_report, "entries", interrupted)
    result = small("--format", form)
    assert result.exit_code == 130
    assert result.stderr.endswith("accprobe: interrupted: 2 rows known\n")
    if form == "json":
        told = json.loads(result.stdout)
        assert (told["interrupted"], len(told["rows"])) == (True, 2)
    else:
        assert "Interrupted: some of the errors are missing." in result.stdout


PROMOTED = ("QGMMA", "--k", "512", "--m", "8", "--n", "8", "--promote-every", "128", "--out", "bf16")


@pytest.fixture(autouse=True)
def few_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accprobe.budget.tolerance.TRIALS", 20)


tolerance = partial(invoke, "tolerance")


def test_tolerance_in_json() -> None:
    result = tolerance(*PROMOTED, "--format", "json", "--data", "same-sign", "--atol", "0.1", "--false-alarms", "1e-6")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert 0 < found["sums_over_sum"] < found["any_operands_over_sum"] < 0.05
    assert found["atol"] > 0
    assert (found["rtol"], found["false_alarms"], found["promote_every"]) == (2.0**-8, 1e-6, 128)
    assert found["own"] == {"atol": 0.1, "rtol": 0.0}
    assert (found["m"], found["n"]) == (8, 8)
    (cut,) = (row for row in found["kill_table"] if row["mistake"] == "the result truncated, not rounded")
    assert set(cut["caught"]) == set(found["passed"]) == {"elements", "allclose", "calc_diff", "own"}
    assert not found["simulated"]


def test_terminal_has_a_test_of_the_users_and_keeps_its_width() -> None:
    result = tolerance(*PROMOTED, "--atol", "0.01", columns=80)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "own |got - f64 reference| <= 0.01 " in " ".join(result.stdout.split())
    assert "out=" not in tolerance(*PROMOTED, "--out", "f32", columns=80).stdout


def test_a_measured_product_has_its_own_k_and_result() -> None:
    name = "products-h200:torch:_scaled_mm 512x512x512 e4m3 -> bf16, scale=tensor, use_fast_accum=False"
    found = json.loads(tolerance(name, "--m", "4", "--n", "4", "--format", "json").stdout)
    assert (found["k"], found["promote_every"], found["out"]) == (512, 128, "bf16")

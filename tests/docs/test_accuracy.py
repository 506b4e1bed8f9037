"""docs/accuracy.md: what is recorded is what is computed, its commands give it, and what hardware says of it is told."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import accuracy_blocks
import pytest
from _pytest.mark import ParameterSet
from accuracy_blocks import error, hardware, line, lines, percent
from benchmark import loaded
from block_forms import ROOT
from click.testing import CliRunner

from accprobe.budget.error_report import BudgetRequest, entries
from accprobe.cli import main

PAGE = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^`(accprobe budget [^`]+)`", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def benchmark_of_models() -> ModuleType:
    return loaded("accuracy")


def same(found: Iterator[dict[str, Any]], recorded: list[dict[str, Any]]) -> None:
    for each, expected in zip(found, recorded, strict=True):
        assert each.keys() == expected.keys()
        for name, value in expected.items():
            assert each[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float | list) else value)


def test_cheap_lines_are_what_is_recorded(benchmark_of_models: ModuleType) -> None:
    cheap = (128, 1024)
    same(benchmark_of_models.over_k(cheap), [each for each in lines("over_k") if each["k"] in cheap])
    same(benchmark_of_models.attention((1024,)), lines("attention", k=1024))
    same(benchmark_of_models.integers(), lines("integers"))
    same(benchmark_of_models.outliers(), lines("outliers"))
    same(iter([benchmark_of_models.softmax()]), lines("softmax"))


@pytest.mark.parametrize(("data", "within"), [("positive", 0.01), ("normal", 0.25)])
def test_long_sums_err_as_recorded(benchmark_of_models: ModuleType, data: str, within: float) -> None:
    """A few other outputs."""
    request = BudgetRequest(ks=(16384,), data=(data,), outputs=256, seed=1)
    for entry in entries(benchmark_of_models.QGMMA, request):
        expected = error(16384, data, promote_every=entry.promote_every)
        assert entry.errors.relative_error == pytest.approx(expected, rel=within)


def test_what_others_cite() -> None:
    never, often = (
        {data: percent(error(16384, data, promote_every=every)) for data in accuracy_blocks.KINDS} for every in (None, 128)
    )
    assert never == {"positive": "25 %", "normal": "0.32 %"}
    assert often == {"positive": "0.05 %", "normal": "0.013 %"}
    assert error(4096, "normal") < 0.02 < error(4096, "positive")


def test_every_k_and_every_kind_is_recorded(benchmark_of_models: ModuleType) -> None:
    told = {(each["accumulator"], each["data"], each["k"], each["promote_every"]) for each in lines("over_k")}
    assert told == {
        (name, data, k, every)
        for name, (_, intervals) in benchmark_of_models.ACCUMULATORS.items()
        for data in benchmark_of_models.DATA
        for k in benchmark_of_models.KS
        for every in intervals
    }
    asked = loaded("accuracy_gpu")
    assert (asked.KS, asked.DATA) == (benchmark_of_models.KS, benchmark_of_models.DATA)


def named(command: str) -> ParameterSet:
    """By its data and scales. That of many intervals is of a long K, and in the long tail."""
    name = "_".join(re.findall(r"--(?:data|scale) ([\w,]+)", command))
    return pytest.param(command, id=name or "intervals", marks=() if name else pytest.mark.slow)


@pytest.mark.parametrize("command", [named(command) for command in COMMANDS])
def test_commands_give_the_numbers(command: str) -> None:
    """With the smallest K alone; of scales and intervals the first two."""
    _, *arguments = shlex.split(command)
    for option, most in (("--k", 1), ("--scale", 2), ("--promote-every", 2)):
        if option in arguments:
            place = arguments.index(option) + 1
            arguments[place] = ",".join(arguments[place].split(",")[:most])
    result = CliRunner().invoke(main, [*arguments, "--format", "json"])
    assert result.exit_code == 0
    rows = json.loads(result.stdout)["rows"]
    assert rows
    for row in rows:
        compared = [*sums_recorded(row), *operands_recorded(row)]
        assert compared
        for found, expected in compared:
            assert found == pytest.approx(expected, rel=1e-9)


def sums_recorded(row: dict[str, Any]) -> Iterator[tuple[float, float]]:
    if (row["scale"] == "none") == (row["data"] == "attention"):
        return
    of = {name: row[name] for name in ("data", "k", "promote_every")}
    for each in (*lines("over_k", accumulator="QGMMA", **of), *lines("promotion", **of), *lines("attention", **of)):
        yield row["relative_error"], each["relative_error"]


def operands_recorded(row: dict[str, Any]) -> Iterator[tuple[float, float]]:
    for each in lines("scales", data=row["data"], scale=row["scale"]) if row["k"] == 4096 else ():
        yield row["operands_error"], each["quantisation_error"]
        yield row["operands"]["a"]["snr"], each["snr"]


def test_a_drift_is_linear_and_the_square_root_promises_too_little() -> None:
    assert error(16384, "positive") / error(4096, "positive") > 3.5
    assert 1.9 < error(16384, "normal") / error(4096, "normal") < 3
    biases = [
        line("over_k", data="positive", k=16384, accumulator="QGMMA", promote_every=every)["bias"] for every in (None, 128)
    ]
    assert all(bias < 0 for bias in biases)


def test_hardware_that_agrees_has_the_errors_of_the_model() -> None:
    told = hardware()
    if told is None:
        assert PAGE.count("| never run |") == 2 * len({each["k"] for each in lines("over_k")})
        return
    for each in told["lines"]:
        if not each["differ"]:
            expected = error(each["k"], each["data"], promote_every=each["promote_every"])
            assert each["relative_error"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("differ", [0, 3])
def test_what_hardware_says_is_told(differ: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        {"data": data, "k": each["k"], "words": 1000, "differ": differ, "promote_every": every}
        for data in accuracy_blocks.KINDS
        for each in lines("over_k", data="normal", accumulator="f32")
        for every in (None, 128)
    ]
    (tmp_path / "h200.json").write_text(json.dumps(accuracy_blocks.recorded()), encoding="utf-8")
    told = {"device": "a GPU", "torch": "0", "cuda": "1", "lines": found}
    (tmp_path / "h200-hardware.json").write_text(json.dumps(told), encoding="utf-8")
    monkeypatch.setattr(accuracy_blocks, "FOLDER", tmp_path)
    assert accuracy_blocks.same_sign().count(f"| {differ}, {differ} |") == len(found) / 4
    text = " ".join(accuracy_blocks.on_hardware().split())
    assert f"40 products, 40,000 words, of which {40 * differ} differ" in text
    assert ("equal where the bits are" in text) == (not differ)
    (tmp_path / "h200-hardware.json").unlink()
    assert "never run on hardware" in accuracy_blocks.on_hardware()
    assert "| never run |" in accuracy_blocks.zero_mean()

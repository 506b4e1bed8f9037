"""`accprobe function` on callables and quantisers: what they compute, on every operand of a 16-bit format."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from commands import assert_refused, invoke, time_limit_can_end
from marks import only_on_a_gpu

import accprobe
from accprobe.cli.function import measure_at_once
from accprobe.function import quantisers
from accprobe.function.units import SCALAR_UNITS
from accprobe.report.report import Report

run = partial(invoke, "function", "--device", "cpu", columns=200)


OWN = """
import signal
import numpy as np
import accprobe
count = calls = chunks = 0
def whole(x): return x / np.abs(x).max()
def first(x): return x[:1]
def again(x):
    global count
    count += 1
    return x * np.float16(count)
def doubled(x):
    x *= 2
    return x
def later(x):
    global calls
    calls += 1
    return np.sqrt(x) if calls < 5 else np.cbrt(x)
def stopped(x):
    global chunks
    chunks += x.size == 1 << 20
    if chunks == 2: signal.raise_signal(signal.SIGINT)
    return np.sqrt(x)
def fails(x): raise ValueError("no such table")
def ex2(x): return accprobe.predict("functions-h200:ex2.approx.f32", x)
def exp(x): return ex2(x.astype(np.float32) * np.float32(1.442695)).astype(np.float16)
def silu(x):
    x = x.astype(np.float32)
    y = 1 + ex2(x * np.float32(-1.442695))
    return (x * accprobe.predict("functions-h200:rcp.approx.f32", y)).astype(np.float16)
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(OWN)
    return str(path)


@pytest.mark.parametrize(
    ("name", "dtype", "computes"),
    [
        ("numpy:tanh", "bf16", "tanh, rounded once (RNE)"),
        ("torch:silu", "bf16", "numpy's x / (1 + exp(-x)) in f32, rounded once (RNE)"),
        ("OWN:exp", "f16", "ex2.approx.ftz(x · 1.4426950), on the special function unit, rounded once (RNE)"),
        (
            "OWN:silu",
            "f16",
            "x · rcp.approx.ftz(1 + ex2.approx.ftz(-x · 1.4426950)), on the special function unit, rounded once (RNE)",
        ),
    ],
)
def test_a_callable_is_named_on_every_operand(name: str, dtype: str, computes: str, own: str) -> None:
    """Functions of numpy and torch, and what Triton makes of exp(x) and x / (1 + exp(-x)) on a GPU."""
    if name.startswith("OWN"):
        name = name.replace("OWN", own)
    else:
        pytest.importorskip(name.partition(":")[0])
    found = run(name, "--dtype", dtype, *["--arrays", "numpy"] * (own in name))
    assert found.exit_code == 0, found.output
    assert " ".join(found.stdout.split()).startswith(f"confirmed: {name} {dtype}: {computes}; largest error ")
    assert " ulp; all 65,536 operands compared, 0 differ" in " ".join(found.stdout.split())


def test_a_defect_in_one_unit_costs_no_other_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(unit: object, index: int) -> None:
        raise ValueError(f"no {unit}")

    monkeypatch.setattr("accprobe.function.units.GpuUnit", broken)
    rows = list(measure_at_once(list(SCALAR_UNITS[:2]), "sm_90a", 0))
    assert [(row.name, row.status) for row in rows] == [(unit.name, "unverified") for unit in SCALAR_UNITS[:2]]
    assert rows[0].reason.startswith("a defect of accprobe, please report it: ValueError: no ScalarUnit")


def test_results_that_change_after_the_first_calls_are_unstable(own: str) -> None:
    found = run(f"{own}:later", "--dtype", "f16", "--arrays", "numpy")
    assert found.exit_code == 1
    assert re.match(rf"unstable: {own}:later f16: [\d,]+ of 4,099 operands gave other results when repeated", found.stdout)


def test_an_interrupted_comparison_keeps_the_words_compared_so_far(own: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    with time_limit_can_end():
        found = run(f"{own}:stopped", "--arrays", "numpy", "-o", str(path))
    assert (found.exit_code, found.stderr) == (130, f"accprobe: interrupted: {path} has 1 row\n")
    (row,) = Report.load(path).functions
    assert (row.status, row.reason, row.verification.compared) == ("inferred", "interrupted", 1 << 20)


def test_an_operand_that_differs_is_shown() -> None:
    pytest.importorskip("torch")
    found = run("torch:relu", "--dtype", "f16")
    assert found.exit_code == 1
    assert "relu, rounded once (RNE), except for 1 of 65,536 results" in found.stdout
    assert "f(0x8000 (-0)) = 0x8000 (-0), expected 0x0000 (0)" in found.stdout


def test_two_callables_are_compared() -> None:
    same = run("numpy:exp", "--dtype", "f16", "--versus", "numpy:exp")
    other = run("numpy:exp", "--dtype", "f16", "--versus", "numpy:exp2")
    assert (same.exit_code, other.exit_code) == (0, 1)
    assert "the same bits for 65,536 operands" in same.stdout
    assert "numpy:exp and numpy:exp2 differ for" in other.stdout


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("whole", "is not elementwise: in"),
        ("first", "is not elementwise: it returns [1]"),
        ("again", "gives other results when called again"),
        ("doubled", "doubled changes its operand x in place, in "),
        ("fails", "raises ValueError: no such table"),
    ],
)
def test_a_bad_callable_is_one_sentence(function: str, sentence: str, own: str) -> None:
    found = run(f"{own}:{function}", "--dtype", "f16", "--arrays", "numpy")
    assert_refused(found, sentence)


def test_a_report_predicts_words_and_values(tmp_path: Path) -> None:
    file = tmp_path / "functions.json"
    assert run("numpy:sqrt", "--dtype", "f16", "-o", str(file)).exit_code == 0
    x = np.array([0.0, 2.0, -1.0, 65504.0, np.inf], np.float16)
    with np.errstate(invalid="ignore"):
        expected = np.sqrt(x)
    assert np.array_equal(accprobe.predict(str(file), x), expected, equal_nan=True)
    assert accprobe.predict(str(file), x.view(np.uint16)).dtype == np.uint16
    (row,) = json.loads(file.read_text())["claims"]
    assert (row["status"], row["errors"]["function"]) == ("confirmed", "sqrt")
    assert row["verification"] == {"compared": 65536, "mismatches": 0, "of": 65536}


def test_a_recorded_function_is_shown_predicted_and_compared() -> None:
    """The special function unit of an H200: 2^x of words, by a table of 64 quadratics."""
    words = np.array([0x00000000, 0x3F800000, 0xBF800000, 0x7FC00000, 0xFF800000], np.uint32)
    expected = np.array([0x3F800000, 0x40000000, 0x3F000000, 0x7FFFFFFF, 0], np.uint32)
    assert np.array_equal(accprobe.predict("functions-h200:ex2.approx.ftz.f32", words), expected)
    shown = invoke("show", "functions-h200", "ex2.approx.ftz.f32", columns=200)
    assert shown.stdout.startswith("confirmed: ex2.approx.ftz.f32: table of 64 quadratics")
    assert invoke("show", "functions-h200", "ex3").exit_code == 2
    assert invoke("diff", "functions-h200", "functions-h200").exit_code == 0


TRITON = Path(__file__).parents[1] / "programs" / "triton_functions.py"


@pytest.mark.parametrize(
    ("command", "computes"),
    [
        ("exp", "ex2.approx(x · 1.4426950), on the special function unit; largest error"),
        ("tanh", "tanh.approx, on the special function unit; largest error"),
        ("quantise --scale row --dtype bf16", "div.full(x, scale) in f32, rounded to e4m3 (RNE), saturated"),
        ("torch_quantise --scale row --dtype bf16", "x / scale in f32, rounded to e4m3 (RNE), saturated"),
    ],
)
@pytest.mark.gpu
@only_on_a_gpu[1]
def test_a_kernel_of_triton_is_named(command: str, computes: str) -> None:
    name, *options = command.split()
    found = invoke("function", f"{TRITON}:{name}", *options, "--device", "cuda:0", columns=300)
    assert found.exit_code == 0, found.output
    assert computes in found.stdout


QUANTISERS = """
import ml_dtypes
import numpy as np
import accprobe
def narrow(x): return np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn)
def whole(x): return x.astype(np.float32)
def divide(x, scale): return narrow(whole(x) / scale)
def reciprocal(x, scale): return narrow(whole(x) * (1 / scale))
def multiply(x, scale): return (whole(x) * scale).astype(ml_dtypes.float8_e5m2)
def blocks(x, scale): return narrow(whole(x) / np.repeat(scale, 128, -1))
def full(x, scale):
    return narrow(whole(x) * accprobe.predict("functions-h200:rcp.approx.f32", np.broadcast_to(scale, x.shape)))
def half(x, scale): return narrow(np.float16(whole(x) / scale))
def unclipped(x, scale): return (whole(x) / scale).astype(ml_dtypes.float8_e4m3fn)
def first(x, scale): return narrow(x[:1])
"""


@pytest.fixture
def own_quantisers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "own.py"
    path.write_text(QUANTISERS)
    monkeypatch.setattr(quantisers, "scale_values", lambda: np.array([1, 1 / 448, 41, 0.1], np.float32))
    return str(path)


run_quantiser = partial(invoke, *["function", "--dtype", "f16", "--device", "cpu", "--arrays", "numpy"], columns=300)


@pytest.mark.parametrize(
    ("name", "layout", "computes"),
    [
        ("divide", "row", "each row: x / scale in f32, rounded to e4m3 (RNE), saturated, subnormal results kept;"),
        ("reciprocal", "tensor", "each tensor: x · (1 / scale) in f32, rounded to e4m3 (RNE), saturated"),
        ("multiply", "row", "x · scale in f32, rounded to e5m2 (RNE), too large values become infinity"),
        ("blocks", "block", "each block: x / scale in f32, rounded to e4m3"),
        ("full", "row", "div.full(x, scale) in f32, rounded to e4m3 (RNE), saturated"),
        ("half", "row", "x / scale in f32, rounded to f16, rounded to e4m3"),
        ("unclipped", "row", "x / scale in f32, rounded to e4m3 (RNE), too large values become NaN, subnormal results kept;"),
    ],
)
def test_a_quantiser_is_explained_on_every_operand(name: str, layout: str, computes: str, own_quantisers: str) -> None:
    found = run_quantiser(f"{own_quantisers}:{name}", "--scale", layout)
    assert (found.exit_code, found.stderr) == (0, "")
    assert computes in found.stdout
    assert "262,144 combinations of operands compared, 0 differ" in found.stdout


def test_a_division_and_a_multiplication_by_the_reciprocal_differ(own_quantisers: str) -> None:
    found = run_quantiser(f"{own_quantisers}:divide", "--scale", "row", "--versus", f"{own_quantisers}:reciprocal")
    assert found.exit_code == 1
    first = found.stdout.splitlines()[0]
    assert "reciprocal differ for" in first
    assert "by at most 1 ulp; first: x = 0x" in first
    assert run_quantiser(f"{own_quantisers}:divide", "--scale", "row", "--versus", f"{own_quantisers}:divide").exit_code == 0


def test_ctrl_c_keeps_the_rows_of_quantisers(own_quantisers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantisers, "compare_quantisers", Mock(side_effect=KeyboardInterrupt))
    each, path = f"{own_quantisers}:divide", tmp_path / "rows.json"
    assert run_quantiser(each, "--scale", "row", "--versus", each, "-o", str(path)).exit_code == 130
    assert [row.status for row in Report.load(path).functions] == ["confirmed"]


def test_a_result_of_another_shape_is_one_sentence(own_quantisers: str) -> None:
    found = run_quantiser(f"{own_quantisers}:first", "--scale", "row")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "own.py:first returns [1, 65536] of float8_e4m3fn; expected" in found.stderr

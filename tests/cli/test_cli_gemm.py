"""`accprobe gemm`: whole commands on functions whose arithmetic is written out here, what they write, and what they refuse."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from commands import invoke, time_limit_can_end

from accprobe.build import driver
from accprobe.callables.opening import ProductRequest
from accprobe.callables.operands import first_operands
from accprobe.callables.spec import Spec
from accprobe.cli.product_run import ProductRun, ProductSetting
from accprobe.isa.formats import Bits
from accprobe.operands.distributions import DISTRIBUTIONS
from accprobe.report.report import Report

FUNCTIONS = '''
"""Products in numpy: every addition is one of float32, in the order that is written."""
import signal, numpy as np

def chain(a, b, *, every=None):
    total, part = np.zeros((2, a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        part = part + a[:, k, None] * b[None, k]
        if every and (k + 1) % every == 0:
            total, part = total + part, np.zeros_like(part)
    return total + part if every else part

def dropped(a, b): return chain(a[:, :-5], b[:-5])

def by_m(a, b): return chain(a, b, every=16 if len(a) > 8 else None)

def raises(a, b):
    raise ValueError("no such\\n kernel")

def tall(a, b): return (a @ b).T

def wide(a, b): return (a @ b).astype(np.complex64)

def double(a, b): return a.astype(np.float64) @ b

def nan(a, b): return np.full((a.shape[0], b.shape[1]), np.nan, np.float32)

def noisy(a, b): return chain(a, b) + np.random.default_rng().random((a.shape[0], b.shape[1]), np.float32)

def three(a, b, c): return a

def stopped(a, b, *, by=14, after=200):
    stopped.calls += 1
    if stopped.calls == after: signal.raise_signal(by)
    return chain(a, b)
stopped.calls = 0

def broken_later(a, b, *, broken=False):
    if broken: raise RuntimeError("out of luck")
    return chain(a, b)

number = 3
'''

SMALL = ("--shape", "16x16x64", "--elements", "1024")
TINY = ("--shape", "8x8x32", "--elements", "256")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(FUNCTIONS)
    return str(path)


gemm = partial(invoke, "gemm", columns=140)


def shown(text: str, file: str) -> list[str]:
    """Lines without what differs from machine to machine."""
    text = re.sub(r"loaded: numpy .*?threads \d+", "loaded: numpy N", text.replace(file, "own.py"), flags=re.DOTALL)
    text = re.sub(r"the CPU, .*", "the CPU, N", text)
    return [line.rstrip() for line in text.splitlines()]


def test_output_of_one_callable(file: str) -> None:
    result = gemm(f"{file}:chain", *SMALL)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = shown(result.stdout, file)
    assert lines[0] == "own.py:chain 16x16x64 f32 -> f32  confirmed: one chain, 23 fraction bits, RNE to f32"
    assert lines[1:3] == ["device      the CPU, N", "kernels     not recorded; loaded: numpy N"]
    assert lines[-3:] == [
        "repeatable  yes, 6 pairs of operands, 3 calls each",
        "verified    1,024 fresh outputs, 0 mismatches; 19 of 19 alternative plans contradicted",
        f"tested on   160 normal, {', '.join(f'96 {kind}' for kind in DISTRIBUTIONS[1:])}",
    ]


def test_two_values_of_an_option_say_what_it_changed(file: str) -> None:
    result = gemm(f"{file}:chain", *TINY, "--option", "every=16,None")
    assert (result.exit_code, result.stderr) == (1, "")
    assert (
        result.stdout.splitlines()[-1]
        == "every 16 -> None changed order: 2 slices of 16, added in f32: chain of [acc 1] -> chain of [acc 1]"
    )
    again = gemm(f"{file}:chain", *TINY, "--option", "every=64,None")
    assert (again.exit_code, again.stdout.splitlines()[-1]) == (0, "every 64 -> None: same plan, no property differs")


def test_another_callable_is_asked_the_same_with_the_options_that_it_takes(file: str) -> None:
    result = gemm(f"{file}:chain", *TINY, "--option", "every=64", "--versus", f"{file}:dropped", "--format", "json")
    assert result.exit_code == 1
    rows = json.loads(result.stdout)["claims"]
    assert [(row["name"].rpartition(":")[2], row.get("options")) for row in rows] == [
        ("chain", {"every": 64}),
        ("dropped", None),
    ]


def test_a_second_callable_that_raises_is_told_before_the_first_is_measured(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accprobe.gemm.characterise.characterise", lambda *_: pytest.fail("measured"))
    result = gemm(f"{file}:chain", *SMALL, "--versus", f"{file}:raises")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{file}:raises raises ValueError: no such kernel" in result.stderr


def test_sizes_with_other_bits_for_the_same_row_are_classes_with_a_plan_each(file: str) -> None:
    result = gemm(f"{file}:by_m", *TINY, "--sweep", "m=4,8,9,16", "--format", "json")
    assert result.exit_code == 1
    rows = json.loads(result.stdout)["claims"]
    assert [(row["m"], row["regions"][0]["findings"]["promote_every"]["value"]) for row in rows] == [(8, None), (16, 16)]
    assert [row["remarks"] for row in rows] == [[f"m = {ms}: the same bits for the same row"] for ms in ("4, 8", "9, 16")]
    alike = gemm(f"{file}:chain", *TINY, "--sweep", "m=3,16")
    assert (alike.exit_code, alike.stdout.splitlines()[0]) == (0, "m = 3, 16: the same bits for the same row")


@pytest.mark.parametrize(
    ("by", "status", "reason"), [(signal.SIGALRM, 1, "stopped after 100 s (--time-limit)"), (signal.SIGINT, 130, "interrupted")]
)
def test_what_is_known_when_a_row_is_stopped_is_kept(file: str, tmp_path: Path, by: int, status: int, reason: str) -> None:
    kept = tmp_path / "kept.json"
    with time_limit_can_end():
        result = gemm(f"{file}:stopped", *SMALL, "--option", f"by={int(by)}", "--time-limit", "100", "-o", str(kept))
    assert (result.exit_code, result.stderr) == (
        status,
        f"accprobe: {reason}: {kept} has 1 row\n",
    )
    assert ("stopped after" in result.stdout) == (status == 1)
    (row,) = Report.load(kept).products
    assert (row.status, row.reason) == ("inferred", reason)
    found = {name: (finding.value, finding.bound) for name, finding in row.findings.items()}
    assert found["each_product_once"] == found["repeatable"] == ("yes", "exact")
    assert not row.verification.compared


def test_the_cpu_in_place_of_a_gpu_is_said_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pytest.importorskip("torch").cuda, "is_available", lambda: False)
    monkeypatch.setattr(driver, "gpus", lambda: (0, "there is no NVIDIA driver"))
    setting = ProductSetting("torch:_scaled_mm", ProductRequest((16, 16, 64)), {"use_fast_accum": True}, None)
    run = ProductRun(256, 0, None)
    opened = [run.open(setting) for _ in range(2)]
    (said,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"accprobe: no GPU found \(there is no NVIDIA driver\): torch:_scaled_mm runs on the CPU, .*;"
        r" use_fast_accum has no effect on the CPU",
        said,
    )
    assert opened[0].ineffective == ("use_fast_accum",)
    ProductRun(256, 0, "cpu").open(replace(setting, options={}))
    assert capsys.readouterr().err == ""


def test_operands_of_the_users_own_are_verified_too(file: str, tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32))
    result = gemm(
        f"{file}:chain", "--shape", "8x8x16", "--elements", "64", "--data", str(tmp_path / "own.npy"), "--format", "json"
    )
    assert json.loads(result.stdout)["claims"][0]["verification"]["kinds"]["own data"] == 8


def test_an_error_of_a_later_row_loses_no_other(file: str) -> None:
    result = gemm(f"{file}:broken_later", *TINY, "--option", "broken=False,True")
    assert result.exit_code == 2
    assert shown(result.stdout, file)[0].startswith("own.py:broken_later 8x8x32 f32 -> f32, broken=False  confirmed")
    assert "raises RuntimeError: out of luck" in result.stderr


def test_full_memory_at_a_later_row_loses_no_other(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(spec: Spec) -> tuple[Bits, Bits]:
        if spec.k > 32:
            raise MemoryError("Unable to allocate 37.3 GiB")
        return first_operands(spec)

    monkeypatch.setattr("accprobe.callables.adapter.first_operands", limited)
    result = gemm(f"{file}:chain", *TINY, "--shape", "8x8x64")
    assert result.exit_code == 2
    assert shown(result.stdout, file)[0].startswith("own.py:chain 8x8x32 f32 -> f32  confirmed")
    assert "not enough memory: give a smaller --shape" in result.stderr


FORM = "accprobe calls it as f(a, b) with a [M, K] and b [K, N]"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["own:raises"], f"own:raises raises ValueError: no such kernel (own, line 18); {FORM}"),
        (
            ["own:tall", "--shape", "16x8x64"],
            "own:tall returns an array of shape (8, 16) (transposed?); a product of 16x8x64 has (16, 8)",
        ),
        (["own:chain", "--dtype", "fp8"], "unknown format 'fp8'; did you mean e4m3 or e5m2?"),
        (["own:wide"], "own:wide returns an array of complex64; accprobe has no such format"),
        (
            ["own:double", "--out", "f32"],
            "own:double returns an array of float64, expected f32; float64 is f64: give --out f64",
        ),
        (
            ["own:nan"],
            "own:nan returns NaN for random numbers in 256 of 256 elements (first at row 0, column 0): this is not a product of"
            " two matrices",
        ),
        (
            ["own:three"],
            f"own:three raises TypeError: three() missing 1 required positional argument: 'c'; {FORM}",
        ),
        (["own:number"], "own:number is not a function (got int)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_asked_is_one_sentence(file: str, arguments: list[str], sentence: str) -> None:
    result = gemm(*(word.replace("own:", f"{file}:") for word in arguments), *SMALL)
    said = result.stderr.replace(str(Path(file).resolve()), "own").replace(file, "own")
    assert (result.exit_code, result.stdout, said) == (2, "", f"accprobe: {sentence}\n")


def test_random_results_are_told(file: str) -> None:
    noisy = gemm(f"{file}:noisy", *SMALL)
    assert noisy.exit_code == 2
    assert re.search(r"with zeros the result is \S+ .*\(noise, or an activation\?\)", noisy.stderr)


def test_names_are_listed_with_what_they_lack() -> None:
    lines = dict(line.split("\t") for line in gemm("--list").stdout.splitlines())
    assert lines["numpy:matmul"] == "numpy.matmul(a, b); default f32 -> f32"
    assert "default bf16 -> bf16; nvmath is not installed: pip install 'nvmath" in lines["cublaslt:matmul"]


def test_first_calls_are_those_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two callables are opened before the first is measured, and opened again then."""
    (tmp_path / "warming_product.py").write_text(
        "import numpy as np\n"
        "calls = []\n"
        "def product(a, b):\n"
        "    calls.append(1)\n"
        "    d = np.zeros((len(a), b.shape[1]), np.float32)\n"
        "    for k in range(a.shape[1])[:: -1 if len(calls) == 1 else 1]:\n"
        "        d = d + a[:, k, None] * b[k]\n"
        "    return d\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = gemm("warming_product:product", *SMALL, "--versus", "numpy:matmul", "--format", "json", "--arrays", "numpy")
    row = json.loads(result.stdout)["claims"][0]
    assert (result.exit_code, row["status"]) == (1, "unstable")
    assert row["reason"].startswith("the first call gives other bits than later ones: ")

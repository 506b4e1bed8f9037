"""`accprobe diff`, and products in `show` and `check`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import golden
import pytest
from commands import invoke
from fakes import report_data
from product_rows import OF_A, product_report

from accprobe.report.report import Report

run = partial(invoke, columns=100)


@pytest.fixture
def path(tmp_path: Path) -> str:
    product_report(*report_data()["claims"], *OF_A).save(tmp_path / "r.json")
    return str(tmp_path / "r.json")


@pytest.mark.parametrize("name", golden.SCREENS)
def test_screen_is_as_recorded(name: str, tmp_path: Path) -> None:
    shown = golden.printed(name, tmp_path)
    assert shown == golden.file(name).read_text(encoding="utf-8"), "look at it, then: python tests/support/golden.py"
    assert all(len(line) <= golden.WIDTH for line in shown.splitlines())


def test_products_stand_after_instructions_and_instructions_alone_without_them(path: str) -> None:
    shown = run("show", path).stdout
    assert 0 < shown.index("wgmma.m64n8k32") < shown.index("4 of 5 products confirmed") < shown.index("DROPPED PRODUCTS")
    one = run("show", path, "wgmma*")
    assert one.exit_code == 0
    assert "torch:" not in one.stdout


def test_products_of_a_callable_are_told_where_none_has_the_shape() -> None:
    result = run("show", "products-h200", "torch:_int_mm 513x512x512 s8")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "accprobe: products-h200 has no product 'torch:_int_mm 513x512x512 s8'; `accprobe show products-h200 'torch:_int_mm'`"
        " lists all of that name; did you mean torch:_int_mm 512x512x512 s8 -> s32 or torch:_int_mm 256x256x4096 s8 -> s32?\n"
    )
    assert run("show", "products-h200", "torch:_int_mm 512x512x512 s8 -> s32").exit_code == 0


WGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"


diff = partial(invoke, "diff", columns=160)


def test_json_has_every_pair_with_both_values() -> None:
    data = json.loads(diff("h200", "sim:b200", "--format", "json").stdout)
    assert data["headline"].startswith("Hopper → Blackwell")
    assert sum(data["counts"].values()) == len(data["pairs"])
    assert all(pair["marks"] == ["B simulated"] for pair in data["pairs"])
    pair = next(pair for pair in data["pairs"] if pair["a"] == WGMMA)
    assert (pair["by"], pair["b"], pair["verdict"]) == ("role", "tcgen05.m128n16k32.kind::f8f6f4.f32.e4m3.e4m3", "changed")
    (bits,) = (field for field in pair["fields"] if field["field"] == "effective_bits")
    assert (bits["a"]["value"], bits["b"]["value"]) == (13, 23)
    assert "promoting" in bits["means"]
    assert {pair["verdict"] for pair in data["pairs"]} == {"changed", "only in A", "only in B", "undecided", "same"}


def test_standard_input_is_one_of_the_two() -> None:
    text = Report.load("h200").dumps()
    assert invoke("diff", "-", "h200", stdin=text).exit_code == 0
    twice = invoke("diff", "-", "-", stdin=text)
    assert (twice.exit_code, twice.stderr) == (2, "accprobe: A and B are both standard input: give one of them as a file\n")

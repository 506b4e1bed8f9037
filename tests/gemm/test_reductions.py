"""`accprobe reduce`: planted sums, sums of numpy and torch, and predictions from the report."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from commands import invoke
from marks import some
from planted_reductions import NAMED, Planted
from reduction_judge import judged

import accprobe
from accprobe.evaluate import additions
from accprobe.evaluate.product import product
from accprobe.gemm.tree.decomposition import levels, renumbered
from accprobe.isa.formats import FORMATS
from accprobe.model.product import Chain, Merged, ProductModel, addition, multiply_add, nested

F32 = FORMATS["f32"]

REFUSED = {"Kahan", "doubled element", "f16 partial sums", "another row"}
"""Sums that no plan describes, f32 elements that f16 does not hold, and one row of another order: each has a reason."""

ALL_REDUCE = ("torch.distributed:all_reduce",)
RING = [f"chain of [acc 1]{how}" for how in (", in the order k = 0, 2, 1", ", from the last k to the first", "")]


run = partial(invoke, "reduce", columns=200)


@pytest.mark.parametrize("plan", some(NAMED, 2), ids=lambda plan: plan.name)
def test_a_planted_reduction_is_found_or_refused(plan: Planted) -> None:
    found = judged(plan, 0, elements=1 << 10)
    assert (found.verdict, bool(found.reason)) == (("not confirmed", True) if plan.name in REFUSED else ("right", False))
    assert not found.false_exact
    assert found.fresh >= 5 * plan.rows or plan.name in REFUSED


def test_numpy_adds_eight_lanes_in_pairs_and_its_report_predicts_fresh_sums(tmp_path: Path) -> None:
    """Source of the order: numpy/_core/src/umath/loops_utils.h.src, pairwise sum of at most 128 elements."""
    file = tmp_path / "sums.json"
    found = run("numpy:sum", "--shape", "8x96", "--elements", "4096", "-o", str(file))
    assert found.exit_code == 0, found.output
    assert "confirmed: 8 lanes (lane = k mod 8), added in f32 as a tree" in found.stdout
    x = np.random.default_rng(7).standard_normal((8, 96)).astype(np.float32)
    assert np.array_equal(accprobe.predict(str(file), x), x.sum(axis=1))
    assert np.array_equal(accprobe.predict(f"{file}:numpy:sum", x, dim=1), x.sum(axis=1))
    with pytest.raises(accprobe.AccprobeError, match="has no reduction for x"):
        accprobe.predict(str(file), x[:, :32])


def test_a_long_f64_sum_is_confirmed() -> None:
    """Units 2^-30 beside 2^30 survive in f64: the sum fitted no tree."""
    assert "confirmed: 64 slices" in run("numpy:sum", "--dtype", "f64", "--shape", "2x1024", "--elements", "256").stdout


def test_the_order_of_threads_warps_and_blocks_is_named_level_by_level() -> None:
    """The order of `torch.sum` on a GPU for the first dimension: vectors, 8 threads, 4 blocks, 8 threads."""
    blocks = [renumbered(nested("butterfly", 8), [8 * i + j for j in range(8)]) for i in range(32)]
    groups = [renumbered(nested("forward", 4), [blocks[i + 8 * j] for j in range(4)]) for i in range(8)]
    order = renumbered(nested("butterfly", 8), groups)
    assert levels(order, 256) == ((8, 1, "butterfly"), (4, 8, "forward"), (8, 1, "butterfly"))
    assert levels(((0, 1), (2, (3, 4))), 5) == ()


@pytest.mark.parametrize("factor", [0, -3])
@pytest.mark.parametrize("way", ["numpy", "compiled", "torch"])
def test_a_list_of_additions_gives_the_bits_of_the_evaluator_of_products(
    factor: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for zeros of both signs, subnormals, infinities and NaNs; a product that is not exact is left to the evaluator."""
    chains = tuple(Chain(lane, 24, (0,), 4) for lane in range(4))
    model = ProductModel(F32, F32, 24, multiply_add(), Merged(chains, nested("butterfly", 4), addition()), F32)
    rng = np.random.default_rng(0)
    b = rng.choice([0, 1 << 31, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800001, 0xBF7FFFFF], (300, 24)).astype(np.uint32)
    b[:100] = rng.standard_normal((100, 24), np.float32).view(np.uint32)
    b[0] = 1 << 31
    a = np.full((1, 24), F32.encode(False, 1, factor), np.uint32)
    monkeypatch.setattr(additions.tiles, "pays", lambda seconds: way == "compiled")
    if way == "torch":
        pytest.importorskip("torch")
        sum_windows = additions.AdditionList.sum_windows
        monkeypatch.setattr(additions.AdditionList, "sum_windows", lambda *given: sum_windows(*given, "cpu"))
    fast = product(model, a, b)
    monkeypatch.setattr("accprobe.evaluate.product.addition_list", lambda model: None)
    monkeypatch.setattr(additions.tiles, "pays", lambda seconds: False)
    assert np.array_equal(fast, product(model, a, b))


def test_a_mean_of_the_first_dimension_in_bf16_is_found() -> None:
    pytest.importorskip("torch")
    found = run("torch:mean", "--shape", "4x64", "--dim", "first", "--dtype", "bf16", "--elements", "1024", "--device", "cpu")
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("torch:mean 4x64 bf16 -> bf16, dim=first  confirmed: ")


@pytest.mark.parametrize(("name", "bits"), [("cumsum", 52), ("index_add", 23)])
def test_torch_adds_in_one_place_in_turn(name: str, bits: int) -> None:
    """Source of the format: ATen/native/cpu/ReduceOpsKernel.cpp, whose cumsum of floats adds in double."""
    pytest.importorskip("torch")
    found = run(f"torch:{name}", "--shape", "4x32", "--elements", "512", "--device", "cpu")
    assert found.exit_code == 0, found.output
    assert f"confirmed: one chain, {bits} fraction bits, RNE to f32" in found.stdout


def test_gloo_adds_each_chunk_in_the_order_of_a_ring_with_bf16_partial_sums() -> None:
    """Source of the ring: gloo/allreduce.cc. Chunk i of 3 starts at another rank; every rank returns the same bits."""
    pytest.importorskip("torch.distributed")
    found = run(*ALL_REDUCE, "--ranks", "3", "--shape", "192", "--dtype", "bf16", "--elements", "256", "--format", "json")
    assert found.exit_code == 0, found.output
    (row,) = json.loads(found.stdout)["claims"]
    assert [region["where"] for region in row["regions"]] == [f"rows 0-2, columns {i}-{i + 63}" for i in (64, 0, 128)]
    assert [region["findings"]["order"]["value"] for region in row["regions"]] == RING
    assert {region["findings"]["effective_bits"]["value"] for region in row["regions"]} == {7}


def test_an_average_of_two_ranks_divides_the_sum(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed")
    file = tmp_path / "ranks.json"
    found = run(*ALL_REDUCE, "--ranks", "2", "--op", "avg", "--shape", "8", "--elements", "256", "-o", str(file))
    assert found.exit_code == 0, found.output
    assert "avg divides the sum, which can overflow first" in found.stdout
    x = np.random.default_rng(7).standard_normal((2, 8)).astype(np.float32)
    assert np.array_equal(accprobe.predict(str(file), x, dim=0), (x[0] + x[1]) / 2)


def test_the_first_row_is_compared_at_several_numbers_of_rows(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("import numpy as np\ndef f(x): return x.sum(-1) if len(x) < 4 else x[:, ::-1].cumsum(-1)[:, -1]\n")
    found = run(f"{file}:f", "--arrays", "numpy", "--shape", "4x32", "--sweep", "rows=1,2,4", "--elements", "512")
    assert found.exit_code == 1
    assert "rows = 1, 2: the same bits for the same row" in found.stdout
    assert "rows = 4: other bits in some row" in found.stdout

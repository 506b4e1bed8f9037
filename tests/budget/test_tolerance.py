"""What a test may ask: its tolerance holds and is near, and the kill table is what the mistakes themselves do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accprobe.budget.accumulation import of_named, of_product
from accprobe.budget.mutants import MUTATIONS
from accprobe.budget.tolerance import TESTS, Advised, Inquiry, advised, calc_diff
from accprobe.errors import AccprobeError
from accprobe.isa.formats import FORMATS

ASKED = Inquiry(of_named("QGMMA"), 1024, 32, 24, 128, 1, FORMATS["bf16"], "normal", None, 0)


def killed_by(found: Advised, test: str) -> set[str]:
    return {row.mistake for row in found.kill_table if row.by[test]}


def test_positive_inputs_show_that_nothing_is_promoted() -> None:
    normal, positive = advised(ASKED), advised(replace(ASKED, data="positive"))
    assert "no promotion" not in killed_by(normal, "bound")
    assert "no promotion" in killed_by(positive, "bound")
    told = {row.mistake: row.noticed_with for row in normal.kill_table}
    assert "positive" in told["no promotion"]
    assert not any(row.noticed_with for row in normal.kill_table if row.by["bound"])


def test_whole_numbers_show_what_the_last_rounding_does() -> None:
    found = advised(replace(ASKED, data="integers"))
    assert {"the result cut, not rounded", "partial sums in bf16", "one k counted twice"} <= killed_by(found, "bound")
    assert "the result cut, not rounded" not in killed_by(found, "calc_diff")
    assert found.observed > 0.9


@pytest.mark.parametrize("data", ["normal", "positive", "integers", "cancelling"])
def test_the_arithmetic_itself_stays_within_its_bound(data: str) -> None:
    found = advised(replace(ASKED, data=data))
    assert "bound" not in found.false_alarms
    assert 0 < found.observed <= 1
    assert found.over_any_sum is not None
    assert found.over_sum <= found.over_any_sum


def test_an_absolute_tolerance_that_correct_results_do_not_keep_is_a_false_alarm() -> None:
    assert "atol" in advised(replace(ASKED, k=4096)).false_alarms
    assert "atol" not in advised(replace(ASKED, out=FORMATS["f32"], data="integers")).false_alarms


def test_scales_of_blocks() -> None:
    asked = replace(ASKED, scale="1x128")
    assert "block scales swapped" in killed_by(advised(asked), "bound")
    assert "block scales swapped" not in {row.mistake for row in advised(ASKED).kill_table}
    with pytest.raises(AccprobeError, match="promote every 128"):
        advised(replace(asked, promote_every=None))
    assert advised(replace(asked, scale="128x128")).observed <= 1


def test_a_measured_product_is_asked_about_its_own_plan() -> None:
    product = of_product("products-h200:torch:_scaled_mm 512x512x512 e4m3 -> bf16, scale=tensor, use_fast_accum=False")
    asked = replace(ASKED, accumulation=product, k=512, promote_every=product.promote_every, split_k=product.split_k)
    assert asked.model.tree == (product.measured.tree if product.measured else None)
    assert advised(asked).observed <= 1


def test_a_product_in_slices_that_is_never_promoted_has_no_promotion_to_lose() -> None:
    product = of_product("products-h200:torch:mm 256x256x4096 bf16 -> bf16")
    asked = Inquiry(product, 4096, 4, 4, product.promote_every, product.split_k, FORMATS["bf16"], "integers", None, 0)
    assert (asked.promote_every, asked.split_k) == (None, 3)
    assert "no promotion" not in {row.mistake for row in advised(asked).kill_table}


def test_no_bound_no_advice() -> None:
    narrow = of_named("h200:wgmma.m64n8k32.f16.e4m3.e4m3")
    with pytest.raises(AccprobeError, match="sums can be too large for bf16"):
        advised(replace(ASKED, accumulation=narrow, k=1 << 16, promote_every=None, data="positive", m=2, n=2))


def test_each_mistake_is_one_where_it_is_told() -> None:
    """On data of one sign or another, each test of a product could notice it."""
    told = {row.mistake: row for row in advised(replace(ASKED, scale="1x128", promote_every=128)).kill_table}
    told |= {row.mistake: row for row in advised(ASKED).kill_table}
    assert set(told) == set(MUTATIONS)
    assert all(row.by["bound"] or row.noticed_with for row in told.values())


def test_calc_diff() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert calc_diff(x, x) == 0
    assert calc_diff(0 * x, x) == 1
    assert calc_diff(-x, x) == 2
    assert calc_diff(0 * x, 0 * x) == 0
    assert set(TESTS) == {"calc_diff", "atol", "bound"}

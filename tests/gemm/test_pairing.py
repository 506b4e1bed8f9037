"""Products of a[i, k] with another element than b[k, j] are found and named, whatever formats and layouts can show of them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from marks import some
from planted_boxes import FunctionBox, box_of
from planted_disturbances import Mispaired
from planted_plans import FMAS, HOPPER, NAMED
from planted_sums import Array

from accprobe.callables.spec import Spec
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.characterise import characterise
from accprobe.gemm.checks import pairing
from accprobe.gemm.checks.contract import Counted, count_products
from accprobe.gemm.checks.regions import Region
from accprobe.gemm.findings import row
from accprobe.isa.formats import FORMATS
from accprobe.render.subjects.products import alarms
from accprobe.testing import assert_every_k_once

M, N, K = 12, 16, 64
SMALL = replace(HOPPER, m=M, n=N, k=K)

MISTAKES = [
    Mispaired("rolled"),
    Mispaired("rolled", to=16),
    Mispaired("exchanged", 5, 2),
    Mispaired("exchanged", 16, 48, 16),
    Mispaired("columns", 8, 0, 8),
    Mispaired("columns", 3, 9),
    Mispaired("rows", 4, 8, 4),
    Mispaired("rows", 0, 5),
]

OTHERS = {
    "bf16 into f32": SMALL,
    "e4m3 into bf16, promoted": replace(NAMED["promoted every 64"], m=M, n=N, k=128),
    "e5m2": replace(SMALL, a="e5m2", b="e5m2", alignment_bits=13, result_bits=13),
    "s8": replace(NAMED["int8"], m=M, n=N, k=K),
    "4 slices, partials bf16": replace(SMALL, slices=(16,) * 4, partial_format="bf16", merge="serial"),
}


def found_in(box: FunctionBox) -> list[Counted]:
    """Return the elements that add other products."""
    spec = box.spec
    whole = Region(np.arange(spec.m), np.arange(spec.n), spec.m * spec.n)
    return [each for each in count_products(RecordedCallable(box), [whole]) if each.mispaired]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda x: x.named(K))
def test_a_mistake_is_named(mistake: Mispaired) -> None:
    (found,) = found_in(box_of(replace(SMALL, mispaired=mistake)))
    assert mistake.named(K) in found.mispaired
    wrong = np.arange(mistake.at, mistake.at + mistake.count)
    rows, columns = (wrong if mistake.mistake == name else np.arange(n) for name, n in (("rows", M), ("columns", N)))
    assert (found.region.rows.tolist(), found.region.columns.tolist()) == (rows.tolist(), columns.tolist())


@pytest.mark.parametrize("name", some(list(OTHERS), 3))
def test_of_every_format(name: str) -> None:
    plan = OTHERS[name]
    assert found_in(box_of(plan)) == []
    for mistake in (Mispaired("exchanged", 5, 2), Mispaired("columns", 8, 0, 8)):
        (found,) = found_in(box_of(replace(plan, mispaired=mistake)))
        assert mistake.named(plan.k) in found.mispaired


def test_one_row_of_a_long_product_is_named() -> None:
    """Its own 1s do not arrive, so that the counts of its region are wrong."""
    plan = replace(OTHERS["e5m2"], m=19, k=320, mispaired=Mispaired("rows", 6, 10))
    assert [each.mispaired for each in found_in(box_of(plan))] == ["row 6 reads A of row 10"]


def test_where_a_cannot_be_chosen_columns_are() -> None:
    spec = Spec(4, N, K, *[FORMATS["f16"]] * 3, a_exponent=-6)

    def attended(a: Array, b: Array) -> Array:
        assert (a == 2.0**-6).all()
        d = a.astype(np.float32) @ b.astype(np.float32)
        d[:, 4:8] = d[:, 12:16]
        return d.astype(np.float16)

    (found,) = found_in(FunctionBox(spec, attended))
    assert (found.mispaired, str(found.region)) == ("columns 4-7 read B of columns 12-15", "rows 0-3, columns 4-7")


def test_a_mispaired_product_is_not_confirmed() -> None:
    named, plan = "a[0] is multiplied by b[63], a[1-63] by b[0-62]", replace(FMAS, m=M, n=N, k=K, mispaired=Mispaired("rolled"))
    found = row(characterise(box_of(plan), elements=1 << 10), "own")
    assert found.status == "inferred"
    assert found.reason.endswith(named)
    assert f"WRONG PRODUCTS: {named}" in [alarm.text for alarm in alarms(found)]
    wrong = [region for region in found.regions if region.findings["each_product_once"].value == "no"]
    assert [region.findings["each_product_once"].note for region in wrong] == [named]
    with pytest.raises(AssertionError, match=re.escape(f"each_product_once: no, {named}")):
        assert_every_k_once(plan, shape=(M, N, K))


def test_places_in_reports_keep_their_words() -> None:
    """Comparisons match the regions of a report with those of older ones by these words."""
    region = Region(np.arange(1), np.arange(64), 64)
    assert (str(region), region.where) == ("row 0, columns 0-63", "rows 0, columns 0-63")


def test_a_tile_of_both_is_where_it_is_found() -> None:
    def function(a: Array, b: Array) -> Array:
        other = b.copy()
        other[16:32, 8:] = b[16:32, :8]
        return np.asarray(a @ other)

    (found,) = found_in(FunctionBox(Spec(M, N, K, *[FORMATS["f32"]] * 3), function))
    assert found.mispaired == "other products than a[i, k]·b[k, j] are added: at k = 16-31, columns 8-15"
    assert str(found.region) == "rows 0-11, columns 8-15"


NOT_MISTAKES = {
    "no negative results": lambda d: np.maximum(d, 0),
    "a bit that is always set": lambda d: np.where(np.arange(N) == 3, (d.view(np.uint32) | 1).view(np.float32), d),
    "results rounded to bf16": lambda d: d.astype(FORMATS["bf16"].ml_dtype).astype(np.float32),
}


@pytest.mark.parametrize("name", NOT_MISTAKES)
def test_nothing_is_said_of_wrong_sums(name: str) -> None:
    def function(a: Array, b: Array) -> Array:
        return np.asarray(NOT_MISTAKES[name](np.asarray(a @ b)))

    subject, once = RecordedCallable(FunctionBox(Spec(M, N, K, *[FORMATS["f32"]] * 3), function)), np.ones(K, np.int64)
    there, draws = pairing.differing(subject, [(Region(np.arange(M), np.arange(N), M * N), once)])
    assert list(pairing.mispaired(subject, there, draws, once)) == []

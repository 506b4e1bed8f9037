"""Every plan with every kind of data, and what it means."""

from __future__ import annotations

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from accprobe.budget.accumulation import of_instruction, of_product
from accprobe.budget.advice import MARGIN, Advice, advice, own_rounding, percent, ratio, sentences, weighed
from accprobe.budget.allowance import allowance
from accprobe.budget.data import OwnData, drawn_values
from accprobe.budget.error_report import SEEDS, AccountEntry, Question, entries, is_simulated, plans_of
from accprobe.budget.quantise import quantised
from accprobe.budget.speed import measured_speeds
from accprobe.errors import AccprobeError
from accprobe.isa.formats import FORMATS
from accprobe.report.report import Report

QGMMA = of_instruction("QGMMA")
SMALL = Question(ks=(512, 2048), outputs=256)


@pytest.fixture(scope="module")
def found() -> list[AccountEntry]:
    return list(entries(QGMMA, replace(SMALL, scales=("none", "1x128"))))


def test_every_plan_has_an_entry_with_every_kind_of_data_and_scale(found: list[AccountEntry]) -> None:
    keys = {(e.data, e.scale, e.k, e.promote_every) for e in found}
    assert len(keys) == len(found) == 2 * 2 * 2 * 2
    assert {(e.errors.seeds, e.errors.outputs, e.out) for e in found} == {(SEEDS, 256, "f32")}
    assert {(e.scale, e.promote_every): e.is_scaled for e in found if e.k == 2048} == {
        ("none", None): False,
        ("none", 128): False,
        ("1x128", None): False,
        ("1x128", 128): True,
    }


def test_the_same_seed_gives_the_same_numbers_and_another_one_others(found: list[AccountEntry]) -> None:
    (again,) = entries(QGMMA, replace(SMALL, ks=(512,), intervals=(128,), data=("normal",)))
    assert again == next(e for e in found if (e.data, e.scale, e.k, e.promote_every) == ("normal", "none", 512, 128))
    (other,) = entries(QGMMA, replace(SMALL, ks=(512,), intervals=(128,), data=("normal",), seed=1))
    assert other.errors.relative_error != again.errors.relative_error


def test_rounding_operands_costs_what_e4m3_costs(found: list[AccountEntry]) -> None:
    errors = {e.scale: e.quantisation_error for e in found if e.data == "normal"}
    assert errors["none"] == pytest.approx(0.037, rel=0.2)
    assert errors["1x128"] == pytest.approx(0.036, rel=0.2)


def test_a_measured_product_is_taken_as_it_is_unless_more_is_asked() -> None:
    name = "products-h200:torch:mm 256x256x4096 bf16 -> bf16"
    of = of_product(name)
    (plan,) = plans_of(of, Question(), "normal")
    assert (plan.k, plan.promote_every, plan.split_k, plan.model) == (4096, None, 3, of.measured)
    longer = plans_of(of, Question(ks=(8192,), intervals=(None, 64)), "normal")
    assert [(p.k, p.promote_every, p.split_k, p.model.result) for p in longer] == [
        (8192, None, 3, FORMATS["bf16"]),
        (8192, 64, 3, FORMATS["bf16"]),
    ]


def test_a_measured_product_applies_its_scales_as_it_was_seen_to() -> None:
    of = of_product("products-h200:torch:_scaled_mm 512x512x512 e4m3 -> bf16, scale=row, use_fast_accum=True")
    asked = Question(data=("normal",), scales=("none", "row", "tensor"), outputs=64)
    without, row, tensor = entries(of, asked)
    assert [each.is_scaled for each in (without, row, tensor)] == [False, True, True]
    assert of.measured is not None
    assert of.measured.scales is not None
    pair = quantised("row", of.a, of.b, drawn_values("normal", 2, 2, 512, np.random.default_rng(0)))
    applied = pair.applied(of.measured)
    assert applied is not None
    assert applied[0] == of.measured.scales


def test_own_data_have_the_k_that_they_have() -> None:
    own = OwnData("W", None, np.ones((4, 96), np.float32))
    assert {plan.k for plan in plans_of(QGMMA, Question(), own)} == {96}
    assert {plan.k for plan in plans_of(QGMMA, Question(ks=(64,)), own)} == {64}


@pytest.mark.parametrize(("outputs", "shape"), [(1, (1, 1)), (256, (4, 4)), (4096, (4, 64)), (1 << 20, (64, 1024))])
def test_the_shape_of_a_draw(outputs: int, shape: tuple[int, int]) -> None:
    assert Question(outputs=outputs).shape() == shape


def test_operands_that_would_not_fit_in_memory_are_refused() -> None:
    with pytest.raises(AccprobeError, match="give a K of at most 986895, or fewer --outputs"):
        plans_of(QGMMA, Question(ks=(10**9,)), "normal")


def test_speeds_are_those_of_the_sweep() -> None:
    swept = [r for r in Report.load("h200").sweeps if r.dtype == "e4m3" and r.opcodes and r.opcodes[0].startswith("QGMMA")]
    fastest = {}
    for record in swept:
        interval = min(record.block_k, record.promote_every or record.block_k)
        fastest[interval] = max(fastest.get(interval, 0), record.tflops or 0)
    assert {interval: speed.tflops for interval, speed in measured_speeds(QGMMA).items()} == fastest
    stand_in = of_instruction("h200:wgmma.m64n128k32.f32.e4m3.e4m3")
    assert measured_speeds(stand_in) == measured_speeds(QGMMA)
    assert not measured_speeds(of_instruction("sim:h100:wgmma.m64n8k32.f32.e4m3.e4m3"))
    assert not measured_speeds(of_instruction("h200:wgmma.m64n8k16.f16.f16.f16"))
    assert not measured_speeds(of_product("products-h200:torch:mm 256x256x4096 bf16 -> bf16"))


def test_what_was_not_measured_is_known_to_be_simulated() -> None:
    assert is_simulated(of_instruction("sim:h100:wgmma.m64n8k32.f32.e4m3.e4m3"))
    assert not is_simulated(QGMMA)


@pytest.fixture(scope="module")
def advised(found: list[AccountEntry]) -> dict[str, Advice]:
    told = (advice(QGMMA, SMALL, 2048, data, found) for data in SMALL.data)
    return {each.data: each for each in told if each is not None}


def test_the_longest_interval_is_the_last_that_stays_clearly_below_the_output_s_rounding(advised: dict[str, Advice]) -> None:
    """Sums of one sign lose 2^-13 or so a step; bf16 rounds off 0.17 %."""
    normal, positive = advised["normal"], advised["positive"]
    assert (normal.longest, normal.must_promote, normal.out) == (None, False, "bf16")
    assert positive.longest == 128
    assert positive.must_promote
    assert positive.error * MARGIN <= positive.rounding < positive.unpromoted
    doubled = next(entries(QGMMA, replace(SMALL, ks=(2048,), intervals=(2 * positive.longest,), data=("positive",))))
    assert doubled.errors.error_of_sums is not None
    assert doubled.errors.error_of_sums * MARGIN > positive.rounding
    assert positive.bias < 0
    assert positive.speed is not None


@pytest.mark.parametrize(("outputs", "seed"), [(64, 0), (512, 1), (2048, 2)])
def test_the_advice_does_not_depend_on_the_sample(outputs: int, seed: int) -> None:
    """At 256 the error is about bf16's own rounding, whichever of the two a sample has as the larger."""
    told = advice(QGMMA, replace(SMALL, outputs=outputs, seed=seed), 4096, "positive")
    assert told is not None
    assert (told.longest, told.rounding) == (128, own_rounding(FORMATS["bf16"]))


def test_the_own_rounding_of_a_format_is_that_of_numbers_of_any_size() -> None:
    x = np.exp(np.random.default_rng(0).uniform(0, np.log(2), 1 << 18)).astype(np.float32)
    errors = x.astype(ml_dtypes.bfloat16).astype(np.float32) / x - 1
    assert own_rounding(FORMATS["bf16"]) == pytest.approx(np.sqrt(np.square(errors).mean()), rel=0.01)
    assert [weighed(error, 1.0) for error in (0.8, 0.81, 1.24, 1.25)] == ["less", "about", "about", "more"]


def test_what_is_about_as_large_is_neither_a_yes_nor_a_no(found: list[AccountEntry], advised: dict[str, Advice]) -> None:
    near = replace(advised["normal"], unpromoted=advised["normal"].rounding, longest=512, error=0.001)
    said = next(sentences([], [near]))
    assert "about as large as bf16's own rounding, 0.17 %: promotion is hardly needed." in said
    assert "the longest with at most 0.13 %, 80 % of that rounding, is 512 products, 0.1 %." in said
    assert next(sentences(found, [near, replace(near, data="positive")])).endswith("these data: promotion is hardly needed.")
    assert "promote at least every 128" in next(sentences(found, [near, advised["positive"]]))
    never_enough = replace(advised["positive"], longest=None)
    assert not any("all of these" in each for each in sentences(found, [near, advised["normal"], never_enough]))


def test_every_k_is_told_of() -> None:
    asked = replace(SMALL, ks=(512, 4096), intervals=(None,))
    rows = list(entries(QGMMA, asked))
    advised = [told for data in asked.data if (told := advice(QGMMA, asked, 4096, data, rows))]
    (other,) = (each for each in sentences(rows, advised) if each.startswith("K = 512"))
    assert re.fullmatch(
        r"K = 512, never promoted: normal data 0.0\d+ %, less than bf16's own rounding,"
        r" positive data 0.\d+ %, more than bf16's own rounding.",
        other,
    )


@pytest.mark.parametrize(("scale", "k"), [("row", 512), ("mx32", 512), ("none", 1 << 17)])
def test_an_atol_that_is_not_computed_here_names_the_command(scale: str, k: int, found: list[AccountEntry]) -> None:
    told = allowance(QGMMA, "normal", 7, [replace(found[0], scale=scale, k=k)])
    assert told is not None
    assert told.test is None
    if scale == "mx32":
        assert told.sentence() == ""
        return
    assert told.command.startswith(f"accprobe tolerance --like {QGMMA.name} --k {k} --promote-every")
    assert told.command.endswith(f"--data normal --scale {scale} --seed 7")
    assert told.command in told.sentence()


def test_known_entries_are_not_computed_again(found: list[AccountEntry], advised: dict[str, Advice]) -> None:
    never = next(e for e in found if (e.data, e.scale, e.k, e.promote_every) == ("positive", "none", 2048, None))
    assert advised["positive"].unpromoted == never.errors.relative_error
    fresh = advice(QGMMA, SMALL, 2048, "positive")
    assert fresh is not None
    assert fresh.unpromoted == pytest.approx(advised["positive"].unpromoted, rel=0.05)


def test_where_no_interval_is_short_enough_the_shortest_is_told() -> None:
    """Chunks rounded to f16, of which there are many more than the sum that is left."""
    of = of_instruction("sim:v100:mma.sync.m8n8k4.f16.f16.f16.f16")
    told = advice(of, replace(SMALL, out=FORMATS["f16"]), 512, "cancelling")
    assert told is not None
    assert (told.longest, told.is_enough, told.must_promote) == (None, False, True)
    assert told.rounding < told.error < told.unpromoted
    assert next(sentences([], [told])).endswith(f"promoted after every fused sum, still {percent(told.error)}.")


def test_in_words(found: list[AccountEntry], advised: dict[str, Advice]) -> None:
    said = list(sentences(found, list(advised.values())))
    longest = advised["positive"].longest
    assert said[0].startswith(f"K = 2048, all of these data: promote at least every {longest} products; block-K ")
    assert any(each.startswith("K = 2048, normal data: never promoted, sums, before D is rounded, err by 0.") for each in said)
    assert any("(a walk, of no sign)" in each and "promotion is not needed." in each for each in said)
    (positive,) = (
        each
        for each in said
        if each.startswith("K = 2048, positive data: never promoted, sums, before D is rounded, err by 3.1 %")
    )
    assert "(a drift: 3.1 % low)" in positive
    assert "Promotion every 128 buys 3.1 % → 0.049 %" in positive
    assert re.search(
        r"Promoted every 128, f32 out: a test against f64 sums may have atol = [\d.]+ \(.* error of 256 outputs was", positive
    )
    assert sum("their rounding alone makes" in each for each in said) == 4


def test_numbers_in_words() -> None:
    assert [percent(x) for x in (0.2491, 0.999, 3.2, 0.00013, 1.5e-7)] == ["25 %", "100 %", "320 %", "0.013 %", "1.5e-05 %"]
    assert [ratio(x) for x in (503.2, 1.07, 24.7)] == ["503", "1.1", "25"]


@pytest.mark.slow
def test_a_long_k_may_be_promoted_after_every_sum() -> None:
    """2048 chunks, more than calls may nest."""
    (entry,) = entries(QGMMA, Question(ks=(65536,), intervals=(32,), data=("positive",), outputs=64))
    assert entry.errors.relative_error is not None
    assert entry.errors.relative_error < 1e-3

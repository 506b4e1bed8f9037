"""The journal: nothing that a device answers is forgotten, and what it answers twice is compared, wherever that was."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from fakes import Tiled
from faulty import Fault, Place, PlantedDevice
from inferred import FP8, KNOWN
from outside import Unit

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.query_log import QueryLog
from accprobe.isa import tile
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.operands.kinds import draw
from accprobe.operands.request import Request
from accprobe.records.verification import Verification
from accprobe.report.report import Report
from accprobe.survey.row import checked, instability, settle
from accprobe.verify.onehot import misplaced, one_hot

MODEL = KNOWN[FP8]


def random(n: int, seed: int = 0) -> Request:
    return draw("normal", FP8, np.random.default_rng(seed), n)


def test_what_is_asked_goes_on_in_the_tile_where_it_ended() -> None:
    log = QueryLog(Tiled(FP8, MODEL), FP8)
    few, every = tile.problems(FP8), FP8.m * FP8.n
    for _ in range(every // few // 2):
        assert not log.covered.all()
        log.query(random(2 * few))
    assert log.covered.all()
    assert log.dots == every


def test_every_answer_that_a_model_does_not_explain_counts() -> None:
    """Whoever asked, with which model in mind, or with none."""
    log = QueryLog(Tiled(FP8, MODEL, lambda d, **_: np.where(np.arange(len(d)) == 3, d ^ 1, d)), FP8)
    log.query(random(10))
    log.query(random(20, 1), evaluate(MODEL, FP8, random(20, 1)), MODEL)
    other = MODEL.with_arithmetic(lambda x: x)
    log.query(random(30, 2), np.zeros(30, np.uint32))
    assert log.contradictions(other).count == 3
    assert len(log.contradictions(MODEL).sample) == 3
    assert QueryLog(Tiled(FP8, MODEL), FP8).contradictions(MODEL).count == 0


def surveyed(device: Tiled | PlantedDevice) -> tuple[QueryLog, Verification]:
    log = QueryLog(device, FP8)
    log.budget.remaining = 300
    result, falsification = settle(log)
    return log, checked(log, result.model or MODEL, falsification.contradictions, 1 << 14, 0)


def planted(fault: Fault) -> PlantedDevice:
    return PlantedDevice(Unit(FP8, MODEL), "QGMMA", fault)


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        (Fault(place=Place("lane", 23), how="neighbour"), "lane 23"),
        pytest.param(Fault(place=Place("half", 0), bit=20), "half of the rows 0 or all else", marks=pytest.mark.slow),
    ],
    ids=["lane of neighbours", "half"],
)
def test_a_part_of_the_tile_that_is_wrong_is_found_and_named(fault: Fault, where: str) -> None:
    log, done = surveyed(planted(fault))
    assert log.unstable
    assert (done.tile.covered, done.tile.total) == (512, 512)
    assert done.tile.differing == where


def once(number: int) -> Tiled:
    """Return a device one of whose results is wrong."""
    return Tiled(FP8, MODEL, lambda d, before, **_: np.where(np.arange(before, before + len(d)) == number, d ^ np.uint32(1), d))


@pytest.mark.parametrize(
    "device",
    [planted(Fault("from answer", 60_000, bit=13)), once(70_000)],
    ids=["later", "once"],
)
def test_a_moment_that_is_wrong_is_found(device: Tiled | PlantedDevice) -> None:
    log, done = surveyed(device)
    assert log.unstable
    assert log.first_change
    assert done.counterexample.kind == "repeated query"


def test_what_comes_at_random_is_of_no_place() -> None:
    log, done = surveyed(planted(Fault("random", 10_000, bit=29)))
    assert done.tile.differing == ""
    assert instability(log).endswith("occasionally, at no tile element always")


def test_results_of_a_self_test_count_as_all_others() -> None:
    """Also where the operands lie as they should, so that the self-test itself has nothing to say."""
    wrong = 64
    log = QueryLog(Tiled(FP8, MODEL, lambda d, before, **_: d ^ np.uint32(np.arange(len(d)) < wrong) * (before == 0)), FP8)
    assert misplaced(log) == ""
    assert log.contradictions(MODEL).count == wrong
    assert log.dots > len(one_hot(FP8).request)


def test_a_sparse_query_is_repeated_with_its_metadata_before_it_is_unstable() -> None:
    """A device that is wrong with some metadata, of the self-test here, is wrong each time."""
    inst = parse("mma.sp.m16n8k32.f32.f16.f16.f32")
    (model,) = (row.model for row in Report.load("h200").measured if row.instruction == inst)

    class WrongCode(Tiled):
        def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
            return super().dot(inst, request) ^ np.uint32(1) * (request.metadata[:, 3] == 0b1001).astype(np.uint32)

    log = QueryLog(WrongCode(inst, model), inst)
    assert misplaced(log) == ""
    wrong = log.contradictions(model)
    assert wrong.count
    log.localize_fault(wrong.sample[:3])
    assert not log.unstable


@pytest.mark.parametrize("wrong", [lambda n: n % 8 == 1, lambda n: n > 50_000, lambda n: n == 1])
def test_a_fault_at_some_sizes_of_queries_is_found(wrong: Callable[[int], bool]) -> None:
    log = QueryLog(Tiled(FP8, MODEL, lambda d, **_: d ^ np.uint32(wrong(len(d)))), FP8)
    log.query(random(6720))
    assert not log.unstable
    log.repeat(np.random.default_rng(0))
    assert log.unstable


@pytest.mark.parametrize("rate", [10, 30])
def test_a_fault_that_depends_on_the_dot_product_before_is_of_no_place(rate: int) -> None:
    """Beside zeros alone, one cell of the tile is always the first after another dot product."""
    log = QueryLog(planted(Fault("after pattern", rate, bit=3)), FP8)
    log.query_twice(random(2000))
    assert log.unstable
    log.localize_fault()
    assert not log.differing.any()

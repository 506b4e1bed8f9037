"""The bench of golden chains, with its kernels compiled for the CPU, numpy for cupy, and models evaluated by numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulated_golden import compiled_for_cpu, pointer

from accprobe.build.golden import Planted, golden_shape
from accprobe.devices.simulated import simulated_device
from accprobe.health import check, golden
from accprobe.health.check import check_gpu
from accprobe.health.golden import GoldenBench, evaluate_chain
from accprobe.health.outcome import SmPlace
from accprobe.health.plan import CheckPlan
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.tree import DotModel
from accprobe.operands.drawing import Recipe
from accprobe.operands.request import Request

INST = parse("wgmma.m64n256k32.s32.u8.u8")
MODEL = simulated_device("h100").model(INST)
SHAPE = replace(golden_shape(INST), steps=4)
SMS = 3
PLANTED = Planted(sm=1, thread=128 + 45, register=6, bit=3, word=2, mask=1, a=1, b=1)
"""Where both operands of product 8 of the last instruction are odd."""

KS = (1, 8, 20)
"""Products that are not 0 × 0."""


class Array(np.ndarray):
    """cupy's, of what this needs."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)

    def get(self, stream: Any = None) -> Any:
        return np.array(self)


def made(array: Any) -> Any:
    return np.asarray(array).view(Array)


class Kernel:
    """`golden` or `fold_words`, as cupy launches them."""

    max_dynamic_shared_size_bytes = 0

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self._library, self._name = library, name

    def __call__(self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...], shared_mem: int = 0) -> None:
        if self._name == "fold_words":
            assert (grid, block) == ((SHAPE.chains,), (SHAPE.group_threads,))
            self._library.run_fold(*map(pointer, arguments))
            return
        assert (grid, block, shared_mem) == ((SMS,), (SHAPE.threads,), SHAPE.shared_bytes)
        assert self.max_dynamic_shared_size_bytes == shared_mem
        arrays, job = arguments[:7], np.array(arguments[7:], np.uint32)
        self._library.run(SMS, *(ctypes.c_void_p(int(array)) for array in arrays), pointer(job))


class Gpu:
    """Lends numpy for cupy."""

    architecture = "sm_90a"
    kind, name, pure = "cuda", "NVIDIA H200", False

    def __init__(self, library: ctypes.CDLL) -> None:
        class Stream(nullcontext[None]):
            def __init__(self, non_blocking: bool) -> None:
                super().__init__()

        class Event:
            def record(self) -> None: ...

            def synchronize(self) -> None: ...

        device = SimpleNamespace(attributes={"MultiProcessorCount": SMS}, synchronize=lambda: None)
        cuda = SimpleNamespace(Stream=Stream, Event=Event, Device=lambda: device, get_elapsed_time=lambda began, ended: 1.0)
        module = SimpleNamespace(get_function=lambda name: Kernel(library, name))
        self.cupy = SimpleNamespace(
            cuda=cuda,
            RawModule=lambda path: module,
            empty=lambda shape, dtype: made(np.empty(shape, dtype)),
            zeros=lambda shape, dtype: made(np.zeros(shape, dtype)),
            asarray=made,
            ascontiguousarray=lambda array: made(np.ascontiguousarray(array)),
        )

    @contextmanager
    def lend(self, what: str) -> Iterator[Any]:
        yield self.cupy

    def describe(self) -> dict[str, object]:
        return {}

    def instructions(self) -> list[Instruction]:
        return [INST]

    def why_not(self, inst: Instruction) -> None:
        return None


class OnCpu:
    """Evaluator and Drawing."""

    def __init__(self, cupy: Any, inst: Instruction, *others: Any, **more: Any) -> None: ...

    def evaluate(self, a: Any, b: Any, c: Any, d: Any, blocks: int) -> None:
        assert (c, blocks) == (None, SHAPE.chain)
        d[:] = a.astype(np.uint32) @ b.astype(np.uint32).T

    def draw(self, recipe: Recipe, batch: int, a: Any, b: Any, c: Any) -> None:
        random = np.random.default_rng(batch)
        for x in (a, b):
            x[:] = 0
            x[:, KS] = random.integers(1, 256, (len(x), len(KS)), np.uint8)


@pytest.fixture(autouse=True)
def _without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "Evaluator", OnCpu)
    monkeypatch.setattr(golden, "Drawing", OnCpu)
    monkeypatch.setattr(golden.compiler, "compile_source", lambda *_: SimpleNamespace(path="none"))
    monkeypatch.setattr(golden, "FIRST_ROUNDS", SHAPE.chains)
    monkeypatch.setattr(golden, "SET_SECONDS", 1e-3)
    monkeypatch.setattr(golden, "SHRINK_ROUNDS", 1)
    uniform = [golden.OperandKind("drawn", Recipe(0))]
    monkeypatch.setattr(golden, "operand_kinds", lambda inst: uniform)


def bench(folder: Path, planted: Planted | None = None) -> GoldenBench:
    return GoldenBench(Gpu(compiled_for_cpu(SHAPE, folder, planted)), INST, MODEL, 0, SHAPE)


def test_a_healthy_gpu(tmp_path: Path) -> None:
    turn = bench(tmp_path).turn(0.0)
    assert turn.dots == SMS * SHAPE.groups * SHAPE.chains * SHAPE.results
    assert turn.computed == SHAPE.chain * turn.dots
    assert (turn.sms, turn.wrong_by_sm, turn.seen, turn.vanished) == (SMS, {}, (), 0)


def test_several_sets_alternate_and_are_all_counted(tmp_path: Path) -> None:
    turn = bench(tmp_path).turn(1.0)
    sets, left = divmod(turn.dots, SMS * SHAPE.groups * SHAPE.chains * SHAPE.results)
    assert (sets >= 2, left, turn.wrong_by_sm) == (True, 0, {})


def test_a_fold_that_differs_where_no_word_does_has_vanished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = bench(tmp_path)
    fold = healthy._fold

    def wrong(grid: Any, block: Any, arguments: Any) -> None:
        fold(grid, block, arguments)
        arguments[1][77] ^= 1

    monkeypatch.setattr(healthy, "_fold", wrong)
    turn = healthy.turn(0.0)
    assert (turn.vanished, turn.seen) == (SMS * SHAPE.groups, ())
    assert turn.wrong_by_sm == {str(sm): SHAPE.groups for sm in range(SMS)}


def test_a_planted_error_is_named_asked_again_and_shrunk(tmp_path: Path) -> None:
    sick = bench(tmp_path, PLANTED)
    turn = sick.turn(0.0)
    assert list(turn.wrong_by_sm) == ["1"]
    seen = turn.seen[0]
    assert seen.place == SmPlace(sm=1, warp=5, lane=13, register_of_lane=6)
    asked = seen.found.exchange.request(sick._whole)
    assert evaluate_chain(MODEL, INST, asked)[0] == int(seen.found.expected, 16) == int(seen.found.exchange.d, 16) ^ 8
    assert sick.again(seen, 5) == 5
    smallest = sick.smallest(seen)
    assert smallest is not None
    left: Request = smallest.exchange.request(sick._whole)
    last = (SHAPE.chain - 1) * INST.k + 8
    assert np.flatnonzero(left.a[0] | left.b[0]).tolist() == [last]
    assert left.a[0, last] & left.b[0, last] & 1
    assert int(smallest.exchange.d, 16) ^ int(smallest.expected, 16) == 8


@pytest.mark.slow
def test_the_check_of_a_gpu_takes_this_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(compiled_for_cpu(SHAPE, tmp_path, PLANTED))
    models: dict[Instruction, DotModel] = {INST: MODEL}
    monkeypatch.setattr(check, "open_device", lambda name: gpu)
    monkeypatch.setattr(check, "trusted", lambda device, like: ("h200", models, ""))
    monkeypatch.setattr(check, "chosen", lambda device, models: {"int8": INST})
    monkeypatch.setattr(golden, "golden_shape", lambda inst: SHAPE)
    monkeypatch.setattr(golden.compiler, "fill_cache", lambda sources, target: None)
    *_, outcome = check_gpu("cuda:0", CheckPlan(seconds=0.1, again=4))
    assert (outcome.status, outcome.sms, outcome.kind, outcome.finished) == ("differs", SMS, "cuda", True)
    assert outcome.wrong_by_sm == {"1": outcome.wrong}
    assert {word.place.warp for word in outcome.mismatches} == {5}
    assert all(word.smallest and word.differed_again == 4 and word.chain == 4 for word in outcome.mismatches)

"""The bench of golden chains, with its kernels compiled for the CPU, numpy for cupy, and models evaluated by numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulated_golden import Planted, compiled_for_cpu, pointer

from accprobe.build.golden import GoldenShape, golden_shape
from accprobe.devices.simulated import simulated_device
from accprobe.health import golden
from accprobe.health.golden import GoldenBench
from accprobe.health.operand_batches import OperandKind, cell, evaluate_chain, singly
from accprobe.health.outcome import SmPlace
from accprobe.isa.instructions import Instruction, in_a_row, parse
from accprobe.operands.drawing import Recipe, Way
from accprobe.operands.sparse import stored_products

INST = parse("wgmma.sp.m64n32k64.s32.u8.u8")
MODEL = simulated_device("h100").model(parse("wgmma.m64n32k32.s32.u8.u8"))
SHAPE = replace(golden_shape(INST), steps=4)
SMS = 2
PLANTED = Planted(sm=1, thread=128 + 45, register=14, bit=3, word=2, mask=1, a=1, b=1)
"""Where both operands of stored product 8 of the last instruction are odd."""

OTHERS = [f"mma.sync.{name}" for name in ("m16n8k16.f64.f64.f64.f64", "m16n8k32.s32.s8.s8.s32")]
OTHERS += [f"wgmma.{name}" for name in ("m64n32k32.s32.s8.s8", "m64n32k16.f32.f16.f16", "sp.m64n32k32.f32.f16.f16")]
OTHERS += [f"mma.sp.{name}" for name in ("m16n8k32.f32.f16.f16.f32", "m16n8k64.s32.s8.s8.s32")]


def odd_product(inst: Instruction) -> int:
    """Return the stored product that the planted error needs: only it, and what lies beside it in a sparse A, is not 0 × 0."""
    return PLANTED.word * max(1, 32 // inst.a.storage_bits)


DRAWN, MADE = [OperandKind("drawn", Recipe(Way.UNIFORM))], list[OperandKind]()
"""Kinds that are drawn; without any, sets are made."""


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

    def __init__(self, library: ctypes.CDLL, name: str, shape: GoldenShape) -> None:
        self._library, self._name, self._shape = library, name, shape

    def __call__(self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...], shared_mem: int = 0) -> None:
        shape = self._shape
        if self._name == "fold_words":
            assert (grid, block) == ((shape.chains,), (shape.group_threads,))
            self._library.run_fold(*map(pointer, arguments))
            return
        assert (grid, block, shared_mem) == ((SMS,), (shape.threads,), shape.shared_bytes)
        assert self.max_dynamic_shared_size_bytes == shared_mem
        arrays, job = arguments[:9], np.array(arguments[9:], np.uint32)
        self._library.run(SMS, *(ctypes.c_void_p(int(array)) for array in arrays), pointer(job))


class Gpu:
    """Lends numpy for cupy."""

    architecture = "sm_90a"
    kind, name, pure = "cuda", "NVIDIA H200", False

    def __init__(self, libraries: Mapping[GoldenShape, ctypes.CDLL]) -> None:
        self.shapes = tuple(libraries)

        class Stream(nullcontext[None]):
            def __init__(self, non_blocking: bool) -> None:
                super().__init__()

        class Event:
            def record(self) -> None: ...

            def synchronize(self) -> None: ...

        def kernel(shape: GoldenShape, name: str) -> Kernel:
            return Kernel(libraries[shape], name, shape)

        device = SimpleNamespace(attributes={"MultiProcessorCount": SMS}, synchronize=lambda: None)
        cuda = SimpleNamespace(Stream=Stream, Event=Event, Device=lambda: device, get_elapsed_time=lambda began, ended: 50.0)
        self.cupy = SimpleNamespace(
            cuda=cuda,
            RawModule=lambda path: SimpleNamespace(get_function=partial(kernel, self.shapes[int(path)])),
            arange=lambda stop: made(np.arange(stop)),
            broadcast_to=np.broadcast_to,
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

    def explain_unavailable(self, inst: Instruction) -> None:
        return None


class OnCpu:
    """Evaluator and Drawing. healthy: no operand is odd, so that the fault is never met."""

    healthy = False
    inst = INST

    def __init__(self, *given: Any, **more: Any) -> None: ...

    def evaluate(self, a: Any, b: Any, c: Any, d: Any, blocks: int) -> None:
        assert a.shape[1] == blocks * self.inst.stored.k
        d[:] = (a.astype(np.uint64) @ b.astype(np.uint64).T + (0 if c is None else c)).astype(d.dtype)

    def draw(self, recipe: Recipe, batch: int, a: Any, b: Any, c: Any) -> None:
        random = np.random.default_rng(batch)
        k, b = odd_product(self.inst), b.reshape(-1, self.inst.k)
        for x, ks in ((a, [k]), (b, range(k // 2 * 4, k // 2 * 4 + 4) if self.inst.sparse else [k])):
            x[:] = 0
            x[:, ks] = random.integers(1, 128, (len(x), 1), x.dtype) << x.dtype.type(self.healthy)


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu({shape: compiled_for_cpu(shape, PLANTED) for shape in (SHAPE, singly(SHAPE))})


@pytest.fixture(autouse=True)
def _without_a_gpu(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    monkeypatch.setattr(golden, "Evaluator", OnCpu)
    monkeypatch.setattr(golden, "Drawing", OnCpu)
    monkeypatch.setattr(golden, "golden_source", lambda shape: str(gpu.shapes.index(shape)))
    monkeypatch.setattr(golden.compiler, "compile_source", lambda source, *_: SimpleNamespace(path=source))
    monkeypatch.setattr(golden, "FIRST_ROUNDS", 1)
    monkeypatch.setattr(golden, "TIMES_PREPARED", 1)
    monkeypatch.setattr(golden, "SHRINK_ROUNDS", 1)


@pytest.fixture
def bench(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> GoldenBench:
    """Its parameter: whether it is healthy, and the kinds of its sets."""
    healthy, kinds = request.param
    monkeypatch.setattr(OnCpu, "healthy", healthy)
    monkeypatch.setattr(golden, "operand_kinds", lambda inst: kinds)
    if kinds:
        monkeypatch.setattr(golden, "covering_sets", lambda *_: ())
    return GoldenBench(gpu, INST, MODEL, 0, SHAPE)


RESULTS = SMS * SHAPE.groups * SHAPE.chains * SHAPE.results


@pytest.mark.parametrize("bench", [(True, DRAWN)], indirect=True)
def test_sets_alternate_and_are_all_counted(bench: GoldenBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "time", SimpleNamespace(monotonic=iter([0.0, 0.5, 1.5, 2.0]).__next__))
    turn = bench.turn(1.0)
    assert (turn.dots, turn.computed, turn.seconds) == (2 * RESULTS, 2 * RESULTS * SHAPE.chain, 2.0)
    assert (turn.sms, turn.wrong_by_sm, turn.seen, turn.vanished) == (SMS, {}, [], 0)
    assert (turn.loaded_seconds, turn.loaded_computed) == (2 * 0.05, turn.computed), "each launch took 50 ms"


@pytest.mark.parametrize("bench", [(True, DRAWN)], indirect=True)
def test_a_fold_that_differs_where_no_word_does_has_vanished(bench: GoldenBench, monkeypatch: pytest.MonkeyPatch) -> None:
    fold = bench._drawn.fold

    def wrong(grid: Any, block: Any, arguments: Any) -> None:
        fold(grid, block, arguments)
        arguments[1][:] += 1

    monkeypatch.setattr(bench._drawn, "fold", wrong)
    turn = bench.turn(0.0)
    assert (turn.vanished, turn.seen) == (golden.MOST_RECORDS, [])
    assert turn.wrong_by_sm == {str(sm): SHAPE.chains * SHAPE.threads for sm in range(SMS)}, "no thread is left out"


FAULTY = [((False, DRAWN), SHAPE.chain), ((False, MADE), 1)]


@pytest.mark.parametrize(("bench", "chain"), FAULTY, indirect=["bench"])
def test_a_planted_error_is_named_and_repeated(bench: GoldenBench, chain: int) -> None:
    turn = bench.turn(0.0)
    assert (list(turn.wrong_by_sm), turn.computed) == (["1"], turn.dots * chain)
    assert chain > 1 or (turn.loaded_seconds, turn.loaded_computed) == (0.0, 0), "operands made for events are no full load"
    seen, whole = turn.seen[0], in_a_row(INST, chain)
    assert (seen.place, seen.chain) == (SmPlace(sm=1, warp=5, lane=13, register_of_lane=14), chain)
    asked = seen.found.exchange.request(whole)
    asked.check(whole)
    assert evaluate_chain(MODEL, INST, asked)[0] == int(seen.found.expected, 16) == int(seen.found.exchange.d, 16) ^ 8
    assert bench.again(seen, 5) == 5


@pytest.mark.parametrize(("bench", "chain"), [FAULTY[0], pytest.param(*FAULTY[1], marks=pytest.mark.slow)], indirect=["bench"])
def test_a_planted_error_is_shrunk(bench: GoldenBench, chain: int) -> None:
    smallest, whole = bench.smallest(bench.turn(0.0).seen[0]), in_a_row(INST, chain)
    left = stored_products(whole, smallest.exchange.request(whole))
    last = (chain - 1) * INST.stored.k + odd_product(INST)
    assert np.flatnonzero(left.a[0] | left.b[0]).tolist() == [last]
    assert left.a[0, last] & left.b[0, last] & 1
    assert int(smallest.exchange.d, 16) ^ int(smallest.expected, 16) == 8


@pytest.mark.slow
@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_a_planted_error_is_found_in_every_unit(name: str, made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    inst = parse(name)
    shape = replace(golden_shape(inst), steps=4)
    shape = shape if inst.family.warps > 1 else replace(shape, groups=3, tiles_m=2, tiles_n=2)
    shape = singly(shape) if made else shape
    planted = replace(PLANTED, thread=13)
    of_unit = Gpu({shape: compiled_for_cpu(shape, planted)})
    for module, attribute, value in (
        (golden, "singly", lambda shape: shape),
        (golden, "golden_source", lambda shape: "0"),
        (golden, "operand_kinds", lambda inst: DRAWN),
        (golden, "covering_sets", lambda *_: ()),
        (OnCpu, "inst", inst),
    ):
        monkeypatch.setattr(module, attribute, value)
    row, column = cell(shape, planted.thread, planted.register)
    k = odd_product(inst)
    for healthy in (True, False):
        monkeypatch.setattr(OnCpu, "healthy", healthy)
        bench = GoldenBench(of_unit, inst, MODEL, 0, shape)
        turn = bench.turn(0.0)
        assert turn.dots == SMS * shape.groups * shape.chains * shape.results
        a, b = (x.reshape(shape.steps, -1, x.shape[1]) for x in (bench._sets[0].a, bench._sets[0].b))
        hit = (a[:, row, k] & 1).sum() * (b[:, column, k // 2 * 4 if inst.sparse else k] & 1).sum()
        assert (turn.wrong_by_sm, bool(hit)) == ({} if healthy else {"1": hit}, not healthy)

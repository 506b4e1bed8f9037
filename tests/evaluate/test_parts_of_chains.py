"""Scratch memory of chains on an emulated GPU, whose results equal those of one launch."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compiled import Differences, Job, evaluator_library, needs_compiler
from marks import some

from accprobe.evaluate.cuda import launch
from accprobe.evaluate.cuda.launch import Evaluator
from accprobe.evaluate.cuda.source import source
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import parse
from accprobe.model.product import NO_K
from accprobe.operands.kinds import draw
from accprobe.report.names import named_models

pytestmark = needs_compiler

INST = parse("wgmma.m64n8k32.f32.e5m2.e5m2")
MODEL = named_models("h200")[INST]
ROWS, COLUMNS = 64, 128
OF_A, OF_B = INST.k * ROWS * 8 + ROWS * 4, INST.k * COLUMNS * 6 + COLUMNS * 4
"""Bytes of a decoded block of a tile."""

A_GPUS_NAN = 0x7FFFFFFF
BLOCKS = 9
LINES = 70, 130


class Emulated:
    """numpy in place of cupy, with a count of allocated bytes and kernels that run on the CPU."""

    def __init__(self) -> None:
        self.held = self.most = self.launches = 0

    def __getattr__(self, name: str) -> Any:
        made = getattr(np, name)
        return self._counting(made) if name in ("empty", "ascontiguousarray", "take") else made

    def _counting(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            found = make(*given, **named)
            if found is not given[0] and found.dtype == np.uint8:
                self._add(found.nbytes)
                weakref.finalize(found, self._add, -found.nbytes)
            return found

        return counted

    def _add(self, size: int) -> None:
        self.held += size
        self.most = max(self.most, self.held)

    def RawModule(self, path: str) -> Any:  # noqa: N802 -- a name of cupy
        return SimpleNamespace(get_function=lambda name: getattr(self, f"_{name}"))

    def zeros(self, shape: Any, dtype: Any = np.float64) -> Any:
        return np.zeros(shape, dtype).view(Fetched) if shape == 6 else np.zeros(shape, dtype)

    def _describe(self, grid: Any, threads: Any, arguments: Sequence[Any]) -> None:
        there = (ctypes.c_uint32 * 6).from_address(int(arguments[0]))
        there[:] = [128, 0, ROWS, COLUMNS, OF_A, OF_B]

    def _take_rows(self, grid: Any, threads: Any, arguments: Sequence[Any]) -> None:
        """The host decodes operands in its own memory."""

    _take_columns = _take_rows

    def _evaluate(self, grid: Any, threads: Any, arguments: Sequence[Any], shared_mem: int) -> None:
        self.launches += 1
        made = evaluator_library(source(MODEL, INST, True))
        made.evaluate_on_host(ctypes.byref(Job(*map(int, arguments[:8]))), ctypes.byref(Differences()))


class Fetched(np.ndarray[Any, Any]):
    def get(self) -> Any:
        return np.asarray(self)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Emulated:
    monkeypatch.setattr(launch.compiler, "compile_source", lambda *given: SimpleNamespace(path=""))
    monkeypatch.setattr(launch, "_pointer", lambda x: np.uint64(0 if x is None else x.ctypes.data))
    return Emulated()


def operands(kind: str, seed: int) -> tuple[Bits, Bits, Bits]:
    random = np.random.default_rng(seed)
    a, b = (
        np.hstack([getattr(draw(kind, INST, random, n), x) for _ in range(BLOCKS)]) for n, x in zip(LINES, "ab", strict=True)
    )
    return a, b, draw("normal", INST, random, LINES[0] * LINES[1]).c.reshape(LINES)


def evaluated(gpu: Emulated, least: int, monkeypatch: pytest.MonkeyPatch, *given: Any, **named: Any) -> Bits:
    monkeypatch.setattr(launch, "LEAST_SCRATCH", least)
    d = np.full(LINES, 0x55, np.uint32)
    gpu.most = gpu.launches = 0
    with np.errstate(invalid="ignore"):
        Evaluator(gpu, INST, MODEL, "", chained=True).evaluate(*given[:3], d, **named)
    return np.where(np.isnan(d.view(np.float32)), np.uint32(A_GPUS_NAN), d)


SHUFFLED = np.random.default_rng(1).permutation(np.append(np.arange(BLOCKS * INST.k - 5), [NO_K] * 5))
BLOCK = 2 * (OF_A + OF_B) + sum(LINES) * INST.k
"""Bytes of one block of the operands here, two tiles of lines each, decoded and copied."""


@pytest.mark.parametrize(("kind", "with_c"), some([("normal", True), ("special", False)]))
@pytest.mark.parametrize(
    ("promote", "ks", "launches"),
    [(0, None, 3), (3, SHUFFLED, 3), (4, None, 5)],
    ids=["chain", "promoted, shuffled", "promoted after more than a part"],
)
def test_parts_of_a_chain_give_the_bits_of_one_launch(
    gpu: Emulated, monkeypatch: pytest.MonkeyPatch, kind: str, with_c: bool, promote: int, ks: Any, launches: int
) -> None:
    a, b, c = operands(kind, seed=promote)
    given = a, b, c if with_c else None
    before = c.copy()
    whole = evaluated(gpu, 1 << 40, monkeypatch, *given, blocks=BLOCKS, promote=promote, ks=ks)
    assert gpu.launches == 1
    assert gpu.most > 3 * BLOCK
    found = evaluated(gpu, 3 * BLOCK, monkeypatch, *given, blocks=BLOCKS, promote=promote, ks=ks)
    np.testing.assert_array_equal(found, whole)
    np.testing.assert_array_equal(c, before)
    assert gpu.launches == launches
    assert BLOCK <= gpu.most <= 3 * BLOCK

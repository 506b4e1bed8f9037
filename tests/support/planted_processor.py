"""A planted processor: `CpuDevice` calls a loop that evaluates models in place of machine code.

The layouts are a second implementation, from the manual: Intel SDM, "TDPBF16PS" and "VDPBF16PS".
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
import pytest

from accprobe.build import machine_code, processor
from accprobe.devices.cpu import CpuDevice
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import FORMATS, Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.isa.processors import Mnemonic
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.operands.request import Request

FMA = FloatArithmetic(
    FORMATS["f32"],
    23,
    "RNE",
    None,
    zero_sign="ieee",
    subnormal_results="flushed",
    nan=0xFFC00000,
    nan_payload="a b c",
    tininess_detected="after rounding to full precision",
)
"""The arithmetic with which the measured processors add products of bf16, one by one."""


def planted(monkeypatch: pytest.MonkeyPatch, models: Mapping[str, DotModel]) -> CpuDevice:
    """Return a processor with only these instructions, by mnemonic."""
    monkeypatch.setattr(processor, "architecture", lambda: "x86_64")
    monkeypatch.setattr(processor, "lacking", lambda each: [] if each.mnemonic in models else ["flag"])
    monkeypatch.setattr(processor, "flags", frozenset)
    monkeypatch.setattr(machine_code, "load_loop", lambda each: Planted(each, models[each.mnemonic]))
    return CpuDevice()


class Planted:
    """In place of `machine_code.Loop`."""

    def __init__(self, mnemonic: Mnemonic, model: DotModel) -> None:
        self._mnemonic, self._model = mnemonic, model
        self._inst = parse(mnemonic.mnemonic)
        self.code = mnemonic.mnemonic.encode()

    def run(self, a: int, b: int, c: int, d: int, tiles: int, words: int, config: int, row: int) -> None:
        inst = self._inst
        if self._mnemonic.tiles:
            shape = _at(config, np.dtype(np.uint8), 64)
            assert (shape[0], row) == (1, 64)
            assert shape[16:22].view(np.uint16).tolist() == [row] * 3
            assert shape[48:51].tolist() == [16] * 3
        lines = (inst.m * inst.n,) * 2 if inst.family.lanes else (inst.m, inst.n)
        of_a, of_b = (
            _at(address, fmt.dtype, tiles * count * inst.k)
            for address, fmt, count in zip((a, b), (inst.a, inst.b), lines, strict=True)
        )
        of_c, of_d = (_at(address, inst.d.dtype, tiles * inst.m * inst.n) for address in (c, d))
        of_d[:] = evaluate(self._model, inst, _request(inst, tiles, of_a, of_b, of_c))


def _request(inst: Instruction, tiles: int, a: Bits, b: Bits, c: Bits) -> Request:
    """Return the dot products of every element of the tiles, [tiles * M * N]."""
    if inst.family.lanes:
        return Request(a.reshape(-1, inst.k), b.reshape(-1, inst.k), c)
    packed, k = 4 // inst.b.dtype.itemsize, np.arange(inst.k)
    n, cell = np.arange(inst.n)[:, None], np.arange(inst.m * inst.n)
    place = (k // packed * inst.n + n) * packed + k % packed
    rows, columns = a.reshape(tiles, inst.m, inst.k), b.reshape(tiles, -1)[:, place]
    every_row, every_column = rows[:, cell // inst.n], columns[:, cell % inst.n]
    return Request(every_row.reshape(-1, inst.k), every_column.reshape(-1, inst.k), c)


def _at(address: int, dtype: np.dtype[np.unsignedinteger], count: int) -> Bits:
    whole = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(whole, dtype)

"""Models of Blackwell kinds against MMA-Sim (PyPI `mmasim`), if installed: 100,000 dot products each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accprobe.evaluate.evaluator import with_numpy
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.published import known_models
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request

DOTS = 100_000
NAMES = {"b200": "Blackwell", "rtx5090": "RTX Blackwell"}
"""The chips, as MMA-Sim calls their architectures."""


def compared() -> Iterator[tuple[str, Instruction]]:
    """Each operation once: tcgen05's does not depend on n, and integers are sums of integers."""
    for chip in NAMES:
        for inst in known_models(chip):
            if inst.kind is not None and not inst.is_integer and inst.m < 256:
                yield chip, inst


@pytest.mark.slow
@pytest.mark.parametrize(("chip", "inst"), [pytest.param(*x, id=f"{x[0]} {x[1]}") for x in compared()])
def test_no_result_differs_from_mma_sim(chip: str, inst: Instruction) -> None:
    operation, model = peer(chip, inst), known_models(chip)[inst].model
    rng, names = np.random.default_rng(5), list(kinds(inst))
    for kind in names:
        request = draw(kind, inst, rng, -(-DOTS // len(names)))
        for start in range(0, len(request), 4096):
            some = request[start : start + 4096]
            np.testing.assert_array_equal(with_numpy(model, inst, some), answered(operation, inst, some))


def test_another_model_differs_from_mma_sim() -> None:
    """The comparison can fail."""
    chip, inst = next(x for x in compared() if x[1].k == 64)
    operation, rng = peer(chip, inst), np.random.default_rng(5)
    model = known_models(chip)[inst].model.with_arithmetic(lambda x: replace(x, alignment_bits=34))
    request = draw("wide", inst, rng, 4096)
    assert (with_numpy(model, inst, request) != answered(operation, inst, request)).any()


def peer(chip: str, inst: Instruction) -> Any:
    sim = pytest.importorskip("mmasim.nv_ptx.sim", reason="mmasim is not installed")
    shape, kind = f"m{inst.m}n{inst.n}k{inst.k}", f"kind::{inst.kind}"
    types = [inst.d.name, inst.a.name, inst.b.name, *([inst.c.name] if inst.family.warps == 1 else [])]
    family = "TCGen05MMA" if inst.family.warps > 1 else "MMA"
    if inst.scale is None:
        return getattr(sim, family)(NAMES[chip], ".".join([shape, kind, *types]))
    block = f"block{inst.scale_block}"
    return getattr(sim, f"{family}BlockScale")(NAMES[chip], ".".join([shape, kind, block, *types, inst.scale.name]))


def answered(operation: Any, inst: Instruction, request: Request) -> Bits:
    scales = (
        [] if inst.scale is None else [tensor(inst.scale, x) for x in (request.scales_a, request.scales_b) if x is not None]
    )
    packed = inst.k == 64
    a, b = (tensor(fmt, x, packed) for fmt, x in ((inst.a, request.a), (inst.b, request.b)))
    d = operation.dpa(a, b, tensor(inst.c, request.c), *scales)
    return np.asarray(d.contiguous().numpy().view(inst.d.dtype))


def tensor(fmt: Format, patterns: Bits, packed: bool = False) -> Any:
    """As MMA-Sim takes them: fp4 in bits 2 to 5 of a byte, or two in one, the first in the upper half."""
    torch = pytest.importorskip("torch")
    if packed:
        return torch.from_numpy(patterns[..., ::2] << 4 | patterns[..., 1::2])
    if fmt.bits < 8 and fmt.kind == "float":
        return torch.from_numpy(patterns << np.uint8(2) if fmt.bits == 4 else patterns)
    names = {"f32": "float32", "tf32": "float32", "f16": "float16", "bf16": "bfloat16", "e5m2": "float8_e5m2"}
    names |= {"e4m3": "float8_e4m3fn", "ue4m3": "float8_e4m3fn", "ue8m0": "float8_e8m0fnu"}
    signed = patterns.view(np.dtype(f"int{fmt.storage_bits}")) if fmt.storage_bits > 8 else patterns
    return torch.from_numpy(np.ascontiguousarray(signed)).view(getattr(torch, names[fmt.name]))

"""Devices that compute the narrow instructions, and m8n8k4, as ptxas lowers them: what is put in is found, and confirmed."""

from __future__ import annotations

import pytest
from fakes import Tiled

from accprobe.build.lowerings import Lowering
from accprobe.isa.instructions import parse
from accprobe.model.published import known_models
from accprobe.model.tree import DotModel
from accprobe.records.rows import Row
from accprobe.report.words import detour
from accprobe.survey.row import Surveyor

KNOWN = known_models("h100")
NAMES = [
    "mma.sync.m16n8k64.s32.s4.u4.s32",
    "mma.sync.m8n8k32.satfinite.s32.s4.s4.s32",
    "mma.sync.m8n8k128.s32.b1.b1.s32.xor.popc",
    "mma.sync.m8n8k128.s32.b1.b1.s32.and.popc",
    "wgmma.m64n8k256.s32.b1.b1.and.popc",
    "mma.sync.m8n8k4.f32.f16.f16.f32",
    "mma.sync.m8n8k4.f32.f16.f16.f16",
    "mma.sync.m8n8k4.f16.f16.f16.f16",
]
# Others have their shape.
LONG = (NAMES[1], *NAMES[3:5], *NAMES[-2:])


def row_of(name: str, model: DotModel | None = None, lowering: Lowering | None = None) -> Row:
    inst = parse(name)
    known = KNOWN[inst]
    return Surveyor(Tiled(inst, model or known.model, lowering=lowering or known.lowering)).row(inst, 1 << 14, 0)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in NAMES])
def test_what_is_planted_is_found(name: str) -> None:
    row = row_of(name)
    assert (row.status, row.reason) == ("confirmed", "")
    assert row.model == KNOWN[parse(name)].model
    assert bool(detour(row)) == any(converted in name for converted in ("m8n8k4", ".s4."))
    assert Row.model_validate_json(row.model_dump_json(exclude_defaults=True)).status == "confirmed"


def test_multiply_adds_are_not_what_a_warpgroup_s_instruction_becomes() -> None:
    row = row_of("wgmma.m64n8k256.s32.b1.b1.and.popc", lowering=Lowering((), (("FFMA", 8),), "nvdisasm", "ab" * 32))
    assert row.status == "unverified"
    assert all(finding.bound != "exact" for finding in row.findings.values())

"""Every n of a wgmma: each is measured, and what is alike ends as one row."""

from __future__ import annotations

from pathlib import Path

import pytest

from accprobe.devices.simulated import SimulatedDevice, simulated_device
from accprobe.errors import ReportError
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, alike_but_n, at_n, every_n, parse
from accprobe.operands.request import Request
from accprobe.report.names import named_model
from accprobe.report.report import Report
from accprobe.survey.run import survey

FLOAT, BITS = "wgmma.m64n8k16.f32.f16.f16", "wgmma.m64n8k256.s32.b1.b1.and.popc"


class Odd(SimulatedDevice):
    """An H100 that gives nothing but zeros at n = 40."""

    def __init__(self) -> None:
        known = simulated_device("h100")
        models = {inst: known.model(inst) for inst in known.instructions() if inst.name in (FLOAT, BITS)}
        super().__init__(models, lowerings={inst: low for inst in models if (low := known.lowering(inst))})

    def identity(self, inst: Instruction) -> str:
        return inst.name

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        return super().dot(inst, request, placement) * (inst.n != 48)


def test_each_n_is_one_that_ptx_has() -> None:
    assert every_n(parse(FLOAT)) == tuple(range(8, 257, 8))
    assert every_n(parse(BITS)) == (8, 16, 24, *range(32, 257, 16))
    assert every_n(parse("mma.sync.m8n8k4.f64.f64.f64.f64")) == (8,)
    assert all(parse(at_n(parse(name), n).name) == at_n(parse(name), n) for name in (FLOAT, BITS) for n in every_n(parse(name)))


def test_alike_ones_are_one_row_and_another_stands_alone(tmp_path: Path) -> None:
    seen: list[Report] = []
    report = survey(Odd(), [BITS], 2048, all_n=True, on_row=seen.append)
    first, odd = report.measured
    assert (first.name, odd.instruction.n, odd.also_at) == (BITS, 48, ())
    assert first.also_at == tuple(n for n in every_n(parse(BITS))[1:-1] if n != 48)
    assert seen[-1] == report
    assert len(seen[-2].instructions) == len(every_n(parse(BITS)))
    assert report.run.selected == len(report.instructions) == 3
    report.save(tmp_path / "every.json")
    assert Report.load(tmp_path / "every.json") == report
    other = named_model(f"{tmp_path}/every.json:{at_n(parse(BITS), 64).name}")
    assert (other.model, other.remark) == (first.model, "")


def test_without_it_one_n_is_measured() -> None:
    report = survey(Odd(), [BITS], 2048)
    assert [(row.name, row.also_at) for row in report.instructions] == [(BITS, ())]
    assert alike_but_n(parse(BITS), [parse(FLOAT)]) == []


@pytest.mark.parametrize("n", [8, 12, 40])
def test_n_that_there_is_not_cannot_be_read(n: int, tmp_path: Path) -> None:
    report = survey(Odd(), [BITS], 2048)
    (row,) = report.instructions
    wrong = report.model_copy(update={"instructions": (row.model_copy(update={"also_at": (n,)}),)})
    wrong.save(tmp_path / "wrong.json")
    with pytest.raises(ReportError, match=f"there is no other {row.name} of n = {n}"):
        Report.load(tmp_path / "wrong.json")

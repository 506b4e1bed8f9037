"""The reports that come with accprobe: they hold what their device answered, and their models say the same, bit for bit."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from private import PRIVATE

from accprobe.build import probes
from accprobe.cli import main
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import catalog
from accprobe.model.published import known_models
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.operands.request import Request, joined
from accprobe.report.evidence import load_with_evidence
from accprobe.report.recorded import recorded
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.sass import opcodes
from accprobe.verify.outcome import CODE_PAIRS, COVERING, TileCoverage
from accprobe.verify.random import batches

FOLDER = Path(__file__).parents[2] / "reports"
GPUS = ("h100", "h200")
REPORT = load_with_evidence("h200")
ROWS = {row.name: row for row in REPORT.instructions}
FAMILIES = ("mma.sync.", "mma.sp.", "wgmma.m", "wgmma.sp.")
PROBED = [inst.name for inst in catalog("sm_90a") if probes.why_no_probe(inst) is None]


def rows_of(family: str) -> list[Row]:
    """Those of all recorded GPUs."""
    of_each = [[row for row in load_with_evidence(gpu).instructions if row.name.startswith(family)] for gpu in GPUS]
    assert all(of_each)
    return [row for rows in of_each for row in rows]


MOST_BYTES = 4 << 20
C_OF_SAGE = 0x404073FF
"""3.0070798 (SageAttention2): it comes back as it is where the sum keeps 23 fraction bits."""


def text_of(gpu: str) -> str:
    return (FOLDER / f"{gpu}.json").read_text(encoding="utf-8")


def model_of(row: Row) -> DotModel:
    assert row.model is not None
    return row.model


def answer(name: str, c: int) -> int:
    """What the report's model of an instruction has for A = B = 0 and this C."""
    inst = ROWS[name].instruction
    request = replace(Request.zeros(inst, 1), c=np.array([c], inst.c.dtype))
    return int(evaluate(model_of(ROWS[name]), inst, request)[0])


def shown(row: Row) -> tuple[Request, Bits]:
    """Every exchange of the evidence: what was asked, and D."""
    inst = row.instruction
    seen = list(dict.fromkeys(x for some in row.evidence.values() for x in some))
    asked = joined([exchange.request(inst) for exchange in seen])
    return asked, np.concatenate([exchange.answer(inst) for exchange in seen])


def test_every_recorded_report_is_tested_here() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.json")) == [
        "cpu-emerald-rapids.json",
        "cpu-zen4.json",
        "explained.json",
        *(f"{gpu}.json" for gpu in GPUS),
        "lowering.json",
        "more-products-h200.json",
        *(f"products-{gpu}.json" for gpu in GPUS),
        "sparse-products-h200.json",
    ]


@pytest.mark.parametrize("gpu", GPUS)
def test_recorded_products_are_proved_or_say_why_not(gpu: str) -> None:
    products = Report.load(f"products-{gpu}").products
    assert len(products) == 102
    assert [row.shape for row in products if row.status != "confirmed"] == ["1x8x11528"]
    for row in products:
        if row.status == "confirmed":
            assert row.verification is not None
            assert (row.verification.mismatches, row.verification.elements >= 1_000_000) == (0, True)
        else:
            assert row.reason


def test_sparse_products_are_proved_but_for_what_a_sum_below_the_range_of_bf16_gives() -> None:
    products = Report.load("sparse-products-h200").products
    assert {row.a: (row.status, row.reason or "") for row in products} == {
        "f16": ("confirmed", ""),
        "bf16": ("inferred", "of sums beyond the range of bf16: NaN for -Inf"),
        "e4m3": ("confirmed", ""),
        "s8": ("confirmed", ""),
    }
    for row in products:
        assert row.verification is not None
        assert (row.verification.mismatches, row.verification.elements) == (0, 1 << 22)


@pytest.mark.parametrize("gpu", GPUS)
def test_it_is_of_a_gpu(gpu: str) -> None:
    report = Report.load(gpu)
    assert (report.device.kind, report.device.architecture, report.device.reason) == ("cuda", "sm_90a", "")
    assert gpu.upper() in report.device.name
    assert "simulated" not in text_of(gpu)
    assert {row.opcode_source for row in report.measured} in ({"nvdisasm"}, {"ncu"})
    assert all(row.cubin_sha256 for row in report.measured)


@pytest.mark.parametrize("gpu", GPUS)
def test_every_instruction_is_in_it_and_every_probed_one_is_measured(gpu: str) -> None:
    report = Report.load(gpu)
    assert [row.name for row in report.instructions] == [inst.name for inst in catalog("sm_90a")]
    assert [row.name for row in report.measured] == PROBED == [row.name for row in report.instructions]
    assert len(report.instructions) == report.run.selected


def test_gpus_were_measured_alike() -> None:
    """With the same machine code, and with the same findings."""
    one, other = map(Report.load, GPUS)
    assert (one.environment, one.seed) == (other.environment, other.seed)
    for row, same in zip(one.instructions, other.instructions, strict=True):
        assert (row.name, row.cubin_sha256, row.opcodes) == (same.name, same.cubin_sha256, same.opcodes)
        assert row.findings == same.findings, row.name
    timed_or_hashed = {"tflops", "seconds", "compile_seconds", "cubin_sha256"}
    for swept, same_sweep in zip(one.sweeps, other.sweeps, strict=True):
        assert swept.model_dump(exclude=timed_or_hashed) == same_sweep.model_dump(exclude=timed_or_hashed)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_confirmed_by_a_million_dot_products_each(family: str) -> None:
    for row in rows_of(family):
        assert_confirmed_by_a_million(row)


def assert_confirmed_by_a_million(row: Row) -> None:
    assert (row.name, row.status, row.reason, row.unstable) == (row.name, "confirmed", "", 0)
    done = row.verification
    assert done is not None
    assert done.random >= 10**6
    assert (done.mismatches, done.contradicting, done.counterexample) == (0, 0, None)
    assert sum(done.kinds.values()) == done.dots < done.results
    assert min(count for kind, count in done.kinds.items() if kind not in (COVERING, CODE_PAIRS)) >= 10**4
    assert done.tile == TileCoverage(row.instruction.m * row.instruction.n, row.instruction.m * row.instruction.n)
    assert done.events is not None
    assert (done.events.hit, done.events.missing) == (done.events.possible, ())
    expected = (
        {"extreme", "C near overflow"} if row.instruction.is_integer else {"special", "tiny", "huge", "cancelling", "same sign"}
    )
    assert expected | {"uniform"} <= set(done.kinds)
    assert row.alternatives is not None
    assert row.alternatives.tested >= 1


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_rival_leaves_open_is_undetermined(family: str) -> None:
    for row in rows_of(family):
        assert row.alternatives is not None, row.name
        for alternative in row.alternatives.surviving:
            for feature, _ in alternative.changes[:1]:
                finding = row.findings[feature]
                assert finding.bound == "undetermined", (row.name, alternative)
                assert len(finding.candidates) >= 2, (row.name, alternative)


@pytest.mark.parametrize("family", FAMILIES)
def test_model_gives_every_answer_of_the_evidence(family: str) -> None:
    for row in rows_of(family):
        assert row.evidence or row.instruction.is_integer, row.name
        if row.evidence:
            asked, d = shown(row)
            np.testing.assert_array_equal(evaluate(model_of(row), row.instruction, asked), d, err_msg=row.name)


@pytest.mark.parametrize("family", FAMILIES)
def test_known_model_gives_every_answer_of_the_evidence(family: str) -> None:
    """What `sim:h200` computes is what the H200 answered."""
    for row in rows_of(family):
        known = known_models("h200").get(row.instruction)
        assert known or row.instruction.sparse, row.name
        if row.evidence and known:
            asked, d = shown(row)
            np.testing.assert_array_equal(evaluate(known.model, row.instruction, asked), d, err_msg=row.name)


def aligned(has: FloatArithmetic, more: int) -> FloatArithmetic:
    return has if has.alignment_bits is None else replace(has, alignment_bits=has.alignment_bits + more)


NEIGHBOURS: dict[str, Callable[[FloatArithmetic], FloatArithmetic]] = {
    "a bit more aligned": lambda has: aligned(has, 1),
    "a bit less aligned": lambda has: aligned(has, -1),
    "a bit less in results": lambda has: replace(has, result_bits=has.result_bits - 1),
    "rounded otherwise": lambda has: replace(has, result_rounding="RNE" if has.result_rounding == "RZ" else "RZ"),
}


@pytest.mark.parametrize("change", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_evidence_contradicts_a_model_that_is_a_little_different(change: Callable[[FloatArithmetic], FloatArithmetic]) -> None:
    for row in REPORT.measured:
        if row.instruction.is_integer:
            continue
        model = model_of(row)
        other = model.with_arithmetic(lambda has: change(has) if isinstance(has, FloatArithmetic) else has)
        if other != model:
            asked, d = shown(row)
            if converts(row) and "result_bits" not in row.evidence:  # what verification asked at random told it apart
                asked = joined([request for _, request in batches(row.instruction, 2000, 0)])
                d = evaluate(model, row.instruction, asked)
            assert (evaluate(other, row.instruction, asked) != d).any(), row.name


def converts(row: Row) -> bool:
    """Whether sums below the last one are kept in another format: their bits are that format's, and need no evidence."""
    root = model_of(row).root
    return any(node.arithmetic.result != root.arithmetic.result for node in root.nodes())


def test_evidence_is_there_for_every_float() -> None:
    floats = [row for row in REPORT.measured if not row.instruction.is_integer]
    assert [row.name for row in floats if converts(row)] == ["mma.sync.m8n8k4.f16.f16.f16.f16"]
    for row in floats:
        expected = {"order", "nan", "add_result_rounding" if converts(row) else "result_bits"}
        assert expected <= set(row.evidence), row.name


FP8_WGMMA = [name for name in PROBED if re.fullmatch(r"wgmma\..*\.f32\.e[45]m[32]\.e[45]m[32](\.rs)?", name)]
FP8_MMA = [name for name in PROBED if re.fullmatch(r"mma\.sync\..*\.f32\.e[45]m[32]\.e[45]m[32]\.f32", name)]


@pytest.mark.parametrize("name", FP8_WGMMA)
def test_wgmma_of_fp8_keeps_13_bits(name: str) -> None:
    row = ROWS[name]
    assert {opcodes.stem(opcode) for opcode in row.opcodes} == {"QGMMA"}
    bits = row.findings["effective_bits"]
    assert (bits.value, bits.bound) == (13, "exact")
    assert answer(name, C_OF_SAGE) == 0x40407000


@pytest.mark.parametrize("name", FP8_MMA)
def test_mma_sync_of_fp8_is_the_f16_unit_and_an_own_add_of_c(name: str) -> None:
    row = ROWS[name]
    assert {opcodes.stem(opcode) for opcode in row.opcodes} == {"HMMA"}
    assert not any(opcode.startswith(("QMMA", "QGMMA")) for opcode, _ in row.lowering)
    assert "FADD" in dict(row.lowering)
    assert str(row.findings["addend"].value).startswith("separate add")
    assert row.model is not None
    assert row.model.root.has_addend
    assert row.model.root.products == ()
    assert answer(name, C_OF_SAGE) == C_OF_SAGE


def test_fp8_rows_are_all_there() -> None:
    assert len(FP8_WGMMA) >= 16
    assert len(FP8_MMA) >= 8


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("what", PRIVATE)
def test_nothing_private_is_in_it(what: str, gpu: str) -> None:
    found = re.search(PRIVATE[what], text_of(gpu))
    assert found is None, f"{what}: {found}"


@pytest.mark.parametrize("name", recorded())
def test_file_is_small_and_as_the_writer_has_it(tmp_path: Path, name: str) -> None:
    file, again = FOLDER / f"{name}.json", tmp_path / "again.json"
    report = Report.load(name)
    report.save(again)
    assert Report.load(again) == report
    assert again.read_bytes() == file.read_bytes()
    assert again.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("width", [80, 120, 160])
def test_show_prints_it(width: int) -> None:
    result = CliRunner(env={"COLUMNS": str(width)}).invoke(main, ["show", "h200"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("NVIDIA H200: FP8 wgmma accumulates in 13 fraction bits (e8m13)")
    assert "13 (e8m13)" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= width


@pytest.mark.parametrize("name", PROBED[:: len(PROBED) // 16])
def test_show_prints_a_row(name: str) -> None:
    result = CliRunner(env={"COLUMNS": "100"}).invoke(main, ["show", "h200", name])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{name}  {ROWS[name].status}")
    assert max(map(len, result.stdout.splitlines())) <= 100

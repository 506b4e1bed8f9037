"""The recorded reports: complete, confirmed, and explained bit for bit by their models and by the published ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from accprobe.build import probes
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import catalog
from accprobe.model.published import known_models
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum
from accprobe.operands.request import Request, joined
from accprobe.report.evidence import load_with_evidence
from accprobe.report.recorded import find, recorded
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.sass import opcodes
from accprobe.verify.outcome import CODE_PAIRS, COVERING, TileCoverage
from accprobe.verify.random import batches

GPUS, CPUS = ("h100", "h200"), ("cpu-zen4", "cpu-emerald-rapids")
PRIVATE = {
    "a path": r"(?<![\w.])/(?:home|root|tmp|usr|work|mnt|opt|var)\b|[A-Za-z]:\\\\",
    "a UUID": r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|GPU-[0-9a-fA-F]{8}",
    "a bus address": r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9]\b",
    "an IP address": r"\b(?:10|127|172|192)\.\d+\.\d+\.\d+\b",
    "a host name": r"hostname|localhost|\.local\b|\bip-\d+-\d+|\w@\w",
}
"""Regular expressions of strings that name the machine that was measured; no report may have one."""

REPORTS = {name: load_with_evidence(name) for name in (*GPUS, *CPUS)}
REPORT = REPORTS["h200"]
ROWS = {row.name: row for row in REPORT.instructions}
PROBED = [inst.name for inst in catalog("sm_90a") if probes.why_no_probe(inst) is None]
FAMILIES = ("mma.sync.", "mma.sp.", "wgmma.m", "wgmma.sp.")

MOST_BYTES = 4 << 20
C_OF_SAGE = 0x404073FF
"""3.0070798 (SageAttention2): it returns unchanged where the sum keeps 23 fraction bits."""


def rows_of(family: str) -> list[Row]:
    return [row for gpu in GPUS for row in REPORTS[gpu].instructions if row.name.startswith(family)]


def model_of(row: Row) -> DotModel:
    assert row.model is not None
    return row.model


def result_of_c(name: str, c: int) -> int:
    """Return the result of the report's model for A = B = 0 and this C."""
    inst = ROWS[name].instruction
    request = replace(Request.zeros(inst, 1), c=np.array([c], inst.c.dtype))
    return int(evaluate(model_of(ROWS[name]), inst, request)[0])


def evidence_of(row: Row) -> tuple[Request, Bits]:
    """Return every exchange of the evidence as one request, and D."""
    inst = row.instruction
    seen = list(dict.fromkeys(x for some in row.evidence.values() for x in some))
    return joined([x.request(inst) for x in seen]), np.concatenate([x.result(inst) for x in seen])


@pytest.mark.parametrize("name", recorded())
def test_file_is_small_names_no_machine_and_is_as_the_writer_has_it(name: str) -> None:
    text = find(name).read_text(encoding="utf-8")
    assert Report.load(name).dumps() == text
    assert len(text) < MOST_BYTES
    assert not {what for what, pattern in PRIVATE.items() if re.search(pattern, text)}
    assert Report.load(name).device.kind == ("cpu" if name in CPUS else "cuda")


@pytest.mark.parametrize("gpu", GPUS)
def test_products_are_confirmed_or_state_a_reason(gpu: str) -> None:
    products = Report.load(f"products-{gpu}").products
    assert [row.shape for row in products if row.status != "confirmed"] == ["1x8x11528"]
    for row in products:
        assert row.verification is not None
        assert row.reason or (row.verification.mismatches, row.verification.compared >= 1_000_000) == (0, True)


@pytest.mark.parametrize("gpu", GPUS)
def test_every_instruction_of_a_gpu_is_measured(gpu: str) -> None:
    report = REPORTS[gpu]
    assert (report.device.architecture, report.device.reason) == ("sm_90a", "")
    assert [row.name for row in report.instructions] == [inst.name for inst in catalog("sm_90a")] == PROBED
    assert [row.name for row in report.measured] == PROBED
    assert {row.opcode_source for row in report.measured} in ({"nvdisasm"}, {"ncu"})
    assert all(row.cubin_sha256 for row in report.measured)


def test_both_gpus_have_the_same_machine_code_and_findings() -> None:
    one, other = (REPORTS[gpu] for gpu in GPUS)
    assert (one.environment, one.seed) == (other.environment, other.seed)
    for row, same in zip(one.instructions, other.instructions, strict=True):
        assert (row.name, row.cubin_sha256, row.findings) == (same.name, same.cubin_sha256, same.findings)
    timed_or_hashed = {"tflops", "seconds", "compile_seconds", "cubin_sha256"}
    for swept, same_sweep in zip(one.sweeps, other.sweeps, strict=True):
        assert swept.model_dump(exclude=timed_or_hashed) == same_sweep.model_dump(exclude=timed_or_hashed)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_confirmed_by_a_million_dot_products_each(family: str) -> None:
    for row in rows_of(family):
        assert (row.name, row.status, row.reason, row.unstable) == (row.name, "confirmed", "", 0)
        done = row.verification
        assert done is not None
        assert done.events is not None
        assert done.random >= 10**6
        assert (done.mismatches, done.contradicting, done.counterexample) == (0, 0, None)
        assert sum(done.kinds.values()) == done.compared < done.results
        assert min(count for kind, count in done.kinds.items() if kind not in (COVERING, CODE_PAIRS)) >= 10**4
        assert done.tile == TileCoverage(row.instruction.m * row.instruction.n, row.instruction.m * row.instruction.n)
        assert (done.events.hit, done.events.missing) == (done.events.possible, ())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_surviving_alternative_makes_its_field_undetermined(family: str) -> None:
    for row in rows_of(family):
        assert row.alternatives is not None
        assert row.alternatives.tested
        for alternative in row.alternatives.surviving:
            finding = row.findings[alternative.partition(" ")[0]]
            assert (row.name, finding.bound, len(finding.candidates) >= 2) == (row.name, "undetermined", True)


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_and_published_models_give_every_result_of_the_evidence(family: str) -> None:
    for row in rows_of(family):
        known = known_models("h200").get(row.instruction)
        assert known or row.instruction.sparse, row.name
        assert row.evidence or row.instruction.is_integer, row.name
        for model in (row.model, known and known.model) if row.evidence else ():
            if model:
                request, d = evidence_of(row)
                np.testing.assert_array_equal(evaluate(model, row.instruction, request), d, err_msg=row.name)


def aligned(has: FloatArithmetic, more: int) -> FloatArithmetic:
    return has if has.alignment_bits is None else replace(has, alignment_bits=has.alignment_bits + more)


NEIGHBOURS: dict[str, Callable[[FloatArithmetic], FloatArithmetic]] = {
    "a bit more aligned": lambda has: aligned(has, 1),
    "a bit less aligned": lambda has: aligned(has, -1),
    "a bit less in results": lambda has: replace(has, result_bits=has.result_bits - 1),
    "another rounding": lambda has: replace(has, result_rounding="RNE" if has.result_rounding == "RZ" else "RZ"),
}


@pytest.mark.parametrize("change", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_evidence_contradicts_a_model_that_differs_a_little(change: Callable[[FloatArithmetic], FloatArithmetic]) -> None:
    for row in REPORT.measured:
        if row.instruction.is_integer:
            continue
        model = model_of(row)
        other = model.with_arithmetic(lambda has: change(has) if isinstance(has, FloatArithmetic) else has)
        if other != model:
            request, d = evidence_of(row)
            if converts(row) and "result_bits" not in row.evidence:  # random operands decided it
                request = joined([request for _, request in batches(row.instruction, 2000, 0)])
                d = evaluate(model, row.instruction, request)
            assert (evaluate(other, row.instruction, request) != d).any(), row.name


def converts(row: Row) -> bool:
    """Return whether inner sums are kept in another format: their bits are that format's, and need no evidence."""
    root = model_of(row).root
    return any(node.arithmetic.result != root.arithmetic.result for node in root.nodes())


def test_every_float_row_has_evidence() -> None:
    for row in REPORT.measured:
        if not row.instruction.is_integer:
            expected = {"order", "nan", "add_result_rounding" if converts(row) else "result_bits"}
            assert expected <= set(row.evidence), row.name


FP8_WGMMA = [name for name in PROBED if re.fullmatch(r"wgmma\..*\.f32\.e[45]m[32]\.e[45]m[32](\.rs)?", name)]
FP8_MMA = [name for name in PROBED if re.fullmatch(r"mma\.sync\..*\.f32\.e[45]m[32]\.e[45]m[32]\.f32", name)]


def test_fp8_wgmma_keeps_13_bits() -> None:
    assert len(FP8_WGMMA) >= 16
    for name in FP8_WGMMA:
        row = ROWS[name]
        assert {opcodes.stem(opcode) for opcode in row.opcodes} == {"QGMMA"}
        bits = row.findings["effective_bits"]
        assert (bits.value, bits.bound, result_of_c(name, C_OF_SAGE)) == (13, "exact", 0x40407000)


def test_fp8_mma_sync_runs_the_f16_unit_and_adds_c_separately() -> None:
    assert len(FP8_MMA) >= 8
    for name in FP8_MMA:
        row, root = ROWS[name], model_of(ROWS[name]).root
        assert {opcodes.stem(opcode) for opcode in row.opcodes} == {"HMMA"}
        assert "FADD" in dict(row.lowering)
        assert str(row.findings["addend"].value).startswith("separate add")
        assert (root.has_addend, root.products, result_of_c(name, C_OF_SAGE)) == (True, (), C_OF_SAGE)


@pytest.mark.parametrize(("name", "dots"), [("cpu-zen4", 100_000_000), ("cpu-emerald-rapids", 16_384)])
def test_processors_are_confirmed(name: str, dots: int) -> None:
    for row in REPORTS[name].measured:
        assert (row.status, row.opcodes) == ("confirmed", (row.instruction.mnemonic,))
        assert row.verification is not None
        assert (row.verification.mismatches, row.verification.contradicting) == (0, 0)
        assert row.verification.random >= dots
        request, d = evidence_of(row)
        np.testing.assert_array_equal(evaluate(model_of(row), row.instruction, request), d)


def test_vdpbf16ps_is_two_fused_multiply_adds_and_the_odd_one_is_first() -> None:
    (row,) = [row for row in REPORTS["cpu-zen4"].measured if row.opcodes == ("VDPBF16PS",)]
    found = {name: finding.value for name, finding in row.findings.items() if finding.bound == "exact"}
    assert (found["order"], found["result_rounding"], found["alignment_bits"]) == ("[[c 1] 0]", "RNE", None)
    assert {found[f"subnormal_{what}"] for what in ("operands", "addend", "results")} == {"flushed"}


def test_amx_adds_even_and_odd_products_in_separate_chains_and_c_last() -> None:
    (row,) = [row for row in REPORTS["cpu-emerald-rapids"].measured if row.opcodes == ("TDPBF16PS",)]
    together, c = model_of(row).root.terms
    assert c == Addend()
    assert isinstance(together, FusedSum)
    chains = [[k for node in part.nodes() for k in sorted(node.products)] for part in together.children]
    assert chains == [list(range(0, 32, 2)), list(range(1, 32, 2))]
    assert not any(node.has_addend for node in together.nodes())

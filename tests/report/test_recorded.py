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
from accprobe.model.tree import FloatArithmetic
from accprobe.operands.request import Request, joined
from accprobe.records.rows import Row
from accprobe.records.verification import CODE_PAIRS, COVERING, TileCoverage
from accprobe.report.evidence import load_with_evidence
from accprobe.report.recorded import find, recorded
from accprobe.report.report import Report
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
PROBED = [inst.name for inst in catalog("sm_90a") if probes.find_probe(inst)]
FAMILIES = ("mma.sync.", "mma.sp.", "wgmma.m", "wgmma.sp.")

MOST_BYTES = 4 << 20


def rows_of(family: str) -> list[Row]:
    return [row for gpu in GPUS for row in REPORTS[gpu].instructions if row.name.startswith(family)]


def evidence_of(row: Row) -> tuple[Request, Bits]:
    """Return every exchange of the evidence as one request, and D."""
    inst = row.instruction
    seen = list(dict.fromkeys(x for some in row.evidence.values() for x in some))
    return joined([x.request(inst) for x in seen]), np.concatenate([x.result(inst) for x in seen])


@pytest.mark.parametrize("name", recorded())
def test_file_is_small_names_no_machine_and_is_as_the_writer_has_it(name: str) -> None:
    text, report = find(name).read_text(encoding="utf-8"), Report.load(name)
    assert report.dumps() == text
    assert len(text) < MOST_BYTES
    assert not {what for what, pattern in PRIVATE.items() if re.search(pattern, text)}
    assert report.device.kind == ("cpu" if name in CPUS else "cuda")


@pytest.mark.parametrize("gpu", GPUS)
def test_products_are_confirmed_or_state_a_reason(gpu: str) -> None:
    products = Report.load(f"products-{gpu}").products
    assert {row.shape for row in products if row.status != "confirmed"} <= {"1x8x11528"}
    for row in products:
        enough = 1 << 14 if row.shape == "1x8x11528" else 1 << 20  # its 8 results of a call leave no time for more
        assert row.reason or (row.verification.mismatches, row.verification.compared >= enough) == (0, True)


@pytest.mark.parametrize("gpu", GPUS)
def test_every_instruction_of_a_gpu_is_measured(gpu: str) -> None:
    report = REPORTS[gpu]
    assert (report.device.architecture, report.device.reason) == ("sm_90a", "")
    assert [row.name for row in report.instructions] == [inst.name for inst in catalog("sm_90a")] == PROBED
    assert [row.name for row in report.measured] == PROBED
    assert {row.opcode_source for row in report.measured} in ({"nvdisasm"}, {"ncu"})
    assert all(row.cubin_sha256 for row in report.measured)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_confirmed_by_a_million_dot_products_each(family: str) -> None:
    for row in rows_of(family):
        assert (row.name, row.status, row.reason, row.unstable) == (row.name, "confirmed", "", 0)
        done = row.verification
        assert done.random >= 10**6
        assert (done.mismatches, done.contradicting, done.counterexample) == (0, 0, None)
        assert sum(done.kinds.values()) == done.compared < done.results
        assert min(count for kind, count in done.kinds.items() if kind not in (COVERING, CODE_PAIRS)) >= 10**4
        assert done.tile == TileCoverage(row.instruction.m * row.instruction.n, row.instruction.m * row.instruction.n)
        assert (done.events.hit, done.events.missing) == (done.events.possible, ())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_surviving_alternative_makes_its_field_undetermined(family: str) -> None:
    for row in rows_of(family):
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
        model = row.model
        other = model.with_arithmetic(lambda has: change(has) if isinstance(has, FloatArithmetic) else has)
        if other != model:
            request, d = evidence_of(row)
            if converts(row) and "result_bits" not in row.evidence:  # random operands decided it
                request = joined([request for _, request in batches(row.instruction, 2000, 0)])
                d = evaluate(model, row.instruction, request)
            assert (evaluate(other, row.instruction, request) != d).any(), row.name


def converts(row: Row) -> bool:
    """Return whether inner sums are kept in another format: their bits are that format's, and need no evidence."""
    root = row.model.root
    return any(node.arithmetic.result != root.arithmetic.result for node in root.nodes())


def test_every_float_row_has_evidence() -> None:
    for row in REPORT.measured:
        if not row.instruction.is_integer:
            expected = {"order", "nan", "add_result_rounding" if converts(row) else "result_bits"}
            assert expected <= set(row.evidence), row.name


@pytest.mark.parametrize(("name", "dots"), [("cpu-zen4", 100_000_000), ("cpu-emerald-rapids", 16_384)])
def test_processors_are_confirmed(name: str, dots: int) -> None:
    for row in REPORTS[name].measured:
        assert (row.status, row.opcodes) == ("confirmed", (row.instruction.mnemonic,))
        assert (row.verification.mismatches, row.verification.contradicting) == (0, 0)
        assert row.verification.random >= dots
        request, d = evidence_of(row)
        np.testing.assert_array_equal(evaluate(row.model, row.instruction, request), d)

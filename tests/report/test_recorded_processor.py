"""The report of a Zen 4: what it found of the processor's own dot products, and on how much."""

import re

import numpy as np
import pytest
from private import PRIVATE

from accprobe.evaluate.evaluator import evaluate
from accprobe.model.tree import Addend, FusedSum
from accprobe.operands.request import joined
from accprobe.report.evidence import load_with_evidence
from accprobe.report.recorded import find
from accprobe.report.rows import Row

NAME = "cpu-zen4"
REPORT = load_with_evidence(NAME)
DOTS = 100_000_000


def test_it_is_of_a_zen_4_and_names_no_machine() -> None:
    """AMD family 19h, models 10h to 1Fh (AMD, Processor Programming Reference for family 19h model 11h)."""
    assert (REPORT.device.kind, REPORT.device.architecture) == ("cpu", "x86_64")
    assert (REPORT.device.facts["cpu_family"], REPORT.device.facts["model"]) == (0x19, 0x11)
    text = find(NAME).read_text(encoding="utf-8")
    assert not {what for what, pattern in PRIVATE.items() if re.search(pattern, text)}


@pytest.mark.parametrize("row", REPORT.measured, ids=lambda row: row.opcodes[0])
def test_every_row_is_confirmed_on_as_many_dot_products(row: Row) -> None:
    assert (row.status, row.opcodes) == ("confirmed", (row.instruction.mnemonic,))
    assert row.verification
    assert row.verification.random >= DOTS
    assert row.verification.mismatches == row.verification.contradicting == 0
    assert row.alternatives
    assert (row.alternatives.tested > 0, row.alternatives.surviving) == (True, ())
    assert row.model
    seen = [exchange for some in row.evidence.values() for exchange in some]
    asked = joined([exchange.request(row.instruction) for exchange in seen])
    answers = np.concatenate([exchange.answer(row.instruction) for exchange in seen])
    np.testing.assert_array_equal(evaluate(row.model, row.instruction, asked), answers)


def test_bf16_is_two_fused_multiply_adds_and_the_odd_one_comes_first() -> None:
    (row,) = [row for row in REPORT.measured if row.opcodes == ("VDPBF16PS",)]
    found = {name: (finding.value, finding.bound) for name, finding in row.findings.items()}
    assert found["order"] == ("[[c 1] 0]", "exact")
    assert found["result_rounding"] == ("RNE", "exact")
    assert found["alignment_bits"] == (None, "exact")
    assert {found[f"subnormal_{what}"] for what in ("operands", "addend", "results")} == {("flushed", "exact")}
    assert found["control"] == ("ignored", "exact")


AMX = load_with_evidence("cpu-emerald-rapids")


def test_an_emerald_rapids_is_confirmed_and_names_no_machine() -> None:
    """Intel family 6, model CFh."""
    assert (AMX.device.kind, AMX.device.facts["cpu_family"], AMX.device.facts["model"]) == ("cpu", 6, 0xCF)
    text = find("cpu-emerald-rapids").read_text(encoding="utf-8")
    assert not {what for what, pattern in PRIVATE.items() if re.search(pattern, text)}
    for row in AMX.measured:
        assert (row.opcodes, row.status) == ((row.instruction.mnemonic,), "confirmed")
        assert row.verification
        assert (row.verification.mismatches, row.verification.contradicting) == (0, 0)


def test_amx_adds_even_and_odd_products_apart_from_zero_and_c_last() -> None:
    (row,) = [row for row in AMX.measured if row.opcodes == ("TDPBF16PS",)]
    assert row.model
    assert row.findings["result_rounding"].value == "RNE"
    assert row.model.subnormal_addend == "flushed"
    together, c = row.model.root.terms
    assert c == Addend()
    assert isinstance(together, FusedSum)
    chains = [[k for node in part.nodes() for k in sorted(node.products)] for part in together.children]
    assert chains == [list(range(0, 32, 2)), list(range(1, 32, 2))]
    assert not any(node.has_addend for node in together.nodes())

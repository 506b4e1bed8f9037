"""Inference of planted models compared with the planted fields; published models; findings made from a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from plants import Plant, instruction

from accprobe.devices.simulated import SimulatedDevice
from accprobe.infer.distinguishing import Results, Search
from accprobe.infer.query_log import QueryLog
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import parse
from accprobe.model.notation import parse_order
from accprobe.model.published import known_models
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic, chain
from accprobe.records.findings import Finding
from accprobe.survey.row import settle
from accprobe.verify.bulk import verify

FP8 = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
F16 = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
CONVERTED = parse("mma.sync.m16n8k32.f32.e4m3.e4m3.f32")
F64 = parse("mma.sync.m8n8k4.f64.f64.f64.f64")
INT8 = instruction(32, "s32", "s8", "s8", "s32")
KNOWN = {inst: known_models("h100")[inst].model for inst in (FP8, F16, CONVERTED, F64)}
TWO_SUMS = DotModel(chain([range(8), range(8, 16)], KNOWN[F16].root.arithmetic))
S32 = FORMATS["s32"]

# Features that need no candidates: if no order is observable, any is possible.
OF_THE_TREE = ("order", "products_per_sum", "addend")


def found(model: DotModel, **bounds: str) -> dict[str, Finding]:
    """Return findings of the fields of an arithmetic, exact unless `bounds` say otherwise."""
    arithmetic = model.root.arithmetic
    values = {field.name: getattr(arithmetic, field.name) for field in fields(arithmetic) if field.name != "result"}
    values["order"] = model.order
    return {name: Finding(value, bounds.get(name, "exact")) for name, value in values.items()}


def separating(search: Search, alternative: DotModel, fields: Sequence[str], n: int = 1024) -> Results | None:
    """Return dot products, of n made for each field, on which the alternative is not the model; None if there are none."""
    for results in search.made_for(alternative, fields, n).values():
        differ = results.mismatches(alternative)
        if len(differ):
            return results.subset(differ)
    return None


def outcome(planted: Plant) -> dict[str, Finding]:
    """Return the findings. No operand may contradict the model, nor more than one distinguish it from a surviving alternative.

    A single one of 1,024 is allowed: accprobe makes 5,120 for an alternative, which may miss a difference in one of 10,000.
    """
    inst = planted.instruction
    device = SimulatedDevice({inst: planted.model})
    result, falsification = settle(QueryLog(device, inst))
    assert not falsification.contradictions.count
    verification = verify(device, inst, result.model, dots=4000, seed=11)
    assert not verification.mismatches, verification.counterexample
    for alternative in falsification.surviving:
        search = Search(inst, planted.model, seed=2026)
        names = [field for field, _ in alternative.changes]
        found = separating(search, alternative.model, names)
        assert found is None or len(found) == 1, f"{alternative.field} {alternative}"
    for feature, finding in result.findings.items():
        assert finding.bound != "undetermined" or finding.candidates or feature in OF_THE_TREE, (feature, finding)
    return result.findings


def assert_true(findings: dict[str, Finding], planted: Plant) -> None:
    """Assert that exact findings are right, and that lower bounds and candidates include the planted value."""
    arithmetics: dict[str, tuple[Arithmetic, int]] = {}
    for node in planted.model.root.nodes():
        prefix = "" if node.products else "add_"
        arithmetics[prefix] = node.arithmetic, max(len(node.terms), arithmetics.get(prefix, (None, 0))[1])
    for prefix, (arithmetic, terms) in arithmetics.items():
        for name, value in vars(arithmetic).items():
            finding = findings.get(prefix + name)
            if finding is None or (name in ("alignment_bits", "alignment_rounding") and terms < 3):
                continue  # with two terms only the rounding shows it: other pairs of values are the same function
            shown = f"0x{value:0{arithmetic.result.storage_bits // 4}X}" if name == "nan" else value
            assert_includes(prefix + name, finding, shown)
    for name in ("subnormal_operands", "subnormal_addend"):
        if name in findings:
            assert_includes(name, findings[name], getattr(planted.model, name))
    if findings["order"].bound == "exact":
        assert findings["order"].value == planted.model.order


def assert_includes(feature: str, finding: Finding, planted: object) -> None:
    if finding.bound == "exact":
        assert finding.value == planted, (feature, finding)
    elif finding.bound == "at_least":
        assert finding.value <= planted, (feature, finding)
    elif len(finding.candidates) > 1:
        most = [int(str(level).removeprefix("at most ")) for level in finding.candidates if str(level).startswith("at most ")]
        below = planted is None or "any" in finding.candidates or any(planted <= level for level in most)
        of_floor = feature.removeprefix("add_") == "min_exponent"
        word = "none" if planted is None else planted
        assert word in finding.candidates or (of_floor and below), (feature, finding)


def plant(formats: str, k: int, order: str, sums: str, subnormals: str, rules: dict[str, object]) -> Plant:
    """Return a planted model.

    formats: of operands and result. order: `@1` adds only results and C. subnormals: of A and B, of C.
    sums: bits and rounding of results, bits and rounding of the alignment.
    """
    operand, result = formats.split()
    bits, rounding, alignment, terms = sums.split()
    summing = FloatArithmetic(FORMATS[result], int(bits), rounding, int(alignment), terms, **rules)
    adding = FloatArithmetic(summing.result, summing.result.mantissa_bits, "RNE", None, zero_sign="ieee", nan=summing.nan)
    root = parse_order(order, (summing, adding) if "@" in order else (summing,))
    return Plant(instruction(k, result, operand, operand, result), DotModel(root, *subnormals.split()))

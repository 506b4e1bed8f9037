"""What is inferred of a planted model, held against it."""

from __future__ import annotations

from collections.abc import Iterable

from planted import Planted, instruction
from separating import separating

from accprobe.devices.simulated import SimulatedDevice
from accprobe.infer.alternatives.alternative import Alternative
from accprobe.infer.distinguishing import Search
from accprobe.infer.findings import Finding
from accprobe.isa.formats import FORMATS
from accprobe.model.notation import parse_order
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic
from accprobe.survey.pipeline import settle
from accprobe.verify.random import verify


def outcome(planted: Planted) -> dict[str, Finding]:
    """The findings as a report has them. No operand may contradict the model, nor a value that the findings leave open."""
    inst = planted.instruction
    device = SimulatedDevice({inst: planted.model})
    result, falsification = settle(device, inst)
    assert result.model is not None
    assert not falsification.contradictions.count
    verification = verify(device, inst, result.model, dots=4000, seed=11)
    assert not verification.mismatches, verification.counterexample
    assert_cannot_be_told(planted, falsification.surviving)
    for feature, finding in result.findings.items():
        assert finding.bound != "undetermined" or finding.candidates or feature in OF_THE_TREE, (feature, finding)
    return result.findings


def assert_cannot_be_told(planted: Planted, surviving: Iterable[Alternative]) -> None:
    """Fresh operands, made for the fields in which they differ, do not tell the survivors from the truth either."""
    for alternative in surviving:
        search = Search(planted.instruction, planted.model, seed=2026)
        fields = [field for field, _ in alternative.changes]
        assert separating(search, alternative.model, fields) is None, f"{alternative.field} {alternative}"


OF_THE_TREE = ("order", "products_per_sum", "addend")
"""Features that need no values left: where no order shows, any is."""


def arithmetics(model: DotModel) -> dict[str, tuple[Arithmetic, int]]:
    """The planted arithmetic of each role and the terms of its longest sum, by the prefix of its findings."""
    found: dict[str, tuple[Arithmetic, int]] = {}
    for node in model.root.nodes():
        prefix = "" if node.products else "add_"
        found[prefix] = node.arithmetic, max(len(node.terms), found.get(prefix, (None, 0))[1])
    return found


def assert_true(findings: dict[str, Finding], planted: Planted) -> None:
    """Nothing said to be exact is wrong, and every lower bound and every list of values left holds."""
    for prefix, (arithmetic, terms) in arithmetics(planted.model).items():
        for name, value in vars(arithmetic).items():
            finding = findings.get(prefix + name)
            if finding is None or (name in ("alignment_bits", "alignment_rounding") and terms < 3):
                continue  # of two terms it is seen through the rounding alone: other pairs of values are the same function
            shown = f"0x{value:0{arithmetic.result.storage_bits // 4}X}" if name == "nan" else value
            assert_holds(prefix + name, finding, shown)
    for name in ("subnormal_operands", "subnormal_addend", "addend_bits"):
        if name in findings:
            assert_holds(name, findings[name], getattr(planted.model, name))
    if findings["order"].bound == "exact":
        assert findings["order"].value == planted.model.order


def assert_holds(feature: str, finding: Finding, planted: object) -> None:
    if finding.bound == "exact":
        assert finding.value == planted, (feature, finding)
    elif finding.bound == "at_least":
        assert finding.value <= planted, (feature, finding)
    elif len(finding.candidates) > 1:
        most = [int(left.removeprefix("at most ")) for left in finding.candidates if str(left).startswith("at most ")]
        below = planted is None or "any" in finding.candidates or any(planted <= level for level in most)
        least = [int(left.removesuffix(" or more")) for left in finding.candidates if str(left).endswith(" or more")]
        above = any(planted is None or planted >= bits for bits in least)
        of_floor = feature.removeprefix("add_") == "min_exponent"
        assert planted in finding.candidates or above or (of_floor and below), (feature, finding)


def plant(formats: str, k: int, order: str, sums: str, subnormals: str, rules: dict[str, object]) -> Planted:
    """formats: of operands and result. order: `@1` are sums that add results and C alone. subnormals: of A and B, of C.

    sums: bits and rounding of results, bits and cut of the alignment.
    """
    operand, result = formats.split()
    bits, rounding, alignment, cut = sums.split()
    summing = FloatArithmetic(FORMATS[result], int(bits), rounding, int(alignment), cut, **rules)  # type: ignore[arg-type]
    adding = FloatArithmetic(summing.result, summing.result.mantissa_bits, "RNE", None, zero_sign="ieee", nan=summing.nan)
    root = parse_order(order, (summing, adding) if "@" in order else (summing,))
    return Planted(instruction(k, result, operand, operand, result), DotModel(root, *subnormals.split()))  # type: ignore[arg-type]

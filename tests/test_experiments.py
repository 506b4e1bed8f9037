"""Planted features must be found again, on devices that have nothing published about them."""

from __future__ import annotations

from hypothesis import given, settings
from planted import Planted, float_models, integer_models

from accprobe.devices.simulated import SimulatedDevice
from accprobe.experiments import characterise
from accprobe.experiments.findings import Characterisation
from accprobe.model import Arithmetic, DotModel
from accprobe.verify import verify


def characterised(planted: Planted) -> Characterisation:
    device = SimulatedDevice({planted.instruction: planted.model})
    result = characterise(device, planted.instruction)
    outcome = verify(device, planted.instruction, result.model, dots=4000, seed=11)
    assert outcome.mismatches == 0, (result.model.order, outcome.counterexample)
    return result


def arithmetics(model: DotModel) -> dict[str, tuple[Arithmetic, int]]:
    """The planted arithmetic of each role and the terms of its longest sum, by the prefix of its findings."""
    found: dict[str, tuple[Arithmetic, int]] = {}
    for node in model.root.nodes():
        prefix = "" if node.products else "add_"
        found[prefix] = node.arithmetic, max(len(node.terms), found.get(prefix, (None, 0))[1])
    return found


def assert_true(result: Characterisation, planted: Planted) -> None:
    """Nothing said to be exact is wrong, and every lower bound and every list of values left holds."""
    for prefix, (arithmetic, terms) in arithmetics(planted.model).items():
        for feature, finding in result.findings.items():
            name = feature.removeprefix(prefix) if prefix else feature
            if not feature.startswith(prefix) or not hasattr(arithmetic, name):
                continue
            value = getattr(arithmetic, name)
            value = f"0x{value:0{arithmetic.result.storage_bits // 4}X}" if name == "nan" else value
            if name in ("alignment_bits", "alignment_rounding") and terms < 3:
                continue  # seen through the rounding alone: other pairs of values are the same function
            if finding.bound == "exact":
                assert finding.value == value, (feature, finding, value)
            elif finding.bound == "at least":
                assert finding.value <= value, (feature, finding, value)
            elif name != "min_exponent":
                assert value in finding.left, (feature, finding, value)
    for name in ("subnormal_operands", "subnormal_addend"):
        finding = result.findings[name]
        assert getattr(planted.model, name) in (finding.left or (finding.value,))
    if result.findings["order"].bound == "exact":
        assert result.findings["order"].value == planted.model.order


@settings(max_examples=50, deadline=None, derandomize=True)
@given(float_models(plain=True))
def test_sums_bits_and_roundings(planted: Planted) -> None:
    assert_true(characterised(planted), planted)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(float_models())
def test_any_features(planted: Planted) -> None:
    assert_true(characterised(planted), planted)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(integer_models())
def test_integers(planted: Planted) -> None:
    result = characterised(planted)
    assert result.findings["overflow"].value == planted.model.root.arithmetic.overflow
    assert result.findings["result_bits"].value == 32

"""Planted features must be found again, on devices that have nothing published about them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import Planted, float_models, instruction, integer_models

from accprobe.devices.simulated import SimulatedDevice
from accprobe.experiments import characterise
from accprobe.experiments.findings import Characterisation
from accprobe.formats import FORMATS
from accprobe.model import Arithmetic, DotModel, FloatArithmetic, chain
from accprobe.verify import verify


def characterised(planted: Planted) -> Characterisation:
    device = SimulatedDevice({planted.instruction: planted.model})
    result = characterise(device, planted.instruction)
    outcome = verify(device, planted.instruction, result.model, dots=4000, seed=11)
    assert outcome.mismatches == 0, (result.model.order, outcome.counterexample)
    return result


def arithmetics(model: DotModel) -> dict[str, Arithmetic]:
    """The planted arithmetic of each role, by the prefix of its findings."""
    found: dict[str, Arithmetic] = {}
    for node in model.root.nodes():
        found["" if node.products else "add_"] = node.arithmetic
    return found


def assert_true(result: Characterisation, planted: Planted) -> None:
    """Nothing said to be exact is wrong, and every lower bound and every list of values left holds."""
    for prefix, arithmetic in arithmetics(planted.model).items():
        for feature, finding in result.findings.items():
            name = feature.removeprefix(prefix) if prefix else feature
            if not feature.startswith(prefix) or not hasattr(arithmetic, name):
                continue
            value = getattr(arithmetic, name)
            value = f"0x{value:0{arithmetic.result.storage_bits // 4}X}" if name == "nan" else value
            if name == "alignment_bits" and finding.value is None:
                continue  # as good as exact: no rounding shows the cut, which `characterised` has verified
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


@settings(max_examples=60, deadline=None)
@given(float_models(plain=True))
def test_sums_bits_and_roundings(planted: Planted) -> None:
    assert_true(characterised(planted), planted)


@settings(max_examples=60, deadline=None)
@given(float_models())
def test_any_features(planted: Planted) -> None:
    assert_true(characterised(planted), planted)

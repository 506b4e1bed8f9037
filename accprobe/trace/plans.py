"""The arithmetic of a recorded matrix product, from its operands and its result.

A product that can be called again is probed (`accprobe.gemm.characterise`). Known plans are also tried on the recorded words
(`accprobe.gemm.explain`). Either way the model has to give the recorded words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.adapter import CallableAdapter
from accprobe.callables.arrays import TorchArrays
from accprobe.callables.spec import Spec
from accprobe.errors import AccprobeError
from accprobe.gemm.blackbox import Call
from accprobe.gemm.characterise import characterise
from accprobe.gemm.explain import explain
from accprobe.gemm.findings import findings
from accprobe.gemm.known_plans import is_f64_reference
from accprobe.gemm.verification import count_wrong, evaluator_of
from accprobe.isa.formats import FORMATS
from accprobe.model.product import ProductModel

_FRESH = {"cpu": 1 << 13, "cuda": 1 << 16}
"""Random outputs on which a probed model is checked."""

MOST_INFERRED = 2
"""Plans that are inferred for operations with one key."""

EXPLAIN_AT_MOST = 1 << 28
"""Maximum number of products to add to compare a plan with the results."""

MOST_SECONDS, KNOWN_SECONDS = 30, 10
"""Seconds for the plan of one product, and for known plans of a product that can also be probed."""


class OutOfTime(AccprobeError):
    """The plan of a product is not found in time."""


class _TimeLimit:
    """Ends when the wall time and the CPU time of all threads are over, so that a busy machine changes no result."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds, time.process_time() + seconds

    def check(self, *_: Any) -> None:
        """Raise OutOfTime after the end. Takes the arguments of a progress callback."""
        if time.monotonic() > self._ends[0] and time.process_time() > self._ends[1]:
            raise OutOfTime(f"no plan is found in {MOST_SECONDS} s")

    def checked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a check before each call."""

        def call(*arguments: Any) -> Any:
            self.check()
            return function(*arguments)

        return call


@dataclass(frozen=True)
class RecordedProduct:
    """A product as it ran. words: its operands and its result without a bias, with one pattern for all NaNs.

    call: computes it of A, B and their scales on the device. is_tf32: torch may round the operands to TF32.
    """

    spec: Spec
    words: Call
    device: str
    call: Callable[..., Any] | None = None
    is_tf32: bool = False


@dataclass(frozen=True)
class RegionPlans:
    """A model for each region of D, and its findings by name."""

    regions: tuple[tuple[NDArray[np.intp], NDArray[np.intp], ProductModel], ...]
    findings: Mapping[str, Any]

    @property
    def is_ordered(self) -> bool:
        """Return whether the plan has an order of its additions: an f64 reference, and partial sums in any order, have none."""
        return all(model.is_ordered and not is_f64_reference(model) for _, _, model in self.regions)


@dataclass
class PlanCache:
    """Plans by what they depend on. One more is inferred if the first one fails. out_of_time: why a search was ended."""

    known: dict[Any, list[RegionPlans | None]] = field(default_factory=dict)
    out_of_time: dict[Any, str] = field(default_factory=dict)

    def of(self, key: Any, product: RecordedProduct) -> tuple[RegionPlans | None, int]:
        """Return the best plan of a product, None if none was found, and its mismatches.

        Raises OutOfTime if a search for this key was or is ended, and no plan gives the words.
        """
        plans = self.known.setdefault(key, [])
        counted = [(plan, mismatches(plan, product)) for plan in plans]
        if all(wrong for _, wrong in counted) and key in self.out_of_time:
            raise OutOfTime(self.out_of_time[key])
        if all(wrong for _, wrong in counted) and len(plans) < MOST_INFERRED:
            plans.append(None)  # a search that fails is not made again for each layer
            try:
                plans[-1] = infer(product)
            except OutOfTime as e:
                self.out_of_time[key] = str(e)
                raise
            counted.append((plans[-1], mismatches(plans[-1], product)))
        return min(counted, key=lambda each: each[1])


PLANS = PlanCache()
"""All plans of this process."""


def infer(product: RecordedProduct) -> RegionPlans | None:
    """Return the plan that gives the recorded words; the nearest where none does.

    Known plans come first on a CPU, where calls are slow, and last on a GPU, where the operands are large.
    """
    ways = [_known] if product.call is None else [_known, _probed] if product.device == "cpu" else [_probed, _known]
    found: list[RegionPlans | None] = []
    for way in ways:
        found.append(way(product))
        if not mismatches(found[-1], product):
            break
    return min(found, key=lambda plan: mismatches(plan, product))


def _known(product: RecordedProduct) -> RegionPlans | None:
    """Return the nearest known plan; None without one, with scales, or if a product that can be probed takes too long.

    Raises OutOfTime for other products.
    """
    a, b, scales, d = product.words
    if scales is not None:
        return None
    limit = _TimeLimit(MOST_SECONDS if product.call is None else KNOWN_SECONDS)
    readings = _readings(product)
    try:
        (found,) = explain(readings, a, b, [d], at_most=EXPLAIN_AT_MOST, progress=limit.check)
    except OutOfTime:
        if product.call is None:
            raise
        return None
    if not found.plans or found.regions:
        return None
    whole = np.arange(product.spec.m), np.arange(product.spec.n)
    return RegionPlans(((*whole, found.plans[0].model),), found.plans[0].findings)


def _probed(product: RecordedProduct) -> RegionPlans | None:
    """Return the plan that calls of the product show, None if there is none or a result contradicts it. Raises OutOfTime."""
    assert product.call is not None
    limit = _TimeLimit(MOST_SECONDS)
    box = CallableAdapter(
        _readings(product)[0], limit.checked(product.call), TorchArrays(product.device), "the recorded operation"
    )
    evaluate = limit.checked(evaluator_of(product.device))
    try:
        outcome = characterise(box, _FRESH[product.device[:4].rstrip(":")], evaluate=evaluate, progress=limit.check)
    except AccprobeError:
        limit.check()
        return None
    checked = outcome.verification
    regions = tuple((x.region.rows, x.region.columns, x.plan) for x in outcome.found if x.plan is not None and x.fits_in_range)
    if not regions or checked.mismatches > checked.subnormal:
        limit.check()
        return None
    return RegionPlans(regions, {name: finding.value for name, finding in findings(outcome).items()})


def _readings(product: RecordedProduct) -> list[Spec]:
    """Return how the words of the operands may be read, the likeliest first."""
    spec = product.spec
    if spec.a is not FORMATS["f32"]:
        return [spec]
    rounded = replace(spec, a=FORMATS["tf32"], b=FORMATS["tf32"])
    return [rounded, spec] if product.is_tf32 else [spec, rounded]


def mismatches(plan: RegionPlans | None, product: RecordedProduct) -> int:
    """Return how many recorded words the plan does not give; all of them without a plan."""
    wrong = product.words.d.size
    for rows, columns, model in () if plan is None else plan.regions:
        part = product.words.part(rows, columns)
        wrong += count_wrong(evaluator_of(product.device), model, *part) - part.d.size
    return wrong

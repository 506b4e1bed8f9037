"""The outcome of a characterisation: of each region of D, and of the callable as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from accprobe.gemm.checks.contract import Dependence
from accprobe.gemm.checks.regions import Region, RegionMap
from accprobe.gemm.checks.repeatability import FirstCalls
from accprobe.gemm.layout import Ints
from accprobe.gemm.plans import AlternativePlan, ProductPlan
from accprobe.gemm.probes import ChainCoverage
from accprobe.gemm.spec import Spec
from accprobe.gemm.tree.decomposition import FusedGroups, Reduction
from accprobe.gemm.verification import PlanVerification
from accprobe.model.product import ProductModel

# A plan is not shown if more than one of so many results of sparse probes contradicts it.
FAR_OFF = 10


@dataclass
class RegionOutcome:
    """The findings of one region.

    multiplicity: how often each k is counted, empty if not known yet; mispaired: which other products are added. tree: as last
    measured. plan: None without a tree, and `reason` says why. mismatches: results of sparse probes that contradict the plan,
    of `results`; counterexample: the simplest of them. contradicting: kept results that contradict it, of `checked`;
    overflowed: those for which the plan predicts an infinity; overflow: "NaN for -Inf"; subnormal: those of two subnormal
    words. alternatives: how many were tested. other_scalings: other ways to scale that explain everything; misplaced: scales of
    another block. compared: the plan that was last compared with the kept results, and the number of their calls.
    """

    region: Region
    multiplicity: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    reason: str = ""
    mispaired: str = ""
    tree: FusedGroups | Reduction | None = None
    plan: ProductPlan | None = None
    counterexample: str = ""
    mismatches: int = 0
    results: int = 0
    checked: int = 0
    contradicting: int = 0
    overflowed: int = 0
    subnormal: int = 0
    overflow: tuple[str, ...] = ()
    alternatives: int = 0
    surviving: list[AlternativePlan] = field(default_factory=list)
    other_scalings: tuple[str, ...] = ()
    misplaced: str = ""
    coverage: ChainCoverage | None = None
    compared: tuple[ProductPlan, int] | None = None

    @property
    def model(self) -> ProductModel | None:
        return None if self.plan is None else self.plan.model()

    @property
    def is_far_off(self) -> bool:
        """Return whether so many results contradict the plan that it suggests nothing."""
        return self.mismatches * FAR_OFF > self.results

    @property
    def fits_in_range(self) -> bool:
        """Return whether the plan explains all sparse probes, and all kept results in the normal range of D."""
        return self.plan is not None and not self.mismatches and self.contradicting == self.overflowed + self.subnormal


@dataclass
class ProductOutcome:
    """The findings of a callable for one shape.

    first: identical calls at the start of the run. depends: what an output depends on, None if results change or it is unknown.
    calls, elements: probed in all. stopped: why the run ended early, "" if it did not.
    """

    spec: Spec
    region_map: RegionMap
    first: FirstCalls
    depends: Dependence | None
    found: list[RegionOutcome] = field(default_factory=list)
    verification: PlanVerification = field(default_factory=PlanVerification)
    calls: int = 0
    elements: int = 0
    seed: int = 0
    stopped: str = ""

    @property
    def main(self) -> RegionOutcome:
        return self.found[0]

    @property
    def checked(self) -> int:
        """Return the number of kept results that were compared with the plans."""
        return sum(found.checked for found in self.found)

    @property
    def contradicting(self) -> int:
        return sum(found.contradicting for found in self.found)

    @property
    def fits_in_range(self) -> bool:
        """Return whether the plans explain all kept results in the normal range of D."""
        return all(found.contradicting == found.overflowed + found.subnormal for found in self.found)

    @property
    def explained(self) -> bool:
        """Return whether every element of D has a plan that no result contradicts, from the first call on."""
        covered = sum(found.region.elements for found in self.found if found.plan is not None)
        return (
            covered == self.spec.m * self.spec.n
            and not any(found.mismatches for found in self.found)
            and not self.contradicting
            and not self.verification.mismatches
            and self.verification.elements > 0
            and not self.first.other
            and not self.stopped
        )

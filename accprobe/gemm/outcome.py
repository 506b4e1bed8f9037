"""What is found of a product: of each region of D, and of the callable as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from accprobe.gemm.alternatives import AlternativePlan
from accprobe.gemm.coverage import ChainCoverage
from accprobe.gemm.decomposition import FusedGroups, Reduction
from accprobe.gemm.dependence import Dependence
from accprobe.gemm.pairs import Ints
from accprobe.gemm.plans import ProductPlan
from accprobe.gemm.regions import Region, RegionMap
from accprobe.gemm.repeatability import FirstCalls
from accprobe.gemm.spec import Spec
from accprobe.gemm.verification import Proof
from accprobe.model.product import ProductModel

FAR_OFF = 10
"""Where more than one of so many results of few terms contradicts the nearest plan, the plan is not shown."""


@dataclass
class RegionOutcome:
    """What was found of one region. tree: as it was probed last. plan: None where there is no tree, and reason says why.

    multiplicity: how often each k is counted, empty where that is not known yet; mispaired: which other products are added.
    wrong: results of the battery that the plan does not explain, of `answers`, and the simplest of them as counterexample;
    contradicting: the same of the kept results, of `checked`; overflowed: those for which the plan has an infinity, and
    on_overflow: what comes for what there; subnormal: those whose two words are both subnormal. scales_left: other ways to
    scale that explain everything; misplaced: which scales went elsewhere.
    """

    region: Region
    multiplicity: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    tree: FusedGroups | Reduction | None = None
    plan: ProductPlan | None = None
    reason: str = ""
    counterexample: str = ""
    wrong: int = 0
    answers: int = 0
    checked: int = 0
    contradicting: int = 0
    overflowed: int = 0
    subnormal: int = 0
    on_overflow: tuple[str, ...] = ()
    tried: int = 0
    surviving: list[AlternativePlan] = field(default_factory=list)
    scales_left: tuple[str, ...] = ()
    misplaced: str = ""
    coverage: ChainCoverage | None = None
    checked_plan: tuple[ProductPlan, int] | None = None
    """The plan that was compared with the kept results, and how many calls they were of."""
    mispaired: str = ""

    @property
    def model(self) -> ProductModel | None:
        return None if self.plan is None else self.plan.model()

    @property
    def is_far_off(self) -> bool:
        """Whether the plan is contradicted so often that it suggests nothing."""
        return self.wrong * FAR_OFF > self.answers

    @property
    def fits_in_range(self) -> bool:
        """Whether the plan explains every result of the region's probes and every kept one in the normal range of D."""
        return self.plan is not None and not self.wrong and self.contradicting == self.overflowed + self.subnormal


@dataclass
class ProductOutcome:
    """Everything that was found of a callable for one shape.

    first: identical calls at the beginning of the run. depends: what an output depends on, None where results change.
    calls, elements: asked in all. stopped: why the run ended before everything was found, "" where it did not.
    """

    spec: Spec
    region_map: RegionMap
    first: FirstCalls
    depends: Dependence | None
    found: list[RegionOutcome] = field(default_factory=list)
    proof: Proof = field(default_factory=Proof)
    calls: int = 0
    elements: int = 0
    seed: int = 0
    stopped: str = ""

    @property
    def main(self) -> RegionOutcome:
        return self.found[0]

    @property
    def checked(self) -> int:
        """Answers that were kept, and that the plans were held against."""
        return sum(found.checked for found in self.found)

    @property
    def contradicting(self) -> int:
        """How many of them the plans do not explain."""
        return sum(found.contradicting for found in self.found)

    @property
    def fits_in_range(self) -> bool:
        """Whether they explain all results in the normal range of D."""
        return all(found.contradicting == found.overflowed + found.subnormal for found in self.found)

    @property
    def explained(self) -> bool:
        """Whether every element of D has a plan that nothing speaks against, from the first call on."""
        covered = sum(found.region.elements for found in self.found if found.plan is not None)
        return (
            covered == self.spec.m * self.spec.n
            and not any(found.wrong for found in self.found)
            and not self.contradicting
            and not self.proof.wrong
            and self.proof.elements > 0
            and not self.first.other
            and not self.stopped
        )

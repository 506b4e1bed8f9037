"""The experiments, one a feature or a few that show through one another, in the order in which they are run.

Each sees a device through a `Workbench` alone, is given what is inferred so far, and hands it on with what it found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from accprobe.infer.draft import Draft
from accprobe.infer.experiments.blocks import scaled_blocks
from accprobe.infer.experiments.exponents import floor, largest_exponent
from accprobe.infer.experiments.integers import integers
from accprobe.infer.experiments.nonstandard import detection, nonstandard, room
from accprobe.infer.experiments.order import lone_products, order
from accprobe.infer.experiments.precision import precision
from accprobe.infer.experiments.specials import nan, overflow, zero_signs
from accprobe.infer.experiments.subnormals import subnormals
from accprobe.infer.experiments.wider import wider_inner_sums
from accprobe.infer.findings import Findings
from accprobe.infer.workbench import Workbench

# Of floats first the tree, the bits and the roundings; then, and again of a draft that was changed, the other rules. Of
# integers all at once.
When = Literal["structure", "rules", "integers"]


Experiment = Callable[[Workbench, Draft], tuple[Draft, Findings]]

EXPERIMENTS: dict[When, tuple[Experiment, ...]] = {
    "structure": (order, lone_products, wider_inner_sums, subnormals, room, precision, scaled_blocks),
    "rules": (nonstandard, largest_exponent, floor, nan, overflow, detection, zero_signs),
    "integers": (integers,),
}


def experiment(bench: Workbench, draft: Draft, when: When) -> tuple[Draft, Findings]:
    """What is inferred by those experiments, one after another, each within the reach that is known by then."""
    findings: Findings = {}
    for run in EXPERIMENTS[when]:
        draft, found = run(bench.within(draft.reach), draft)
        findings |= found
    return draft, findings

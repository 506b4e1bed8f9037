"""Control: whether an instruction obeys the register that says how results are rounded and what becomes of subnormals."""

from __future__ import annotations

import numpy as np

from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import Workbench
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import joined

OF_A_KIND = 256
"""Dot products of each kind of operands that are asked under each setting."""


def control(bench: Workbench) -> Findings:
    """Nothing of a device that has no such register."""
    inst, settings = bench.inst, bench.log.settings(bench.inst)
    if not settings:
        return {}
    rng = np.random.default_rng(OF_A_KIND)
    operands = joined([draw(kind, inst, rng, OF_A_KIND) for kind in kinds(inst)])
    d = bench.query(operands)
    changed = {name: np.flatnonzero(bench.log.dot_under(name, inst, operands) != d) for name in settings}
    obeyed = [name for name, rows in changed.items() if len(rows)]
    note = f"{len(d):,} dot products asked under each of {len(settings)} others: {', '.join(settings)}"
    return {"control": Finding(", ".join(obeyed) or "ignored", note=note)}

"""What pages say of the bounds of errors: how they held, and how sums that are cut drift where rounded ones walk."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
from block_forms import RESULTS, fenced, filled, tabled
from printed_blocks import printed

from accprobe.budget.accumulation import of_named
from accprobe.budget.bounds import tight
from accprobe.budget.data import drawn_patterns
from accprobe.budget.errors import exact_product
from accprobe.evaluate.product import product
from accprobe.isa.formats import FORMATS
from accprobe.model.tree import Arithmetic, FloatArithmetic

KS, SIDE = (1024, 4096, 16384), 16


def bounds_held() -> str:
    """What benchmarks/bounds.py found."""
    found = json.loads((RESULTS / "bounds" / "0.json").read_text(encoding="utf-8"))
    held = found["outputs"] - found["unbounded"]
    exceeding = "none exceeds" if not found["exceeding"] else f"{found['exceeding']:,} exceed"
    told = (
        f"Of {found['outputs']:,} outputs of {len(found['arithmetics'])} arithmetics, made to err, {held:,} have a bound"
        f" (of the others sums can be too large for their format), and {exceeding} it:"
    )
    by_chip = defaultdict(list)
    for name, row in found["arithmetics"].items():
        by_chip[" ".join(name.split(":")[: 2 if name.startswith("sim") else 1])].append(row)
    rows = []
    for chip, seen in by_chip.items():
        largest, cheap = [row["of_tight"] for row in seen], [row["of_sum"] for row in seen]
        rows.append(
            (
                "H200, measured" if chip == "h200" else f"{chip.split()[-1].upper()}, published",
                len(seen),
                f"{sum(row['outputs'] for row in seen):,}",
                sum(row["exceeding"] for row in seen),
                f"{min(largest):.2f} to {max(largest):.2f}",
                f"{min(cheap):.2f} to {max(cheap):.2f}",
            )
        )
    heads = ("models", "arithmetics", "outputs", "exceed", "largest error over the bound", "over that from the sum")
    return filled(told) + "\n\n" + tabled(heads, rows)


def truncation_drifts() -> str:
    """QGMMA's chain on numbers of one sign, cut as it is and rounded to nearest, beside the law of the square root."""
    accumulation = of_named("QGMMA")
    rows = []
    for k in KS:
        cut = accumulation.product(k)
        nearest = replace(cut, step=cut.step.with_arithmetic(_to_nearest))
        a, b = drawn_patterns("positive", cut.a, cut.b, SIDE, SIDE, k, np.random.default_rng(0))
        sums = exact_product(cut, a, b).sums
        results = (FORMATS["f32"].values(product(model, a, b)) for model in (cut, nearest))
        off = [float((np.abs(values - sums) / sums).mean()) for values in results]
        steps = k // cut.step.products
        bound = float((tight(cut, a, b) / sums).max())
        law = (steps * (cut.step.products + 1)) ** 0.5 * 2.0**-14
        rows.append((f"{k:,}", steps, *(f"{100 * x:.2g} %" for x in (law, off[1], off[0], bound))))
    return tabled(
        ("K", "sums n", "√(33 n) · 2^-14", "rounded to nearest", "cut, as an H200 does", "bound of these operands"), rows
    )


def _to_nearest(arithmetic: Arithmetic) -> Arithmetic:
    assert isinstance(arithmetic, FloatArithmetic)
    return replace(arithmetic, alignment_rounding="nearest", result_rounding="RNE")


def kill_table() -> str:
    command = ("tolerance", "QGMMA", "--k", "7168", "--promote-every", "128", "--out", "bf16")
    return fenced([f"$ accprobe {' '.join(command)}", *printed(*command)])

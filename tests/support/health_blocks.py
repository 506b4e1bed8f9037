"""What docs/health.md tells of the check at work, from benchmarks/results/health."""

from __future__ import annotations

import json
import re
from typing import Any

from block_forms import ROOT, filled, tabled

FOLDER = ROOT / "benchmarks" / "results" / "health"


def _told(name: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / name).read_text(encoding="utf-8")))


def health_rates() -> str:
    """Throughput and power of each unit beside torch's GEMM, and what was compared."""
    heads = ("unit", "Tops/s", "torch's GEMM", "share", "results compared a minute", "that differ", "SMs", "W", "GEMM's W")
    rows = (
        (
            unit["unit"],
            f"{unit['tops']:,.0f}",
            f"{unit['gemm_tops']:,.0f}",
            f"{unit['share']:.0%}",
            f"{unit['compared_a_minute']:.2g}",
            unit["wrong"],
            unit["sms"],
            f"{unit['watts']:.0f}",
            f"{unit['gemm_watts']:.0f}",
        )
        for unit in _told("h200.json")["units"]
    )
    return tabled(heads, rows)


def health_planted() -> str:
    """How soon an error that was planted was found, and what was told of it; not which elements of a sparse A are stored."""
    told = [_told(name) for name in ("h200-planted.json", "h200-planted-f64.json", "h200-planted-sparse.json")]
    (gpu,) = {each["gpu"] for each in told}
    planted = [found for each in told for found in each["planted"]]
    found = [
        f"{each['unit']} after {each['seconds_to_find']:.1f} s and {each['dots']:.2g} results, again {each['again']} times, as"
        f" SM {each['place']['sm']}, warp {each['place']['warp']}, lane {each['place']['lane']}, and shrunk in"
        f" {each['seconds_to_shrink']:.1f} s to `{re.sub('; stored at .* →', ' →', each['smallest'])}`"
        for each in planted
    ]
    assert all(each["found"] and each["right_place"] for each in planted)
    return filled(f"On an {gpu} it was found: {'; '.join(found)}.") + "\n"

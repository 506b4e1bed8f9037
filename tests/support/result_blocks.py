"""What `benchmarks/results` has, as tables and sentences."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from block_forms import RESULTS, filled, tabled

from accprobe.report.report import Report

EVERY_MODEL = 1e12
"""Multiply-accumulates a second that the GPU evaluator is to reach whatever the model."""


def speed() -> str:
    """Every benchmark result that is recorded, but for those that are ratios to another program."""
    table = []
    for path in sorted(RESULTS.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        place = data["host"].get("device") or f"{data['host']['cpu_cores']} CPU cores"
        for result in (each for each in data["results"] if "ratio" not in each):
            command = f"`{result['command']}`" + (f", {result['state']}" if result["state"] else "")
            table.append((command, place, f"{result['seconds']:.2f} s", f"{result['limit']:g} s"))
    return tabled(("command", "on", "took", "limit"), table)


def verified_rows() -> str:
    """What `accprobe verify` said of rows of the recorded reports, and which they are, where that is recorded."""
    return "".join(
        _verified(json.loads(path.read_text(encoding="utf-8"))) for path in sorted((RESULTS / "verified").glob("*.json"))
    )


def _verified(data: Any) -> str:
    rows = data["verified"]
    dots, wrong = sum(row["dots"] for row in rows), sum(row["mismatches"] for row in rows)
    now = len(Report.load(data["models"]).measured)
    later = f" They are of {len(rows)} of the {now} instructions that the report has now." if len(rows) < now else ""
    told = (
        f"- `accprobe verify {data['models']} --device cuda:0 --dots 1e9` on an {data['device']['name']}:"
        f" {len(rows)} instructions, {dots:,} dot products, {wrong:,} differ.{later}"
    )
    return filled(told) + "\n"


def drawn_plans() -> str:
    """The census of products whose plans are drawn by seed."""
    path = RESULTS / "products" / "10000-10199.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    counts = Counter(line["verdict"] for line in lines)
    false = sum(bool(line["false_exact"]) for line in lines)
    faulty = [line for line in lines if line["parameters"].keys() & FAULTS]
    confirmed = sum(line["status"] == "confirmed" for line in faulty)
    others = ", ".join(f"{counts[name]} {told}" for name, told in UNPROVED.items() if counts[name])
    command = f"python benchmarks/products.py --seeds {lines[0]['seed']}-{lines[-1]['seed']} --limit 60"
    told = (
        f"`{command}` draws {len(lines)} products by seed and computes them with an evaluator that shares no code with"
        f" accprobe's. {len(faulty)} of them have a fault that no plan describes: operands read at the wrong place, first calls"
        f" that differ, outputs that depend on other rows, one truncated step. {confirmed} of these were confirmed."
        f" {counts['right']} of all {len(lines)} were confirmed as planted, {others}; {counts['wrong']} were confirmed with"
        f" another plan, {counts['called unstable']} repeatable ones were called unstable, and {false} had a finding that was"
        " exact and false."
    )
    return filled(told) + "\n"


def health_result(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / "health" / name).read_text(encoding="utf-8")))


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
        for unit in health_result("h200.json")["units"]
    )
    return tabled(heads, rows)


FAULTS = {"mispaired", "around", "truncated_step"}
"""Parameters of plants that must not be confirmed."""

UNPROVED = {
    "not confirmed": "not confirmed, with the reason",
    "too late": "not done in 60 s of one core",
    "crashed": "crashed",
}

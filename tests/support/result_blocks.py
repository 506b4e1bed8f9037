"""What `benchmarks/results` has, as tables and sentences."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import Any

from block_forms import RESULTS, filled, tabled

from accprobe.report.report import Report

EVERY_MODEL = 1e12
"""Multiply-accumulates a second that the GPU evaluator is to reach whatever the model."""


def library() -> str:
    """Libraries of many kernels: what is in them, time against nvdisasm's, and memory."""
    data = json.loads((RESULTS / "sass.json").read_text(encoding="utf-8"))
    return "".join(f"{filled(_library(told, data['host']['cpu_cores']))}\n" for told in data["results"])


def _library(told: dict[str, Any], cores: int) -> str:
    return (
        f"- `{told['command']}`, {told['state']}: {told['kernels']:,} kernels with matrix opcodes among {told['functions']:,}"
        f" functions of {told['cubins']:,} cubins ({told['cubins_mib']:,.0f} MiB, the largest {told['largest_mib']:.0f}), in"
        f" {told['cpu_seconds']:,.0f} s of CPU time, {told['ratio']:.2f} times the {told['nvdisasm_cpu_seconds']:,.0f} s that"
        f" nvdisasm takes for the same cubins{_missed(told)}; {told['seconds']:,.0f} s on {cores} shared cores, against"
        f" {told['nvdisasm_seconds']:,.0f} s. Memory of all processes together: {told['peak_mib']:,} MiB."
    )


def _missed(result: dict[str, Any]) -> str:
    return f" (more than the limit of {result['limit_ratio']})" if result["ratio"] > result["limit_ratio"] else ""


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


def evaluators_on_gpus() -> str:
    """Of each model, in chains and alone, what an H200 reached; its ceilings, mmaemu, and what stayed below the limit."""
    data = json.loads((RESULTS / "evaluators" / "h200.json").read_text(encoding="utf-8"))
    table, below = [], []
    of_units = {(way["instruction"], str(way["changed"])): way for way in data["on_matrix_units"]}
    for chain, dots in zip(data["chains"], data["dots"], strict=True):
        changed = "".join(f", {field}: {value}" for field, value in (chain["changed"] or {}).items())
        name = f"`{chain['instruction']}`{changed}"
        rates = [f"{way['macs_per_second']:.3g}, {way['sums_in']}" for way in (chain, dots)]
        units = of_units.get((chain["instruction"], str(chain["changed"])))
        differ = sum(way["differ"] for way in (chain, dots, units) if way)
        table.append((name, rates[0], f"{units['macs_per_second']:.3g}" if units else "", rates[1], differ))
        for way, how in ((chain, "in chains"), (dots, "alone")):
            below += [f"{name} {how}"] if way["macs_per_second"] < EVERY_MODEL else []
    ceilings, peer = data["ceilings"], data["chains"][0]["mmaemu"]
    told = (
        f"The GPU's own ceilings in the same run: {ceilings['ffma']:.3g} float32 and {ceilings['dfma']:.3g} float64 fused"
        f" multiply-adds, {ceilings['integer']:.3g} integer instructions a second;"
        f" {ceilings['products']:.3g} products, each a multiply-add and half a comparison of exponents, as"
        " the compiler arranges them with all operands in registers. "
    )
    if "missing" not in peer:
        told += (
            f"mmaemu on the operands of the first chain: {peer['macs_per_second']:.3g},"
            f" {peer['differ']} differ; accprobe is {data['chains'][0]['ratio_to_mmaemu']:.2f} times as fast. "
        )
    told = filled(f"{told}Below {EVERY_MODEL:.0e}: {', '.join(below) or 'none'}.") + "\n"
    header = ("model", "in chains", "and matrix units", "alone", "that differ")
    return f"{tabled(header, table)}\n{told}"


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


def _health(name: str) -> dict[str, Any]:
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
        for unit in _health("h200.json")["units"]
    )
    return tabled(heads, rows)


def health_planted() -> str:
    """How soon an error that was planted was found, and what was told of it; not which elements of a sparse A are stored."""
    told = [_health(name) for name in ("h200-planted.json", "h200-planted-f64.json", "h200-planted-sparse.json")]
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


def bounds_held() -> str:
    """What benchmarks/bounds.py found."""
    found = json.loads((RESULTS / "bounds" / "0.json").read_text(encoding="utf-8"))
    held = found["outputs"] - found["unbounded"]
    exceeding = "none exceeds" if not found["exceeding"] else f"{found['exceeding']:,} exceed"
    told = (
        f"{found['outputs']:,} outputs of {len(found['arithmetics'])} arithmetics, made to err: {held:,} have a bound (sums of"
        f" the others can exceed their format), and {exceeding} it:"
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


FAULTS = {"mispaired", "around", "truncated_step"}
"""Parameters of plants that must not be confirmed."""

UNPROVED = {
    "not confirmed": "not confirmed, with the reason",
    "too late": "not done in 60 s of one core",
    "crashed": "crashed",
}

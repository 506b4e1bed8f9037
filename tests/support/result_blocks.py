"""Blocks of the pages from the results of benchmarks (benchmarks/results), except accuracy."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from benchmark import RESULTS, recorded
from block_forms import filled, table_of, tabled

from accprobe.report.report import Report

_EVERY_MODEL = 1e12
"""Multiply-accumulates a second that the GPU evaluator is to reach for every model."""

_FAULTS = {"mispaired", "around", "truncated_step"}
"""Parameters of planted products that must not be confirmed."""

_NOT_CONFIRMED = {
    "not confirmed": "not confirmed, with the reason",
    "too late": "not done in 60 s of one core",
    "crashed": "crashed",
}


def speed() -> str:
    """Return every recorded benchmark result that is not a ratio to another program."""
    table = []
    for path in sorted(RESULTS.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        place = data["host"].get("device") or f"{data['host']['cpu_cores']} CPU cores"
        for result in (each for each in data["results"] if "ratio" not in each):
            command = f"`{result['command']}`" + (f", {result['state']}" if result["state"] else "")
            table.append((command, place, f"{result['seconds']:.2f} s", f"{result['limit']:g} s"))
    return tabled(("command", "on", "took", "limit"), table)


def verified_rows() -> str:
    """Return the results of `accprobe verify` on the rows of the recorded reports."""
    lines = []
    for path in sorted((RESULTS / "verified").glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = data["verified"]
        dots, wrong = sum(row["dots"] for row in rows), sum(row["mismatches"] for row in rows)
        now = len(Report.load(data["models"]).measured)
        later = f" They are of {len(rows)} of the {now} instructions that the report has now." if len(rows) < now else ""
        lines.append(
            f"- `accprobe verify {data['models']} --device cuda:0 --dots 1e9` on an {data['device']['name']}:"
            f" {len(rows)} instructions, {dots:,} dot products, {wrong:,} differ.{later}"
        )
    return "".join(map(filled, lines))


def drawn_plans() -> str:
    """Return the counts of verdicts on planted products drawn by seed."""
    path = RESULTS / "products" / "10000-10199.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    counts = Counter(line["verdict"] for line in lines)
    false = sum(bool(line["false_exact"]) for line in lines)
    faulty = [line for line in lines if line["parameters"].keys() & _FAULTS]
    confirmed = sum(line["status"] == "confirmed" for line in faulty)
    others = ", ".join(f"{counts[name]} {words}" for name, words in _NOT_CONFIRMED.items() if counts[name])
    command = f"python benchmarks/products.py --seeds {lines[0]['seed']}-{lines[-1]['seed']} --limit 60"
    text = (
        f"`{command}` draws {len(lines)} products by seed and computes them with an evaluator that shares no code with"
        f" accprobe's. {len(faulty)} of them have a fault that no plan describes: operands read at the wrong place, first calls"
        f" that differ, outputs that depend on other rows, one truncated step. {confirmed} of these were confirmed."
        f" {counts['right']} of all {len(lines)} were confirmed with the drawn plan, {others}; {counts['wrong']} with"
        f" another plan, {counts['called unstable']} repeatable ones were called unstable, and {false} had a finding that was"
        " exact and false."
    )
    return filled(text)


def health_rates() -> str:
    """Return throughput and power of each unit beside torch's GEMM, and the results compared."""
    columns = {
        "unit": "{unit}",
        "Tops/s": "{tops:,.0f}",
        "torch's GEMM": "{gemm_tops:,.0f}",
        "share": "{share:.0%}",
        "results compared a minute": "{compared_a_minute:.2g}",
        "that differ": "{wrong}",
        "SMs": "{sms}",
        "W": "{watts:.0f}",
        "GEMM's W": "{gemm_watts:.0f}",
    }
    return table_of(recorded("health/h200.json")["units"], columns)


def health_planted() -> str:
    """Return how soon planted errors were found, and their shrunk inputs without the positions stored of a sparse A."""
    results = [recorded(f"health/{name}.json") for name in ("h200-planted", "h200-planted-f64", "h200-planted-sparse")]
    (gpu,) = {each["gpu"] for each in results}
    planted = [found for each in results for found in each["planted"]]
    found = [
        f"{each['unit']} after {each['seconds_to_find']:.1f} s and {each['dots']:.2g} results, repeated {each['again']} times,"
        f" as SM {each['place']['sm']}, warp {each['place']['warp']}, lane {each['place']['lane']}, and shrunk in"
        f" {each['seconds_to_shrink']:.1f} s to `{re.sub('; stored at .* →', ' →', each['smallest'])}`"
        for each in planted
    ]
    assert all(each["found"] and each["right_place"] for each in planted)
    return filled(f"accprobe found it on an {gpu}: {'; '.join(found)}.")


def library() -> str:
    """Return kernels, time beside nvdisasm's and memory of libraries of many kernels."""
    data = recorded("sass.json")
    return "".join(filled(_library(text, data["host"]["cpu_cores"])) for text in data["results"])


def _library(text: dict[str, Any], cores: int) -> str:
    missed = f" (more than the limit of {text['limit_ratio']})" if text["ratio"] > text["limit_ratio"] else ""
    return (
        f"- `{text['command']}`, {text['state']}: {text['kernels']:,} kernels with matrix opcodes among {text['functions']:,}"
        f" functions of {text['cubins']:,} cubins ({text['cubins_mib']:,.0f} MiB, the largest {text['largest_mib']:.0f}), in"
        f" {text['cpu_seconds']:,.0f} s of CPU time, {text['ratio']:.2f} times the {text['nvdisasm_cpu_seconds']:,.0f} s that"
        f" nvdisasm takes for the same cubins{missed}; {text['seconds']:,.0f} s on {cores} shared cores, against"
        f" {text['nvdisasm_seconds']:,.0f} s. Memory of all processes together: {text['peak_mib']:,} MiB."
    )


def evaluators_on_gpus() -> str:
    """Return the rates of each model on an H200, in chains and alone, the ceilings, and the models below the limit."""
    data = recorded("evaluators/h200.json")
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
            below += [f"{name} {how}"] if way["macs_per_second"] < _EVERY_MODEL else []
    ceilings, peer = data["ceilings"], data["chains"][0]["mmaemu"]
    text = (
        f"The GPU's own ceilings in the same run: {ceilings['ffma']:.3g} float32 and {ceilings['dfma']:.3g} float64 fused"
        f" multiply-adds, {ceilings['integer']:.3g} integer instructions a second;"
        f" {ceilings['products']:.3g} products a second if each takes one multiply-add and half a comparison of exponents, on"
        " operands in registers. "
    )
    if "missing" not in peer:
        text += (
            f"mmaemu on the operands of the first chain: {peer['macs_per_second']:.3g},"
            f" {peer['differ']} differ; accprobe is {data['chains'][0]['ratio_to_mmaemu']:.2f} times as fast. "
        )
    text = filled(f"{text}Slower than {_EVERY_MODEL:.0e}: {', '.join(below) or 'none'}.")
    header = ("model", "chains", "chains, matrix units", "dot products", "mismatches")
    return f"{tabled(header, table)}\n{text}"


def traces() -> str:
    """Return comparisons of two runs of transformers models on an H200, and the time that recording takes."""
    data = recorded("trace/h200.json")
    table, overheads = [], []
    for case in data["cases"]:
        if "origins" in case:
            first = next((f"`{x['module']}`: {x['cause']['text']}" for x in case["origins"]), "no difference")
            compared = case["counts"].partition(": ")[2]
            verified = f"{case['verified']} of {len(case['origins'])}" if case["origins"] else ""
            table.append((case["name"], compared, first, verified, f"{case['seconds']:.0f} s"))
        elif "ratio" in case:
            overheads.append(
                f"{case['eager_ms']:.1f} ms of {case['operations']} operations on {case['tokens']:,} tokens become"
                f" {case['recorded_ms']:.1f} ms ({case['ratio']:.1f} times)"
            )
    text = filled(f"Recording hashes every operand and result on the GPU: {'; '.join(overheads)}.")
    return tabled(("runs", "operations", "first cause", "verified", "took"), table) + f"\n{text}"

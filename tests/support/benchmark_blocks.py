"""Generated parts of the pages whose numbers are the output of a benchmark or of a command."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

from accuracy_blocks import FP8, FP16, error, line, percent, recorded
from block_forms import RESULTS, filled, tabled
from printed_blocks import printed
from result_blocks import EVERY_MODEL, health_result

from accprobe.report.report import Report


def library() -> str:
    """Libraries of many kernels: what is in them, time against nvdisasm's, and memory."""
    data = json.loads((RESULTS / "sass.json").read_text(encoding="utf-8"))
    return "".join(f"{filled(_library(text, data['host']['cpu_cores']))}\n" for text in data["results"])


def _library(text: dict[str, Any], cores: int) -> str:
    return (
        f"- `{text['command']}`, {text['state']}: {text['kernels']:,} kernels with matrix opcodes among {text['functions']:,}"
        f" functions of {text['cubins']:,} cubins ({text['cubins_mib']:,.0f} MiB, the largest {text['largest_mib']:.0f}), in"
        f" {text['cpu_seconds']:,.0f} s of CPU time, {text['ratio']:.2f} times the {text['nvdisasm_cpu_seconds']:,.0f} s that"
        f" nvdisasm takes for the same cubins{_missed(text)}; {text['seconds']:,.0f} s on {cores} shared cores, against"
        f" {text['nvdisasm_seconds']:,.0f} s. Memory of all processes together: {text['peak_mib']:,} MiB."
    )


def _missed(result: dict[str, Any]) -> str:
    return f" (more than the limit of {result['limit_ratio']})" if result["ratio"] > result["limit_ratio"] else ""


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
    text = (
        f"The GPU's own ceilings in the same run: {ceilings['ffma']:.3g} float32 and {ceilings['dfma']:.3g} float64 fused"
        f" multiply-adds, {ceilings['integer']:.3g} integer instructions a second;"
        f" {ceilings['products']:.3g} products, each a multiply-add and half a comparison of exponents, as"
        " the compiler arranges them with all operands in registers. "
    )
    if "missing" not in peer:
        text += (
            f"mmaemu on the operands of the first chain: {peer['macs_per_second']:.3g},"
            f" {peer['differ']} differ; accprobe is {data['chains'][0]['ratio_to_mmaemu']:.2f} times as fast. "
        )
    text = filled(f"{text}Below {EVERY_MODEL:.0e}: {', '.join(below) or 'none'}.") + "\n"
    header = ("model", "in chains", "and matrix units", "alone", "that differ")
    return f"{tabled(header, table)}\n{text}"


def health_planted() -> str:
    """How soon an error that was planted was found, and what was text of it; not which elements of a sparse A are stored."""
    text = [health_result(name) for name in ("h200-planted.json", "h200-planted-f64.json", "h200-planted-sparse.json")]
    (gpu,) = {each["gpu"] for each in text}
    planted = [found for each in text for found in each["planted"]]
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
    text = (
        f"{found['outputs']:,} outputs of {len(found['arithmetics'])} arithmetics, made to err: {held:,} have a bound (sums of"
        f" the others can exceed their format), and {exceeding} it:"
    )
    by_chip = defaultdict(list)
    for name, row in found["arithmetics"].items():
        by_chip[" ".join(name.split(":")[: 2 if name.startswith("sim") else 1])].append(row)
    rows = []
    for chip, seen in by_chip.items():
        largest = [max(row["largest"].values()) for row in seen]
        rows.append(
            (
                f"{chip.split()[-1].upper()}, {'published' if chip.startswith('sim') else 'measured'}",
                len(seen),
                f"{sum(row['outputs'] for row in seen):,}",
                sum(row["exceeding"] for row in seen),
                f"{min(largest):.2f} to {max(largest):.2f}",
            )
        )
    heads = ("models", "arithmetics", "outputs", "exceed", "largest error over the bound")
    return filled(text) + "\n\n" + tabled(heads, rows)


def ways_of_counting() -> str:
    """What each number counts, whose it is, and who says so."""
    rows = {row.name: row for row in Report.load("h200").instructions}
    kept, other = (rows[name].findings[feature].value for name, feature in ((FP8, "effective_bits"), (FP16, "alignment_bits")))
    assert isinstance(kept, int)
    exponent = rows[FP8].instruction.d.exponent_bits
    measured = "measured: `reports/h200.json`"
    table = (
        (kept, "fraction bits of the running sum of an FP8 `wgmma` (QGMMA), and those to which it aligns products", measured),
        (kept + 1, "the same with the hidden leading one", f"{measured}; DeepSeek-V3's 14 bits"),
        (
            kept + 1 + exponent,
            "the same with the sign and the exponent too: a float e8m13",
            f"{measured}; SageAttention2's FP22",
        ),
        (other, "bits to which HMMA and HGMMA align products, before the sum is truncated to 23", measured),
        (other, "the same of Blackwell's FP8, whose sums keep 23", "published only: MMA-Sim; Khattak & Mikaitis"),
        (34, "bits that a fused sum of 32 FP8 products needs for a precise f32 result", "DeepSeek-V3's advice to chip makers"),
        (35, "bits to which Blackwell's block-scaled FP4 (mxf4, nvf4) aligns products", "published only: MMA-Sim"),
    )
    return tabled(("number", "counts", "known from"), table)


def failures() -> str:
    """One number each, and what helps."""
    softmax = recorded()["softmax"][0]
    largest = recorded()["outliers"][-1]["largest"]
    plain, scaled = (line("scales", data="outliers", scale=name) for name in ("none", "tensor"))
    one, fine = (line("outliers", largest=largest, scale=name)["e4m3"] for name in ("tensor", "1x128"))
    rows = (
        (
            "saturation",
            "outliers without a scale",
            f"{percent(plain['saturated'])} of A's numbers; the product is off by {percent(plain['quantisation_error'])}",
            f"a scale: {percent(scaled['quantisation_error'])}",
        ),
        (
            "flush to zero",
            f"softmax over {softmax['keys']:,} keys, divided by its sum, without a scale",
            f"{percent(softmax['flushed'])} of P becomes 0",
            f"exp(s - max) times a scale, divided afterwards: the product is off by"
            f" {percent(line('attention', data='attention', k=softmax['keys'], promote_every=None)['quantisation_error'])}",
        ),
        (
            "outliers, one scale",
            f"one number of {largest:,.0f} among normal ones",
            f"the others are off by {percent(one)}",
            f"a scale each 128: {percent(fine)}",
        ),
        (
            "accumulator bias",
            "same-sign data, K = 16384",
            f"{percent(error(16384, 'positive'))} low",
            f"promotion every 128: {percent(error(16384, 'positive', promote_every=128))}",
        ),
    )
    return tabled(("failure", "shown by", "FP8 as it comes", "what helps"), rows)


def gpus() -> str:
    """What a comparison of the two recorded GPUs, measured by one commit, says first."""
    gpus, _, same = printed("diff", "h100", "h200", status=0)[0].partition(": ")
    text = f'`accprobe diff h100 h200` compares two GPUs of one architecture, {gpus}. The first line says "{same}".'
    return filled(text) + "\n"


def traces() -> str:
    """Comparisons of two runs of transformers models on an H200, and the time that recording takes."""
    data = json.loads((RESULTS / "trace" / "h200.json").read_text(encoding="utf-8"))
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
    return tabled(("runs", "operations", "first cause", "verified", "took"), table) + f"\n{text}\n"

"""The tables of docs/accuracy.md, of benchmarks/results/accuracy, and what of them other pages have."""

from __future__ import annotations

import json
from math import log2
from typing import Any

import numpy as np
from block_forms import RESULTS, filled, tabled

FOLDER = RESULTS / "accuracy"
FP8, FP16 = "wgmma.m64n8k32.f32.e4m3.e4m3", "wgmma.m64n8k16.f32.f16.f16"
KINDS = {"normal": "zero-mean", "positive": "same-sign"}

Line = dict[str, Any]


def recorded() -> Any:
    return json.loads((FOLDER / "h200.json").read_text(encoding="utf-8"))


def lines(table: str, **like: object) -> list[Line]:
    """Those that have these values."""
    return [line for line in recorded()[table] if all(line[name] == value for name, value in like.items())]


def line(table: str, **like: object) -> Line:
    (found,) = lines(table, **like)
    return found


def error(k: int, data: str, accumulator: str = "QGMMA", promote_every: int | None = None) -> float:
    found = line("over_k", k=k, data=data, accumulator=accumulator, promote_every=promote_every)
    return float(found["relative_error"])


def percent(share: float) -> str:
    """Two digits, without an exponent."""
    value = 100 * share
    return f"{np.format_float_positional(float(f'{value:.2g}'), trim='-')} %"


def accuracy_made() -> str:
    data = recorded()
    told = (
        f"`{data['command']}` computes the tables down to attention, except the first: {data['outputs']:,} outputs of each"
        f" product, {data['draws']} draws of operands, by the model measured on an H200 (`{data['like']}`). The command above"
        " each table prints the same numbers with confidence intervals. An error is the root mean square of d - x over that of"
        " the exact sums x. Zero-mean data are normal, same-sign data uniform in [0, 1), both rounded to e4m3."
    )
    return filled(told) + "\n"


def same_sign() -> str:
    return _over_k("positive")


def zero_mean() -> str:
    return _over_k("normal")


def _over_k(data: str) -> str:
    """slope: of the error of unpromoted sums, on two logarithmic scales."""
    found = lines("over_k", data=data, accumulator="QGMMA", promote_every=None)
    table, before = [], None
    for each in found:
        k, own = each["k"], float(each["relative_error"])
        others = [error(k, data, promote_every=128), *(error(k, data, name) for name in ("14 bits to nearest", "f32"))]
        slope = f"{log2(own / before):.2f}" if before else ""
        table.append((f"{k:,}", percent(own), slope, *map(percent, others), _on_hardware(data, k)))
        before = own
    header = ("K", "never promoted", "slope", "every 128", "14 bits to nearest", "f32 chain", "mismatches on hardware")
    ks = ",".join(str(each["k"]) for each in found)
    return f"`accprobe budget QGMMA --k {ks} --data {data} --promote-every none,128`:\n\n{tabled(header, table)}"


def hardware() -> Any:
    return json.loads((FOLDER / "h200-hardware.json").read_text(encoding="utf-8"))


def _on_hardware(data: str, k: int) -> str:
    """Mismatches of those never promoted, and of those promoted every 128."""
    return ", ".join(f"{each['differ']:,}" for each in hardware()["lines"] if (each["data"], each["k"]) == (data, k))


def on_hardware() -> str:
    found = hardware()
    words, differ = (sum(each[name] for each in found["lines"]) for name in ("words", "differ"))
    return (
        filled(
            "`python benchmarks/accuracy_gpu.py` multiplies the same operands by `torch._scaled_mm`, with `use_fast_accum`"
            " (never promoted) and without (every 128), and compares each result with the model's; the last columns count"
            " mismatches. On"
            f" an {found['device']} (torch {found['torch']}, CUDA {found['cuda']}): {len(found['lines'])} products, {words:,}"
            f" results, {differ:,} mismatches. So these are the hardware's own errors."
        )
        + "\n"
    )


def intervals() -> str:
    """By how many products are added before they are promoted."""
    found = lines("promotion", data="normal")
    k = found[0]["k"]
    table = []
    for each in sorted(found, key=lambda each: each["promote_every"] or k):
        every = each["promote_every"]
        shares = (line("promotion", data=data, promote_every=every)["relative_error"] for data in KINDS)
        table.append((f"{every:,}" if every else "never", *map(percent, shares)))
    asks = ",".join(str(each["promote_every"]).lower() for each in found)
    command = f"`accprobe budget QGMMA --k {k} --promote-every {asks}`"
    return f"{command}:\n\n{tabled(('promotion interval', *KINDS.values()), table)}"


def granularity() -> str:
    """What operands lose by it, of one kind of data and of one with outliers."""
    names = [each["scale"] for each in lines("scales", data="normal")]
    told = f"`accprobe budget QGMMA --k 4096 --promote-every 128 --data normal,outliers --scale {','.join(names)}`:\n"
    for data in ("normal", "outliers"):
        table = []
        for each in lines("scales", data=data):
            (integers,) = lines("integers", data=data, scale=each["scale"]) or [None]
            snr = (f"{each['snr']:.1f}", f"{integers['snr']:.1f}" if integers else "")
            shares = (percent(each[name]) for name in ("quantisation_error", "flushed", "saturated"))
            table.append((f"`{each['scale']}`", *snr, *shares, f"{each['scale_bytes']:.2g}"))
        header = (f"{data} data", "SNR", "as integers", "product off by", "flushed", "saturated", "bytes of scales")
        told += f"\n{tabled(header, table)}"
    return told


def attention_over_keys() -> str:
    """By the accumulator, and by rounding alone."""
    of_sign = "attention, V in [0, 1)"
    table, keys = [], [each["k"] for each in lines("attention", data="attention", promote_every=None)]
    for k in keys:
        cells = []
        for data in ("attention", of_sign):
            never, often = lines("attention", data=data, k=k)
            cells += [never["relative_error"], often["relative_error"], never["quantisation_error"]]
        table.append((f"{k:,}", *map(percent, cells)))
    asks = ",".join(map(str, keys))
    command = f"`accprobe budget QGMMA --data attention --scale row --promote-every none,128 --k {asks}`"
    ways = ("never promoted", "every 128", "rounding P, V")
    header = ("keys", *(f"{kind}: {way}" for kind in ("normal V", "V in [0, 1)") for way in ways))
    return f"{command} has the first columns:\n\n{tabled(header, table)}"


def drift_in_short() -> str:
    """Of the same only what promotion changes."""
    never, often = (line("promotion", data="positive", promote_every=every) for every in (None, 128))
    told = (
        f"A sum of K = {never['k']} products of e4m3 values between 0 and 1 is {percent(-never['bias'])} too low, and"
        f" {percent(-often['bias'])} with promotion every {often['promote_every']} products, by the model measured on an H200"
        " ([accuracy](docs/accuracy.md))."
    )
    return filled(told) + "\n"

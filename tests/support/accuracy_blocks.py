"""The tables of docs/accuracy.md from benchmarks/results/accuracy and bounds, and the parts of them on other pages."""

from __future__ import annotations

from math import log2

import numpy as np
from benchmark import accuracy_line, accuracy_lines, recorded
from block_forms import filled, tabled

_KINDS = {"normal": "zero-mean", "positive": "same-sign"}


def _error(k: int, data: str, accumulator: str = "QGMMA", promote_every: int | None = None) -> float:
    found = accuracy_line("over_k", k=k, data=data, accumulator=accumulator, promote_every=promote_every)
    return float(found["relative_error"])


def _percent(share: float) -> str:
    """Return two digits, without an exponent."""
    value = 100 * share
    return f"{np.format_float_positional(float(f'{value:.2g}'), trim='-')} %"


def accuracy_made() -> str:
    data = recorded("accuracy/h200.json")
    text = (
        f"`{data['command']}` computes the tables down to attention, except the first: {data['outputs']:,} outputs of each"
        f" product, {data['draws']} draws of operands, by the model measured on an H200 (`{data['like']}`). The command above"
        " each table prints the same numbers with confidence intervals. An error is the root mean square of d - x over that of"
        " the exact sums x. Zero-mean data are normal, same-sign data uniform in [0, 1), both rounded to e4m3."
    )
    return filled(text)


def same_sign() -> str:
    return _over_k("positive")


def zero_mean() -> str:
    return _over_k("normal")


def _over_k(data: str) -> str:
    """Return the errors by K; slope: of the error of unpromoted sums, on two logarithmic scales."""
    every = accuracy_lines("over_k", data=data, accumulator="QGMMA", promote_every=None)
    found, before = [each for each in every if log2(each["k"]) % 2], None
    table = []
    for each in found:
        k, own = each["k"], float(each["relative_error"])
        others = [_error(k, data, promote_every=128), *(_error(k, data, name) for name in ("14 bits to nearest", "f32"))]
        slope = f"{log2(own / before) / 2:.2f}" if before else ""
        table.append((f"{k:,}", _percent(own), slope, *map(_percent, others), _on_hardware(data, k)))
        before = own
    header = ("K", "never promoted", "slope", "every 128", "14 bits to nearest", "f32 chain", "mismatches on hardware")
    ks = ",".join(str(each["k"]) for each in found)
    return f"`accprobe budget QGMMA --k {ks} --data {data} --promote-every none,128`:\n\n{tabled(header, table)}"


def _on_hardware(data: str, k: int) -> str:
    """Return mismatches on hardware: never promoted, promoted every 128."""
    return ", ".join(
        f"{each['differ']:,}"
        for each in recorded("accuracy/h200-hardware.json")["lines"]
        if (each["data"], each["k"]) == (data, k)
    )


def on_hardware() -> str:
    found = recorded("accuracy/h200-hardware.json")
    words, differ = (sum(each[name] for each in found["lines"]) for name in ("words", "differ"))
    return filled(
        "`python benchmarks/accuracy_gpu.py` multiplies the same operands by `torch._scaled_mm`, with `use_fast_accum`"
        " (never promoted) and without (every 128), and compares each result with the model's; the last columns count"
        " mismatches. On"
        f" an {found['device']} (torch {found['torch']}, CUDA {found['cuda']}): {len(found['lines'])} products, {words:,}"
        f" results, {differ:,} mismatches. So these are the hardware's own errors."
    )


def intervals() -> str:
    """Return errors by promotion interval."""
    found = accuracy_lines("promotion", data="normal")
    k = found[0]["k"]
    table = []
    for each in sorted(found, key=lambda each: each["promote_every"] or k):
        every = each["promote_every"]
        shares = (accuracy_line("promotion", data=data, promote_every=every)["relative_error"] for data in _KINDS)
        table.append((f"{every:,}" if every else "never", *map(_percent, shares)))
    values = ",".join(str(each["promote_every"]).lower() for each in found)
    command = f"`accprobe budget QGMMA --k {k} --promote-every {values}`"
    return f"{command}:\n\n{tabled(('promotion interval', *_KINDS.values()), table)}"


def granularity() -> str:
    """Return quantisation errors by granularity of scales, of normal data and of data with outliers."""
    names = [each["scale"] for each in accuracy_lines("scales", data="normal")]
    text = f"`accprobe budget QGMMA --k 4096 --promote-every 128 --data normal,outliers --scale {','.join(names)}`:\n"
    for data in ("normal", "outliers"):
        table = []
        for each in accuracy_lines("scales", data=data):
            (integers,) = accuracy_lines("integers", data=data, scale=each["scale"]) or [None]
            snr = (f"{each['snr']:.1f}", f"{integers['snr']:.1f}" if integers else "")
            shares = (_percent(each[name]) for name in ("quantisation_error", "flushed", "saturated"))
            table.append((f"`{each['scale']}`", *snr, *shares, f"{each['scale_bytes']:.2g}"))
        header = (f"{data} data", "SNR", "as integers", "product off by", "flushed", "saturated", "bytes of scales")
        text += f"\n{tabled(header, table)}"
    return text


def attention_over_keys() -> str:
    """Return errors of attention by keys: of the accumulator, and of rounding alone."""
    of_sign = "attention, V in [0, 1)"
    every = [each["k"] for each in accuracy_lines("attention", data="attention", promote_every=None)]
    table, keys = [], [k for k in every if log2(k) % 2 == 0]
    for k in keys:
        cells = []
        for data in ("attention", of_sign):
            never, often = accuracy_lines("attention", data=data, k=k)
            cells += [never["relative_error"], often["relative_error"], never["quantisation_error"]]
        table.append((f"{k:,}", *map(_percent, cells)))
    values = ",".join(map(str, keys))
    command = f"`accprobe budget QGMMA --data attention --scale row --promote-every none,128 --k {values}`"
    ways = ("never promoted", "every 128", "rounding P, V")
    header = ("keys", *(f"{kind}: {way}" for kind in ("normal V", "V in [0, 1)") for way in ways))
    return f"{command} has the first columns:\n\n{tabled(header, table)}"


def drift_in_short() -> str:
    """Return the bias with and without promotion in one sentence."""
    never, often = (accuracy_line("promotion", data="positive", promote_every=every) for every in (None, 128))
    text = (
        f"A sum of K = {never['k']} products of e4m3 values between 0 and 1 is {_percent(-never['bias'])} too low, and"
        f" {_percent(-often['bias'])} with promotion every {often['promote_every']} products, by the model measured on an H200"
        " ([accuracy](docs/accuracy.md))."
    )
    return filled(text)


def bounds_held() -> str:
    """Return the results of benchmarks/bounds.py."""
    found = recorded("bounds/0.json")
    held = found["outputs"] - found["unbounded"]
    exceeding = "none exceeds" if not found["exceeding"] else f"{found['exceeding']:,} exceed"
    text = (
        f"{found['outputs']:,} outputs of {len(found['arithmetics'])} arithmetics, for operands with large errors: {held:,}"
        f" have a bound (sums of the others can exceed their format), and {exceeding} it."
    )
    largest = max(value for row in found["arithmetics"].values() for value in row["largest"].values())
    return filled(f"{text} The largest error is {largest:.2f} times its bound.")


def failures() -> str:
    """Return the failures of FP8, each with one number and a remedy."""
    softmax = accuracy_lines("softmax")[0]
    largest = accuracy_lines("outliers")[-1]["largest"]
    attention = accuracy_line("attention", data="attention", k=softmax["keys"], promote_every=None)
    plain, scaled = (accuracy_line("scales", data="outliers", scale=name) for name in ("none", "tensor"))
    one, fine = (accuracy_line("outliers", largest=largest, scale=name)["e4m3"] for name in ("tensor", "1x128"))
    rows = (
        (
            "saturation",
            "outliers without a scale",
            f"{_percent(plain['saturated'])} of A's numbers; the product is off by {_percent(plain['quantisation_error'])}",
            f"a scale: {_percent(scaled['quantisation_error'])}",
        ),
        (
            "flush to zero",
            f"softmax over {softmax['keys']:,} keys, divided by its sum, without a scale",
            f"{_percent(softmax['flushed'])} of P becomes 0",
            f"exp(s - max) times a scale, divided afterwards: the product is off by"
            f" {_percent(attention['quantisation_error'])}",
        ),
        (
            "outliers, one scale",
            f"one number of {largest:,.0f} among normal ones",
            f"the others are off by {_percent(one)}",
            f"a scale each 128: {_percent(fine)}",
        ),
        (
            "accumulator bias",
            "same-sign data, K = 16384",
            f"{_percent(_error(16384, 'positive'))} low",
            f"promotion every 128: {_percent(_error(16384, 'positive', promote_every=128))}",
        ),
    )
    return tabled(("failure", "shown by", "FP8 as it comes", "what helps"), rows)

"""Every number of docs/accuracy.md: what FP8 products lose, by the model that was measured on an H200.

    python benchmarks/accuracy.py -o benchmarks/results/accuracy/h200.json

Sums are exact emulations of e4m3 products, errors those that `accprobe budget` tells, of the same seeds; no GPU is asked:
benchmarks/accuracy_gpu.py asks one on the same operands. Beside the measured accumulator stand a plain chain of f32
multiply-adds, and what it is often taken for: 14 significant bits, rounded to nearest after every product.

- over K: each accumulator, zero-mean and same-sign operands;
- promotion: after how many products;
- scales: what operands lose, by how finely scales are shared; and if e4m3 numbers were 8-bit integers;
- outliers: what all other numbers lose beside one large one;
- failures: of FP8 as it comes, one number each;
- attention: P·V along many keys, of values of either sign and of one sign.

Prints each line; -o writes the same as JSON.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np

from accprobe.budget.accumulation import Accumulation, of_named
from accprobe.budget.data import OwnData, draw_values
from accprobe.budget.error_report import SEEDS, BudgetRequest, ErrorRow, entries
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import Singles
from accprobe.evaluate.quantised import SHARINGS, quantised_operand
from accprobe.isa.formats import FORMATS
from accprobe.model.product import multiply_add
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, Product

Line = dict[str, object]

QGMMA = of_named("QGMMA")
KEPT = 13
"""Fraction bits of its running sum."""

NEAREST = DotModel(FusedSum((Addend(), Product(0)), FloatArithmetic(FORMATS["f32"], KEPT, "RNE", None)))
"""No hardware: the same bits, rounded to nearest after every product."""

ACCUMULATORS: dict[str, tuple[Accumulation, tuple[int | None, ...]]] = {
    "QGMMA": (QGMMA, (None, 128)),
    "14 bits to nearest": (replace(QGMMA, step=NEAREST, pattern=(0,)), (None,)),
    "f32": (replace(QGMMA, step=multiply_add(), pattern=(0,)), (None,)),
}
"""Accumulations and their promotion intervals."""

KS = tuple(1 << i for i in range(7, 17))
DATA = ("normal", "same-sign")
PROMOTED_K = 16384
INTERVALS = (None, *(1 << i for i in range(5, 13)))
SCALED_K = 4096
KEYS = tuple(1 << i for i in range(10, 17))

ROWS, COLUMNS = 64, 4096
"""Shape of the matrices that are quantised."""

LARGEST = tuple(10.0**i for i in range(1, 7))
INTEGER_BLOCKS = {"tensor": 0, "row": COLUMNS, "1x128": 128}
"""Numbers that share a scale; 0: all."""


def over_k(ks: tuple[int, ...] = KS, data: tuple[str, ...] = DATA) -> Iterator[Line]:
    """Yield the errors over K. An interval that is no shorter than K promotes nothing: its line repeats the unpromoted sum."""
    for name, (accumulation, intervals) in ACCUMULATORS.items():
        found = [summed(entry) for entry in entries(accumulation, BudgetRequest(ks=ks, intervals=intervals, data=data))]
        by_plan = {(each["data"], each["k"], each["promote_every"]): each for each in found}
        for kind, k, every in product(data, ks, intervals):
            line = by_plan.get((kind, k, every)) or by_plan[kind, k, None] | {"promote_every": every}
            yield {"accumulator": name, **line}


def promotion() -> Iterator[Line]:
    for entry in entries(QGMMA, BudgetRequest(ks=(PROMOTED_K,), intervals=INTERVALS)):
        yield summed(entry)


def attention(keys: tuple[int, ...] = KEYS) -> Iterator[Line]:
    for k in keys:
        for data in ("attention", same_sign_values(k)):
            for entry in entries(QGMMA, BudgetRequest(ks=(k,), data=(data,), scales=("row",))):
                yield {**summed(entry), "quantisation_error": entry.quantisation_error}


def same_sign_values(k: int) -> OwnData:
    """The same P, and V in [0, 1)."""
    rng = np.random.default_rng(0)
    p, v = (draw_values(data, ROWS, ROWS, k, rng) for data in ("attention", "same-sign"))
    return OwnData("attention, V in [0, 1)", p.a, v.b)


def summed(entry: ErrorRow) -> Line:
    errors = entry.errors
    assert errors.relative_error_interval is not None
    return {
        "data": entry.data,
        "k": entry.k,
        "promote_every": entry.promote_every,
        "relative_error": errors.relative_error,
        "interval": list(errors.relative_error_interval),
        "bias": errors.bias,
    }


def scales() -> Iterator[Line]:
    """Yield the quantisation errors of A, and of the exact product of rounded operands."""
    for entry in entries(QGMMA, BudgetRequest((SCALED_K,), (128,), data=("normal", "outliers"), scales=tuple(SHARINGS))):
        yield {
            "data": entry.data,
            "scale": entry.scale,
            "quantisation_error": entry.quantisation_error,
            **{name: getattr(entry.a, name) for name in ("snr", "saturated", "flushed", "scale_bytes")},
        }


def integers() -> Iterator[Line]:
    """SNR of the same kinds of numbers as 8-bit integers times scales, in dB."""
    for data in ("normal", "outliers"):
        values = draw_values(data, ROWS, ROWS, COLUMNS, np.random.default_rng(0)).a
        for scale, block in INTEGER_BLOCKS.items():
            exact = values.astype(np.float64)
            lost = np.square(as_integers(values, block) - exact).sum() / np.square(exact).sum()
            yield {"data": data, "scale": scale, "snr": float(-10 * np.log10(lost))}


def as_integers(values: Singles, block: int) -> Floats:
    blocks = values.astype(np.float64).reshape(-1, block or values.size)
    steps = np.abs(blocks).max(axis=1, keepdims=True) / 127
    found: Floats = (np.rint(blocks / steps) * steps).reshape(values.shape)
    return found


def outliers() -> Iterator[Line]:
    """Yield the error of all numbers but one large one, relative to their root mean square."""
    for largest in LARGEST:
        values = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
        values[0, 0] = largest
        for scale, block in INTEGER_BLOCKS.items():
            of_a, _ = SHARINGS[scale] or (None, None)
            kept = {"e4m3": quantised_operand(of_a, QGMMA.a, values).values(), "s8": as_integers(values, block)}
            yield {"largest": largest, "scale": scale, **{name: lost_of_others(x, values) for name, x in kept.items()}}


def lost_of_others(kept: Floats, values: Singles) -> float:
    others, exact = kept.reshape(-1)[1:], values.astype(np.float64).reshape(-1)[1:]
    return float(np.sqrt(np.square(others - exact).sum() / np.square(exact).sum()))


def softmax() -> Line:
    """P as it is, divided by its sums, in e4m3 without a scale."""
    p = draw_values("attention", ROWS, 1, COLUMNS, np.random.default_rng(0)).a
    p /= p.sum(axis=1, keepdims=True)
    return {"keys": COLUMNS, **asdict(quantised_operand(None, QGMMA.a, p).fidelity(p))}


def accuracy() -> dict[str, list[Line]]:
    tables = {
        "over_k": over_k,
        "promotion": promotion,
        "scales": scales,
        "integers": integers,
        "outliers": outliers,
        "softmax": lambda: [softmax()],
        "attention": attention,
    }
    found: dict[str, list[Line]] = {}
    for name, table in tables.items():
        found[name] = []
        for line in table():
            found[name].append(line)
            print(f"{name}: {', '.join(f'{key} {value}' for key, value in line.items())}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the results as JSON too")
    options = parser.parse_args()
    found = accuracy()
    if options.output:
        command = shlex.join(["python", "benchmarks/accuracy.py", *sys.argv[1:]])
        asked = {
            "like": QGMMA.name,
            "seed": BudgetRequest().seed,
            "draws": SEEDS,
            "outputs": BudgetRequest().outputs,
            "matrix": [ROWS, COLUMNS],
        }
        options.output.parent.mkdir(parents=True, exist_ok=True)
        tables = ",\n".join(
            f' "{name}": [\n' + ",\n".join(f"  {json.dumps(line)}" for line in lines) + "\n ]" for name, lines in found.items()
        )
        head = json.dumps({"command": command, **asked}, indent=1)[:-2]
        options.output.write_text(f"{head},\n{tables}\n}}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

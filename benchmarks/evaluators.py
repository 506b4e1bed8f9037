"""How many multiply-accumulates a second the model evaluators reach on this machine's cores, and their peers beside them.

    python benchmarks/evaluators.py [--repeat N] [-o FILE]

For each instruction the same dot products go through numpy, through the compiled evaluator, and, where they are installed and
have a model of it, through mmaemu (PyPI) and MMA-Sim: a matrix product of M rows and N columns and the instruction's K, C = 0,
standard-normal operands. Every answer is compared with numpy's. Prints one line each: the best rate, the ratio to numpy's in
this run, and dot products that differ; -o writes the same as JSON. Exit status 1 where the compiled evaluator is slower than
its limit, or differs.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from accprobe.evaluate import evaluator
from accprobe.isa import families
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.report.models import named_models

LIMIT = 1e8
"""Multiply-accumulates a second on two cores, of QGMMA and HGMMA."""

ROWS = COLUMNS = 512

SLOW_COLUMNS = 64
"""Of the product that MMA-Sim gets: so many columns, and as many rows as the instruction has."""

CASES = {
    "wgmma.m64n8k32.f32.e4m3.e4m3": LIMIT,
    "wgmma.m64n8k16.f32.f16.f16": LIMIT,
    "mma.sync.m16n8k32.f32.e4m3.e4m3.f32": None,
    "mma.sync.m16n8k8.f32.tf32.tf32.f32": None,
    "mma.sync.m16n8k32.s32.s8.s8.s32": None,
    "mma.sync.m16n8k4.f64.f64.f64.f64": None,
}
"""By instruction of the report h200, the limit."""

Answer = Callable[[], Bits]
"""One implementation's product, as bit patterns [ROWS, COLUMNS], or its first rows and columns."""


def operands(inst: Instruction) -> tuple[np.ndarray, np.ndarray]:
    """a [ROWS, K], b [COLUMNS, K]: values."""
    rng, dtypes = np.random.default_rng(0), [np.dtype(fmt.ml_dtype) for fmt in (inst.a, inst.b)]
    shapes = ((ROWS, inst.k), (COLUMNS, inst.k))
    if inst.is_integer:
        a, b = (rng.integers(-128, 128, shape) for shape in shapes)
    else:
        a, b = (rng.standard_normal(shape) for shape in shapes)
    return a.astype(dtypes[0]), b.astype(dtypes[1])


def own(inst: Instruction, model: DotModel, a: np.ndarray, b: np.ndarray) -> Iterator[tuple[str, Answer]]:
    every_a = np.repeat(a.view(inst.a.dtype), len(b), axis=0)
    every_b = np.tile(b.view(inst.b.dtype), (len(a), 1))
    c, shape = np.zeros(len(every_a), inst.c.dtype), (len(a), len(b))
    yield "numpy", lambda: evaluator.with_numpy(model, inst, Request(every_a, every_b, c)).reshape(shape)
    try:
        from accprobe.evaluate import compiled as fast_evaluator
    except ImportError:
        return
    yield "numba", lambda: fast_evaluator.evaluate(model, inst, Request(every_a, every_b, c)).reshape(shape)


def peers(inst: Instruction, a: np.ndarray, b: np.ndarray) -> Iterator[tuple[str, Answer]]:
    """What mmaemu and MMA-Sim have of the instruction; nothing where they are not installed."""
    if inst.family is not families.WGMMA or inst.is_integer:
        return
    try:
        import torch
    except ImportError:
        return
    names = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "f16": "float16", "bf16": "bfloat16"}
    x, y = (torch.from_numpy(v.astype(np.float32)).to(getattr(torch, names[inst.a.name])) for v in (a, b))
    if inst.a.bits == 8:
        try:
            import mmaemu
        except ImportError:
            pass
        else:
            options = {"use_fast_accum": True, "profile": "hopper", "splitk": 1, "backend": "reference"}
            yield "mmaemu", lambda: patterns(mmaemu.accumulate(x, y, **options))
    try:
        from mmasim.nv_ptx.sim import WGMMA
    except ImportError:
        return
    unit = WGMMA("Hopper", inst.name.removeprefix("wgmma."))
    x, y, zero = x[: inst.m], y[:SLOW_COLUMNS], torch.zeros((inst.m, inst.n))
    parts = range(0, len(y), inst.n)
    yield "MMA-Sim", lambda: patterns(torch.hstack([unit(x, y[i : i + inst.n].T, zero) for i in parts]))


def patterns(d: Any) -> Bits:
    return np.asarray(d.contiguous().numpy().view(np.uint32))


def measured(inst: Instruction, repeat: int) -> Iterator[dict[str, object]]:
    a, b = operands(inst)
    reference, rate_of_numpy = None, 0.0
    for name, answer in (*own(inst, named_models("h200")[inst], a, b), *peers(inst, a, b)):
        times = []
        d = answer()
        for _ in range(repeat):
            started = time.perf_counter()
            answer()
            times.append(time.perf_counter() - started)
        rate = d.size * inst.k / min(times)
        if reference is None:
            reference, rate_of_numpy = d, rate
        yield {
            "instruction": inst.name,
            "with": name,
            "macs_per_second": round(rate),
            "ratio": round(rate / rate_of_numpy, 2),
            "differ": int((d != reference[: d.shape[0], : d.shape[1]]).sum()),
            "limit": CASES[inst.name] if name == "numba" else None,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of each, of which the best counts (5)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the results as JSON too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = []
    for name in CASES:
        for result in measured(parse(name), options.repeat):
            results.append(result)
            rate, ratio = float(str(result["macs_per_second"])), float(str(result["ratio"]))
            print(f"{name:40} {result['with']!s:14} {rate:9.2e} MAC/s  {ratio:6.2f} × numpy  {result['differ']} differ")
    if options.output:
        packages = {name: version for name in ("numpy", "numba", "mmaemu", "mmasim") if (version := installed(name))}
        host = {"cpu_cores": len(os.sched_getaffinity(0)), "python": sys.version.split()[0], **packages}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(f"  {json.dumps(result)}" for result in results)
        options.output.write_text(f'{{\n "host": {json.dumps(host)},\n "results": [\n{lines}\n ]\n}}\n')
    return 1 if any(failed(result) for result in results) else 0


def installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def failed(result: dict[str, object]) -> bool:
    limit = result["limit"]
    slow = limit is not None and float(str(result["macs_per_second"])) < float(str(limit))
    return slow or (result["with"] == "numba" and bool(result["differ"]))


if __name__ == "__main__":
    sys.exit(main())

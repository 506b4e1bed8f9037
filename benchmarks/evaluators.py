"""How many multiply-accumulates a second the model evaluators reach on this machine's cores, and their peers beside them.

    python benchmarks/evaluators.py [--repeat N] [-o FILE]

For each instruction, every evaluator computes the same matrix product: a chain along K = 1024, C = 0, standard-normal operands.
The evaluators are numpy, tiles on one core, and tiles on all cores. mmaemu and MMA-Sim (both PyPI) follow if they are installed
and have a model of the instruction. Every result is compared with numpy's.
Prints one line each: the best rate, the ratio to numpy's rate in this run, and outputs that differ; -o writes the same as JSON.
On one core processor time counts, since others may use a shared machine. Exit status 1: tiles on one core are slower than their
limit, or differ.
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
from typing import Any, NamedTuple

import numpy as np

from accprobe.evaluate import evaluator, tiles
from accprobe.evaluate.steps import step_of
from accprobe.evaluate.tiles import share_cores
from accprobe.isa import families
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.report.names import named_models

CHAIN, FLOAT = 2e9, 5e8
"""Multiply-accumulates a second on one core: of QGMMA, of any other float model."""

ROWS = COLUMNS = 256

PRODUCTS = 1024
"""K."""

SLOW = 0.5
"""Seconds of a run after which there is no other."""

SLOW_COLUMNS = 8
"""Columns of the product that MMA-Sim gets. It has as many rows as the instruction."""

CASES = {
    "wgmma.m64n8k32.f32.e4m3.e4m3": CHAIN,
    "wgmma.m64n8k16.f32.f16.f16": FLOAT,
    "mma.sync.m16n8k16.f32.bf16.bf16.f32": FLOAT,
    "mma.sync.m16n8k32.f32.e4m3.e4m3.f32": FLOAT,
    "mma.sync.m16n8k8.f32.tf32.tf32.f32": FLOAT,
    "mma.sync.m16n8k4.f64.f64.f64.f64": FLOAT,
    "mma.sync.m16n8k32.s32.s8.s8.s32": None,
}
"""By instruction of the report h200, the limit on one core."""


class Way(NamedTuple):
    """An implementation, on so many cores; its product, as bit patterns [ROWS, COLUMNS], or its first rows and columns."""

    name: str
    cores: int
    answer: Callable[[], Bits]


def operands(inst: Instruction) -> tuple[np.ndarray, np.ndarray]:
    """a [ROWS, K], b [COLUMNS, K]: values."""
    rng, dtypes = np.random.default_rng(0), [np.dtype(fmt.ml_dtype) for fmt in (inst.a, inst.b)]
    shapes = ((ROWS, PRODUCTS), (COLUMNS, PRODUCTS))
    if inst.is_integer:
        a, b = (rng.integers(-128, 128, shape) for shape in shapes)
    else:
        a, b = (rng.standard_normal(shape) for shape in shapes)
    return a.astype(dtypes[0]), b.astype(dtypes[1])


def own(inst: Instruction, model: DotModel, a: np.ndarray, b: np.ndarray) -> Iterator[Way]:
    of_a, of_b = a.view(inst.a.dtype), b.view(inst.b.dtype)

    def by_numpy() -> Bits:
        running = np.zeros(len(a) * len(b), inst.c.dtype)
        for k in range(0, PRODUCTS, inst.k):
            some = slice(k, k + inst.k)
            rows, columns = np.repeat(of_a[:, some], len(b), axis=0), np.tile(of_b[:, some], (len(a), 1))
            running = evaluator.with_numpy(model, inst, Request(rows, columns, running))
        return running.reshape(len(a), len(b))

    yield Way("numpy", 1, by_numpy)
    step = step_of(model, inst)
    if step is not None:
        start = np.zeros((len(a), len(b)), inst.c.dtype)
        for n in counts():
            yield Way("tiles", n, lambda: tiles.sums(step, inst, of_a, of_b, start)[0])


def counts() -> list[int]:
    """Return the numbers of cores to use: one, and all."""
    return sorted({1, len(os.sched_getaffinity(0))})


def peers(inst: Instruction, a: np.ndarray, b: np.ndarray) -> Iterator[Way]:
    """Yield the evaluators of mmaemu and MMA-Sim that are installed and have a model of the instruction."""
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
            for n in counts():
                yield Way("mmaemu", n, lambda: patterns(mmaemu.accumulate(x, y, **options)))
    try:
        from mmasim.nv_ptx.sim import WGMMA
    except ImportError:
        return
    unit = WGMMA("Hopper", inst.name.removeprefix("wgmma."))

    def chain(columns: Any) -> Any:
        d = torch.zeros((inst.m, inst.n))
        for k in range(0, PRODUCTS, inst.k):
            d = unit(x[: inst.m, k : k + inst.k], columns[:, k : k + inst.k].T, d)
        return d

    parts = range(0, SLOW_COLUMNS, inst.n)
    yield Way("MMA-Sim", 1, lambda: patterns(torch.hstack([chain(y[i : i + inst.n]) for i in parts])))


def patterns(d: Any) -> Bits:
    return np.asarray(d.contiguous().numpy().view(np.uint32))


def seconds(way: Way, repeat: int) -> tuple[float, Bits]:
    """The best time, and the answer, on that many cores."""
    share_cores(len(os.sched_getaffinity(0)) // way.cores)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(way.cores)
    clock = time.process_time if way.cores == 1 else time.perf_counter
    d, best = way.answer(), float("inf")
    for _ in range(repeat):
        started = clock()
        way.answer()
        best = min(best, clock() - started)
        if best > SLOW:
            break
    return best, d


def measured(inst: Instruction, repeat: int) -> Iterator[dict[str, object]]:
    a, b = operands(inst)
    reference, rate_of_numpy = None, 0.0
    for way in (*own(inst, named_models("h200")[inst], a, b), *peers(inst, a, b)):
        took, d = seconds(way, repeat)
        rate = d.size * PRODUCTS / took
        if reference is None:
            reference, rate_of_numpy = d, rate
        yield {
            "instruction": inst.name,
            "with": way.name,
            "cores": way.cores,
            "macs_per_second": round(rate),
            "ratio": round(rate / rate_of_numpy, 2),
            "differ": int((d != reference[: d.shape[0], : d.shape[1]]).sum()),
            "limit": CASES[inst.name] if (way.name, way.cores) == ("tiles", 1) else None,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20, metavar="N", help="runs of each; the best counts (20)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the results as JSON too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = []
    for name in CASES:
        for result in measured(parse(name), options.repeat):
            results.append(result)
            rate, ratio = float(str(result["macs_per_second"])), float(str(result["ratio"]))
            way = f"{result['with']}, {result['cores']}"
            print(f"{name:40} {way:14} {rate:9.2e} MAC/s  {ratio:6.2f} × numpy  {result['differ']} differ")
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
    return slow or (result["with"] == "tiles" and bool(result["differ"]))


if __name__ == "__main__":
    sys.exit(main())

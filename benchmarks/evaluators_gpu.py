"""How many multiply-accumulates a second the evaluators reach on a GPU, what its units would allow, and mmaemu beside them.

    python benchmarks/evaluators_gpu.py [--device N] [--dots 1e10] [-o FILE]

Ceilings: fused multiply-adds of float32 and float64 and integer instructions (LOP3) per second, of all threads. Also products
with operands in registers, each a multiply-add and half a comparison of exponents.
Chains: a matrix product of 8192 x 8192 x 4096 by the evaluator, and once more if matrix units can find the exponents. For QGMMA
also mmaemu's `accumulate` (PyPI) on the same operands, if it is installed. The results are compared with each other, and some
with the CPU's evaluator.
Dots: 16384 x 16384 dot products of one instruction, with C, by the evaluator alone. Then the dot products per second of
`verify`, which also draws the operands, runs the hardware and compares.

Prints a line each; -o writes the same as JSON. Exit status 1: something differs, QGMMA is not faster than mmaemu was, or a
model is slower than the common limit in both ways.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from accprobe.build import compiler
from accprobe.devices.cuda import CudaDevice
from accprobe.evaluate.cuda.launch import Drawing, Evaluator
from accprobe.evaluate.cuda.source import plan, source
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.tree import DotModel
from accprobe.operands.drawing import recipes
from accprobe.operands.request import Request
from accprobe.report.names import named_models
from accprobe.verify.bulk import prepare_to_verify, verify

QGMMA = "wgmma.m64n256k32.f32.e4m3.e4m3"
PEER = 6.6e12
"""Multiply-accumulates a second of mmaemu 0.1.0 on an H200."""

LIMIT = 1e12
"""Minimum rate of every model, in multiply-accumulates per second."""

SIDE, DEPTH = 8192, 4096
DOTS_SIDE = 16384
CORNER = 24
VERIFIED = (
    QGMMA,
    "wgmma.m64n256k32.f32.e5m2.e5m2",
    "wgmma.m64n256k16.f32.f16.f16",
    "mma.sync.m16n8k16.f32.f16.f16.f32",
    "mma.sync.m16n8k16.f32.bf16.bf16.f32",
    "mma.sync.m16n8k8.f32.tf32.tf32.f32",
    "mma.sync.m16n8k32.f32.e4m3.e4m3.f32",
)
MEASURED = (
    *VERIFIED,
    "mma.sync.m16n8k16.f16.f16.f16.f16",
    "mma.sync.m16n8k16.f64.f64.f64.f64",
    "mma.sync.m16n8k32.s32.s8.s8.s32",
)
PLANTED: dict[str, dict[str, Any]] = {
    "alignment_rounding": {"alignment_rounding": "sticky"},
    "product_exponent": {"product_exponent": "normalised product"},
}
"""Models that no hardware is known to have: QGMMA's with one field changed."""


class Bench:
    """One GPU."""

    def __init__(self, device: CudaDevice) -> None:
        import cupy

        self.cupy, self.device = cupy, device
        self.sms = int(str(device.describe()["sm_count"]))

    def seconds(self, run: Callable[[], object], repeat: int = 3) -> float:
        """The shortest of some runs, after one more."""
        run()
        times = []
        for _ in range(repeat):
            start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(self.cupy.cuda.get_elapsed_time(start, end) / 1e3)
        return float(min(times))

    def ceilings(self) -> dict[str, int]:
        code = Path(__file__).with_name("ceilings.cu").read_text(encoding="utf-8")
        module = self.cupy.RawModule(path=str(compiler.compile_source(code, self.device.architecture, "ceilings").path))
        out, rounds, blocks = self.cupy.zeros(1, np.float32), 400, 8 * self.sms
        arguments = (out, np.int32(rounds), np.float32(1.0000001), np.float32(1e-9))
        rates = {}
        for name in ("ffma", "dfma", "integer", "products"):
            function = module.get_function(name)
            elapsed = self.seconds(partial(function, (blocks,), (256,), arguments))
            rates[name] = round(blocks * 256 * rounds * 128 / elapsed)
        return rates

    def operands(self, inst: Instruction, side: int, blocks: int) -> tuple[Any, Any, Any]:
        """Standard-normal ones: A and B [side, blocks * K], C [side, side] or, of a chain, None."""
        wide = replace(inst, k=inst.k * blocks)
        a, b = (self.cupy.empty((side, wide.k), fmt.dtype) for fmt in (inst.a, inst.b))
        c = self.cupy.empty((side, side), inst.c.dtype) if blocks == 1 else None
        recipe = recipes(inst)["uniform" if inst.is_integer else "normal"]
        Drawing(self.cupy, wide, self.device.architecture, 0).draw(recipe, 0, a, b, c)
        return a, b, c

    def rate(
        self, inst: Instruction, model: DotModel, side: int, blocks: int, units: bool
    ) -> tuple[dict[str, Any], tuple[Any, Any, Any]]:
        """The evaluator alone: what it reaches, and (A, B, result). The result's corner is compared with the CPU's."""
        single = blocks > 1
        evaluator = Evaluator(self.cupy, inst, model, self.device.architecture, single, units)
        a, b, c = self.operands(inst, side, blocks)
        d = self.cupy.empty((side, side), inst.d.dtype)
        elapsed = self.seconds(lambda: evaluator.evaluate(a, b, c, d, blocks))
        differ = int((d[:CORNER, :CORNER].get() != corner(inst, model, a, b, c)).sum())
        how = plan(model, inst, single, units)
        held = ("float32" if how.single else "float64") if how.tiled else "integers"
        macs = round(side * side * inst.k * blocks / elapsed)
        return {"macs_per_second": macs, "sums_in": held, "differ": differ}, (a, b, d)


def corner(inst: Instruction, model: DotModel, a: Any, b: Any, c: Any) -> Any:
    """The first rows and columns of a · b + c, by the CPU's evaluator."""
    x, y = a[:CORNER].get(), b[:CORNER].get()
    d = np.zeros(CORNER * CORNER, inst.c.dtype) if c is None else c[:CORNER, :CORNER].get().reshape(-1)
    for k in range(0, x.shape[1], inst.k):
        block = np.repeat(x[:, k : k + inst.k], CORNER, 0), np.tile(y[:, k : k + inst.k], (CORNER, 1))
        d = evaluate(model, inst, Request(*block, d))
    return d.reshape(CORNER, CORNER)


def peer(a: Any, b: Any, d: Any) -> dict[str, Any]:
    """mmaemu's product of the same operands, or why there is none."""
    try:
        import mmaemu
        import torch
    except ImportError as e:
        return {"missing": f"not installed: {e.name}"}
    x, y, own = (torch.as_tensor(array, device="cuda") for array in (a, b, d.view(np.int32)))
    x, y = x.view(torch.float8_e4m3fn), y.view(torch.float8_e4m3fn)
    best = float("inf")
    for _ in range(3):
        torch.cuda.synchronize()
        started = time.perf_counter()
        theirs = mmaemu.accumulate(x, y, use_fast_accum=True, splitk=1)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    rate = round(x.shape[0] * y.shape[0] * x.shape[1] / best)
    return {"macs_per_second": rate, "differ": int((theirs.view(torch.int32) != own).sum())}


def measured(bench: Bench, dots: int) -> dict[str, Any]:
    models = {parse(name): model for name in MEASURED for model in [named_models("h200")[parse(name)]]}
    results: dict[str, Any] = {"ceilings": bench.ceilings(), "chains": [], "dots": [], "on_matrix_units": [], "verified": []}
    print("ceilings   " + ", ".join(f"{name} {rate:.3g}/s" for name, rate in results["ceilings"].items()), flush=True)
    qgmma, planted = parse(QGMMA), []
    for field, change in PLANTED.items():
        model = models[qgmma].with_arithmetic(lambda a, change=change: replace(a, **change))
        planted.append((qgmma, model, field))
    every = [*((inst, model, None) for inst, model in models.items()), *planted]
    chains = [(source(model, inst, True, units), inst.name) for inst, model, _ in every for units in (False, True)]
    prepare_to_verify(bench.device, models)
    compiler.fill_cache(chains, bench.device.architecture)
    for inst, model, field in every:
        about = {"instruction": inst.name, "changed": PLANTED[field] if field else None}
        ways = [("chains", SIDE, DEPTH // inst.k, False), ("dots", DOTS_SIDE, 1, False)]
        if plan(model, inst, True, True).base:
            ways.append(("on_matrix_units", SIDE, DEPTH // inst.k, True))
        for way, side, blocks, units in ways:
            row, (a, b, d) = bench.rate(inst, model, side, blocks, units)
            shown = f"{row['macs_per_second']:.3g} MAC/s in {row['sums_in']}, {row['differ']} differ"
            if way == "chains" and inst is qgmma and not field:
                theirs = peer(a, b, d)
                ratio = row["macs_per_second"] / theirs["macs_per_second"] if "macs_per_second" in theirs else None
                row |= {"mmaemu": theirs, "ratio_to_mmaemu": ratio and round(ratio, 3)}
                shown += f"; mmaemu {theirs}, ratio {row['ratio_to_mmaemu']}"
            results[way].append(about | row)
            print(f"{way:15} {inst.name} {field or ''}  {shown}", flush=True)
            del a, b, d
            bench.cupy.get_default_memory_pool().free_all_blocks()
    for name in VERIFIED:
        inst = parse(name)
        verify(bench.device, inst, models[inst], 1)
        started = time.perf_counter()
        done = verify(bench.device, inst, models[inst], dots)
        elapsed = time.perf_counter() - started
        row = {"instruction": name, "dots": done.compared, "mismatches": done.mismatches, "kinds": done.kinds, "seed": 0}
        row |= {"dots_per_second": round(done.compared / elapsed), "macs_per_second": round(done.compared * inst.k / elapsed)}
        results["verified"].append(row)
        speed = f"{row['dots_per_second']:.3g} dots/s"
        print(f"verified   {name}  {done.compared:,} dots, {done.mismatches} differ, {speed}", flush=True)
    return results


def failures(results: dict[str, Any]) -> list[str]:
    """Return a sentence for each failed expectation."""
    ways = ("chains", "dots", "on_matrix_units")
    found = [f"{row['instruction']}: {row['differ']} differ" for way in ways for row in results[way] if row["differ"]]
    found += [f"{row['instruction']}: {row['mismatches']} mismatches" for row in results["verified"] if row["mismatches"]]
    for chain, dots in zip(results["chains"], results["dots"], strict=True):
        if max(chain["macs_per_second"], dots["macs_per_second"]) < LIMIT:
            found.append(f"{chain['instruction']} {chain['changed'] or ''}: below {LIMIT:.0e} MAC/s")
    if results["chains"][0]["macs_per_second"] <= PEER:
        found.append(f"{QGMMA}: not above {PEER:.2g} MAC/s")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0, metavar="N", help="the GPU (0)")
    parser.add_argument("--dots", type=lambda text: int(float(text)), default=10**10, help="of each verification (1e10)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the results as JSON too")
    options = parser.parse_args()
    device = CudaDevice(options.device)
    results = measured(Bench(device), options.dots)
    if options.output:
        about = {"device": device.name, **device.describe(), **device.environment(), "mmaemu": installed("mmaemu")}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({"host": about, **results}, indent=1) + "\n")
    for failure in failures(results):
        print(f"! {failure}")
    return 1 if failures(results) else 0


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())

"""How much of a GPU's tensor throughput `accprobe health` keeps busy and compares, beside torch's GEMM in the same run.

    python benchmarks/health_gpu.py [--device N] [--seconds 5] [--unit fp8]… [--chains 2,4,8] [--planted] [-o FILE]

For each unit, torch computes a matrix product of 8192 x 8192 x 8192 (float8 by `_scaled_mm`, int8 by `_int_mm`), in turns with
the check's chains. The output has the operations per second of both (two a product), the results compared per minute, the
mismatches, and the power of both. A sparse unit is compared with the dense product of its format. Its operations include the
ones that it skips.
--chains: lengths of a chain to try. --planted: a kernel that errs in one element of one SM for one pair of operands in about
65,536, until it is found, named and shrunk. Prints a line each; -o writes the same as JSON. Exit status 1: an unexpected
mismatch, a unit below SHARE of the GEMM, or a planted error that is not found within a minute.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from emulated_golden import Planted, planted_source

from accprobe.build.golden import GoldenShape, golden_shape
from accprobe.devices.cuda import CudaDevice
from accprobe.errors import ToolMissing
from accprobe.health.check import trusted
from accprobe.health.golden import GoldenBench, prepare_golden
from accprobe.health.outcome import Load
from accprobe.health.plan import chosen
from accprobe.health.sensors import Nvml, Watch
from accprobe.isa.instructions import in_a_row
from accprobe.render.subjects.instruction import mismatch

SHARE = 0.8
LONGER = {"f64": 4}
"""Units that are checked for so many times as long as others: until each kind of operands has come."""

SIDE = 8192
A_MINUTE = 60.0


def gemm(unit: str) -> Callable[[], Any]:
    """One dense product by torch on random operands."""
    unit = unit.removesuffix("-sparse")
    x, y = (torch.randn(SIDE, SIDE, device="cuda") for _ in range(2))
    if unit == "fp8":
        a, b = x.to(torch.float8_e4m3fn), y.to(torch.float8_e4m3fn).t()
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
    if unit == "int8":
        a, b = (torch.randint(-128, 128, (SIDE, SIDE), device="cuda", dtype=torch.int8) for _ in range(2))
        return lambda: torch._int_mm(a, b.t())
    if unit == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
        return lambda: x @ y
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}[unit]
    a, b = x.to(dtype), y.to(dtype)
    return lambda: a @ b


def gemm_rate(unit: str, seconds: float) -> float:
    """Operations a second."""
    run = gemm(unit)
    run()
    torch.cuda.synchronize()
    started, times = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        for _ in range(4):
            run()
        times += 4
        torch.cuda.synchronize()
    return 2 * SIDE**3 * times / (time.monotonic() - started)


def watched(nvml: Nvml | None, work: Callable[[], Any]) -> tuple[Any, Load]:
    if nvml is None:
        return work(), Load()
    watch = Watch(nvml)
    try:
        done = work()
        return done, watch.load
    finally:
        watch.stop()


def measured(
    device: CudaDevice, nvml: Nvml | None, unit: str, shape: GoldenShape, model: Any, seconds: float
) -> dict[str, Any]:
    bench = GoldenBench(device, shape.inst, model, 0, shape)
    bench.turn(0.5)
    rate, gemm_load = watched(nvml, lambda: gemm_rate(unit, seconds))
    torch.cuda.empty_cache()
    turn, load = watched(nvml, lambda: bench.turn(seconds * LONGER.get(unit, 1)))
    again = gemm_rate(unit, seconds / 2)
    torch.cuda.empty_cache()
    ours = 2 * turn.computed * shape.inst.k / turn.seconds
    gemm_mean = (2 * rate + again) / 3
    return {
        "unit": unit,
        "instruction": shape.inst.name,
        "chain": shape.chain,
        "tops": round(ours / 1e12, 1),
        "gemm_tops": round(gemm_mean / 1e12, 1),
        "share": round(ours / gemm_mean, 3),
        "compared_a_minute": turn.dots / turn.seconds * 60,
        "dots": turn.dots,
        "wrong": sum(turn.wrong_by_sm.values()),
        "vanished": turn.vanished,
        "sms": turn.sms,
        "watts": load.power,
        "gemm_watts": gemm_load.power,
        "lowest_clock": load.lowest_sm_clock,
        "first": [
            (str(seen.place), mismatch(in_a_row(shape.inst, seen.chain), seen.found), seen.found.kind) for seen in turn.seen[:3]
        ],
    }


def planted_found(device: CudaDevice, unit: str, shape: GoldenShape, model: Any) -> dict[str, Any]:
    """A kernel that errs on SM 17: found when, named how, shrunk to what."""
    low = shape.inst.a.ignored_low_bits
    planted = Planted(sm=17, thread=37, register=5, bit=3, word=2, mask=0xFF << low, a=0x39 << low, b=0xBB << low)
    with patch("accprobe.health.golden.golden_source", partial(planted_source, planted=planted)):
        bench = GoldenBench(device, shape.inst, model, 1, shape)
    started, dots = time.monotonic(), 0
    while time.monotonic() - started < A_MINUTE:
        turn = bench.turn(1.0)
        dots += turn.dots
        if turn.seen:
            break
    else:
        return {"unit": unit, "found": False, "dots": dots, "wrong": sum(turn.wrong_by_sm.values())}
    found_after = time.monotonic() - started
    seen = turn.seen[0]
    differed = bench.again(seen, 1000)
    smallest = bench.smallest(seen)
    whole = in_a_row(shape.inst, seen.chain)
    return {
        "unit": unit,
        "found": True,
        "seconds_to_find": round(found_after, 2),
        "seconds_to_shrink": round(time.monotonic() - started - found_after, 2),
        "dots": dots,
        "wrong_by_sm": dict(turn.wrong_by_sm),
        "place": seen.place.model_dump(),
        "again": f"{differed} of 1000",
        "smallest": mismatch(whole, smallest) if smallest else None,
        "right_place": (seen.place.sm, seen.place.warp, seen.place.lane, seen.place.register_of_lane) == (17, 1, 5, 5),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--unit", action="append")
    parser.add_argument("--chains", default="")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    device = CudaDevice(asked.device)
    torch.cuda.set_device(asked.device)
    known = trusted(device, None)
    units = {unit: inst for unit, inst in chosen(device, known.models).items() if not asked.unit or unit in asked.unit}
    try:
        nvml = Nvml(device.uuid())
    except ToolMissing as e:
        print(e)
        nvml = None
    prepare_golden(device, {inst: known.models[inst] for inst in units.values()})
    rows, plants, bad = [], [], False
    for unit, inst in units.items():
        usual = golden_shape(inst)
        for chain in map(int, asked.chains.split(",")) if asked.chains else [usual.chain]:
            row = measured(device, nvml, unit, replace(usual, chain=chain), known.models[inst], asked.seconds)
            print(json.dumps(row), flush=True)
            rows.append(row)
            bad |= bool(row["wrong"]) or (chain == usual.chain and row["share"] < SHARE)
        if asked.planted:
            plant = planted_found(device, unit, usual, known.models[inst])
            print(json.dumps(plant), flush=True)
            plants.append(plant)
            bad |= not (plant["found"] and plant["right_place"])
    if asked.output:
        data = {"gpu": device.name, "environment": device.environment(), "side": SIDE, "units": rows, "planted": plants}
        asked.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())

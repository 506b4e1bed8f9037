"""How long commands take, beside the limits that accprobe sets itself.

    python benchmarks/commands.py [--device cuda:0] [--repeat N] [-o FILE]

Without a device: commands that need no GPU. With one: `accprobe run` on it, first with an empty cubin cache, then with that
cache warm, and `accprobe gemm` of large products. All outputs of these products are verified. Prints one line for each command:
the best wall time, the limit, and their ratio (below 1 is within); -o writes the same as JSON. Exit status 1: a command is
slower than its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HELP, SIMULATED, DIFF, PAGE = 0.3, 10.0, 1.0, 2.0
"""Seconds, on two CPU cores."""

COLD, WARM = 60.0, 15.0
"""Seconds for every instruction of a GPU: with an empty cubin cache, and with a warm one."""

GEMM_ON_CPU, GEMM_ON_GPU = 30.0, 15.0
"""Seconds for a product of 1024³ on two CPU cores, and of 4096³ on a GPU."""

ON_GPU = ("torch:mm --dtype bf16", "torch:_scaled_mm --dtype e4m3 --out bf16 --scale tensor --option use_fast_accum=False")


def seconds(arguments: str, **environment: str) -> float:
    """Wall time of one run of the command."""
    command = [sys.executable, "-m", "accprobe", *arguments.split()]
    started = time.perf_counter()
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, env=os.environ | environment
    )
    if done.returncode not in (0, 1):
        sys.exit(f"accprobe {arguments} failed: {done.stderr.strip()}")
    return time.perf_counter() - started


def without_gpu(repeat: int) -> Iterator[dict[str, object]]:
    limits = {"--help": HELP, "run --device sim:h100": SIMULATED}
    limits |= {"diff h200 sim:b200": DIFF, "diff h200 sim:h100": DIFF, "show h200 --format html": PAGE}
    limits |= {"gemm numpy:matmul --shape 1024x1024x1024": GEMM_ON_CPU}
    for arguments, limit in limits.items():
        yield result(f"accprobe {arguments}", "", [seconds(arguments) for _ in range(repeat)], limit)


def with_gpu(device: str, repeat: int) -> Iterator[dict[str, object]]:
    arguments = f"run --device {device}"
    cold = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(seconds(arguments, ACCPROBE_CACHE_DIR=folder))
            warm = [seconds(arguments, ACCPROBE_CACHE_DIR=folder) for _ in range(repeat)]
    yield result(f"accprobe {arguments}", "empty cache", cold, COLD)
    yield result(f"accprobe {arguments}", "warm cache", warm, WARM)
    for product in ON_GPU:
        arguments = f"gemm {product} --shape 4096x4096x4096 --elements {4096**2} --device {device}"
        yield result(f"accprobe {arguments}", "every output", [seconds(arguments) for _ in range(repeat)], GEMM_ON_GPU)


def result(command: str, state: str, times: list[float], limit: float) -> dict[str, object]:
    return {"command": command, "state": state, "seconds": round(min(times), 3), "runs": len(times), "limit": limit}


def host(device: str | None) -> dict[str, object]:
    """Return facts about the machine, without its name."""
    facts: dict[str, object] = {"cpu_cores": len(os.sched_getaffinity(0)), "python": sys.version.split()[0]}
    if device:
        from accprobe.devices import open_device

        opened = open_device(device)
        facts |= {"device": opened.name, "architecture": opened.architecture}
    return facts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", metavar="cuda:N", help="measure `accprobe run` on this GPU")
    parser.add_argument("--repeat", type=int, metavar="N", help="runs of each; the best counts (3; 1 on a GPU)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the results as JSON too")
    options = parser.parse_args()
    repeat = options.repeat or (1 if options.device else 3)
    results = []
    for measured in with_gpu(options.device, repeat) if options.device else without_gpu(repeat):
        results.append(measured)
        taken, limit = float(str(measured["seconds"])), float(str(measured["limit"]))
        label = " ".join(filter(None, (measured["command"], measured["state"])))
        print(f"{label:44} {taken:8.3f} s  limit {limit:5.1f} s  ratio {taken / limit:.2f}")
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(f"  {json.dumps(measured)}" for measured in results)
        options.output.write_text(f'{{\n "host": {json.dumps(host(options.device))},\n "results": [\n{lines}\n ]\n}}\n')
    return 1 if any(float(str(r["seconds"])) > float(str(r["limit"])) for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())

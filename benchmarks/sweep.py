"""How long one configuration of `accprobe sweep` takes, with all 24 masks on both operand sets, beside the limit.

    python benchmarks/sweep.py --device cuda:0 [-o FILE]

Sweeps fp8 configurations, first with an empty cache of compiled kernels, then with that cache warm. The difference is the time
to compile. Seconds are the time of the whole command divided by the number of configurations. Exit status 1: they are over the
limit.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from commands import host, seconds

from accprobe.report.words import percent

LIMIT = 0.5
"""Seconds a configuration, compiling included."""

DTYPES, BLOCK_KS, WARPS = ("e4m3", "e5m2"), (32, 64, 128, 256, 512), (2, 4, 8)


def measure(device: str) -> list[dict[str, object]]:
    """Return the two results, in the form that `commands.py` uses."""
    count = len(DTYPES) * len(BLOCK_KS) * len(WARPS)
    lists = (",".join(map(str, each)) for each in (DTYPES, BLOCK_KS, WARPS))
    arguments = "sweep --device {} --dtype {} --block-k {} --num-warps {}".format(device, *lists)
    with tempfile.TemporaryDirectory() as folder:
        environment = {"TRITON_CACHE_DIR": folder, "ACCPROBE_CACHE_DIR": folder}
        cold, warm = (seconds(arguments, **environment) / count for _ in range(2))
    return [
        {"command": f"accprobe {arguments}", "state": state, "seconds": round(taken, 3), "runs": count, "limit": LIMIT}
        for state, taken in (("a configuration, empty cache", cold), ("a configuration, warm cache", warm))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", metavar="cuda:N", required=True)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the results as JSON too")
    options = parser.parse_args()
    cold, warm = results = measure(options.device)
    for each in results:
        print(f"{each['state']:28} {each['seconds']:6.3f} s, limit {LIMIT} s, {each['runs']} configurations")
    print(
        f"compiling: {percent(1 - float(str(warm['seconds'])) / float(str(cold['seconds'])))} of the time with an empty cache"
    )
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(f"  {json.dumps(each)}" for each in results)
        options.output.write_text(f'{{\n "host": {json.dumps(host(options.device))},\n "results": [\n{lines}\n ]\n}}\n')
    return 1 if max(float(str(each["seconds"])) for each in results) > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())

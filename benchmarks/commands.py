"""How long commands take, beside the limits that accprobe sets itself.

    python benchmarks/commands.py [--repeat N]

Prints one line a command: the best wall time, the limit, and their ratio (below 1 is within). Exit status 1 where one is not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

LIMITS = {
    "--help": 0.3,
    "run --device sim:h100": 10.0,
}
"""Seconds, on two CPU cores."""


def seconds(arguments: str) -> float:
    """Wall time of one run of the command."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "accprobe", *arguments.split()]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"accprobe {arguments} failed: {done.stderr.strip()}")
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each command, of which the best counts")
    repeat = parser.parse_args().repeat
    slow = 0
    for arguments, limit in LIMITS.items():
        best = min(seconds(arguments) for _ in range(repeat))
        slow += best > limit
        print(f"accprobe {arguments:24} {best:8.3f} s  limit {limit:6.1f} s  ratio {best / limit:.2f}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())

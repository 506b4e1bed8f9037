"""How long `accprobe sass` takes on a library or wheel, how much memory, and how many kernels it finds.

    pip download --no-deps bitsandbytes==0.50.2
    unzip -j bitsandbytes-*.whl bitsandbytes/libbitsandbytes_cuda130.so
    python benchmarks/sass.py libbitsandbytes_cuda130.so --from "bitsandbytes 0.50.2" -o benchmarks/results/sass.json

Prints one line; -o writes the same as JSON. Memory is that of the command and all that it starts, added up five times a second.
Exit status 1 where it takes longer or more than its limits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS, MIB = 180.0, 2048
"""Limits: of time on two CPU cores, and of memory."""


def resident(root: int) -> int:
    """MiB that a process and its descendants have in memory."""
    children: dict[int, list[int]] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(stat[1]), []).append(int(entry.name))
            pages[int(entry.name)] = int(stat[21])
    waiting, total = [root], 0
    while waiting:
        process = waiting.pop()
        total += pages.get(process, 0)
        waiting += children.get(process, [])
    return total * os.sysconf("SC_PAGE_SIZE") >> 20


def measure(file: Path, package: str) -> dict[str, object]:
    command = [sys.executable, "-m", "accprobe", "sass", str(file), "--format", "json"]
    started, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as text, subprocess.Popen(command, stdout=text) as running:
        while running.poll() is None:
            peak = max(peak, resident(running.pid))
            time.sleep(0.2)
        seconds = time.perf_counter() - started
        if running.returncode not in (0, 2):
            sys.exit(f"accprobe sass ended with {running.returncode}")
        text.seek(0)
        data = json.load(text)
    return {
        "command": f"accprobe sass {file.name}",
        "state": f"of {package}" if package else "",
        "seconds": round(seconds, 1),
        "runs": 1,
        "limit": SECONDS,
        "file_mib": round(file.stat().st_size / 2**20, 1),
        "functions": sum(data["functions"].values()),
        "kernels": len(data["kernels"]),
        "unread": len(data["unread"]),
        "peak_mib": peak,
        "limit_mib": MIB,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--from", dest="package", default="", help="the package and version that ships it")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the result as JSON too")
    options = parser.parse_args()
    result = measure(options.file, options.package)
    print(", ".join(f"{key} {value}" for key, value in result.items() if value != ""))
    if options.output:
        host = {"cpu_cores": len(os.sched_getaffinity(0)), "python": sys.version.split()[0]}
        options.output.write_text(f'{{\n "host": {json.dumps(host)},\n "results": [\n  {json.dumps(result)}\n ]\n}}\n')
    return 1 if result["seconds"] > SECONDS or result["peak_mib"] > MIB else 0  # type: ignore[operator]


if __name__ == "__main__":
    sys.exit(main())

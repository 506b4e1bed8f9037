"""How long `accprobe sass` takes on a library or wheel, against nvdisasm alone on the same cubins, and in how much memory.

    pip download --no-deps sgl-kernel==0.3.21
    python benchmarks/sass.py sgl_kernel-*.whl --from "sgl-kernel 0.3.21" -o benchmarks/results/sass.json
    python benchmarks/sass.py sgl_kernel-*.whl --from "sgl-kernel 0.3.21" --every 16 -o benchmarks/results/sass.json

--every N takes a sample of the cubins, every Nth by size from the largest on. Both use all cores. CPU time counts all
processes, user and system. The ratio is of CPU time, which other work on the machine changes least. Memory is the sum over the
command and all processes that it starts, five times a second. Prints one line; -o adds the same as JSON, in place of an earlier
result of that command and state. Exit status 1: it takes longer, or more memory, than its limits.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from accprobe.build import toolchain
from accprobe.sass import binaries

RATIO, MIB = 1.5, 1024
"""Limits: of CPU time against nvdisasm's, and of memory."""


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


def extract(file: Path, folder: Path, every: int) -> Path:
    """A folder with every nth cubin of a file, by size from the largest on."""
    (folder / "unpacked").mkdir()
    (folder / "cubins").mkdir()
    for found in binaries.find([file], folder / "unpacked"):
        for piece in found.pieces:
            number = len(list((folder / "cubins").iterdir()))
            with binaries.cubin(piece) as path:
                (folder / "cubins" / f"{number:05}.cubin").write_bytes(path.read_bytes())
        found.discard()
    by_size = sorted((folder / "cubins").iterdir(), key=lambda path: (-path.stat().st_size, path.name))
    for i, path in enumerate(by_size):
        if i % every:
            path.unlink()
    return folder / "cubins"


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return its result, its seconds, and the CPU seconds of the processes that it starts."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = work()
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def disassemble(folder: Path) -> None:
    """Run the disassembler alone, without its output, for comparison."""
    program = toolchain.find("nvdisasm")

    def one(path: Path) -> None:
        subprocess.run([program, "--print-code", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(one, sorted(folder.iterdir())))


def read(target: Path) -> tuple[dict[str, Any], int]:
    """Return the JSON that `accprobe sass` prints, and its peak memory in MiB."""
    command = [sys.executable, "-m", "accprobe", "sass", str(target), "--format", "json"]
    peak = 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as text, subprocess.Popen(command, stdout=text) as running:
        while running.poll() is None:
            peak = max(peak, resident(running.pid))
            time.sleep(0.2)
        if running.returncode not in (0, 2):
            sys.exit(f"accprobe sass ended with {running.returncode}")
        text.seek(0)
        return json.load(text), peak


def measure(file: Path, package: str, every: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as made:
        cubins = extract(file, Path(made), every)
        sizes = [path.stat().st_size for path in cubins.iterdir()]
        (data, peak), seconds, cpu = timed(lambda: read(file if every == 1 else cubins))
        _, alone, alone_cpu = timed(lambda: disassemble(cubins))
    sample = f", every {every}th cubin by size" if every > 1 else ""
    return {
        "command": f"accprobe sass {file.name}",
        "state": f"of {package}{sample}" if package else sample.lstrip(", "),
        "seconds": round(seconds, 1),
        "runs": 1,
        "cubins": len(sizes),
        "cubins_mib": round(sum(sizes) / 2**20, 1),
        "largest_mib": round(max(sizes) / 2**20, 1),
        "cpu_seconds": round(cpu, 1),
        "nvdisasm_seconds": round(alone, 1),
        "nvdisasm_cpu_seconds": round(alone_cpu, 1),
        "ratio": round(cpu / alone_cpu, 2),
        "limit_ratio": RATIO,
        "limit": round(RATIO * alone, 1),
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
    parser.add_argument("--every", type=int, default=1, metavar="N", help="a sample of the cubins: every Nth by size")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the result as JSON too")
    options = parser.parse_args()
    result = measure(options.file, options.package, options.every)
    print(", ".join(f"{key} {value}" for key, value in result.items() if value != ""))
    if options.output:
        keep(result, options.output)
    return 1 if result["ratio"] > RATIO or result["peak_mib"] > MIB else 0


def keep(result: dict[str, Any], output: Path) -> None:
    before = json.loads(output.read_text())["results"] if output.exists() else []
    kept = [other for other in before if (other["command"], other["state"]) != (result["command"], result["state"])]
    host = {"cpu_cores": len(os.sched_getaffinity(0)), "python": sys.version.split()[0]}
    lines = ",\n  ".join(json.dumps(each) for each in [*kept, result])
    output.write_text(f'{{\n "host": {json.dumps(host)},\n "results": [\n  {lines}\n ]\n}}\n')


if __name__ == "__main__":
    sys.exit(main())

"""How long `accprobe gemm` takes for a split-K kernel with atomics, stage by stage, and what it finds.

    python benchmarks/atomics.py                             # tests/programs/triton_split_k.py at two shapes; needs a GPU
    python benchmarks/atomics.py --callable FILE.py:FUNCTION --shape 128x128x512

Prints the findings and the seconds of each stage; what opens the callable (imports, compilation) is counted apart. Exit
status 1 where a row is not confirmed, or is no sum of slices in any order.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from accprobe.callables.opening import ProductRequest, open_callable
from accprobe.callables.spec import parse_shape
from accprobe.cli.product_run import usual_elements
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import findings, status
from accprobe.gemm.verification import evaluator_of
from accprobe.isa import formats

KERNEL = Path(__file__).parents[1] / "tests" / "programs" / "triton_split_k.py"
SHAPES = ("256x256x2048", "4096x4096x4096")
SHOWN = ("order", "split_k", "slice_sizes", "reduction_order", "repeatable", "each_product_once")


class Stages:
    """Seconds of each stage, by the names that the inference reports."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._name, self._since = "", time.perf_counter()

    def __call__(self, name: str, part: float) -> None:
        now = time.perf_counter()
        if self._name:
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._since
        self._name, self._since = name, now


def measured(name: str, shape: str, dtype: str, device: str | None) -> bool:
    """Print one shape; whether it is confirmed as slices in any order."""
    started = time.perf_counter()
    opened = open_callable(name, ProductRequest(parse_shape(shape), formats.get(dtype)), device=device)
    opened.adapter.check()
    called, opening, stages = opened.adapter, time.perf_counter() - started, Stages()
    elements = usual_elements(called.spec, called.library.device, reduction=False)
    evaluate = evaluator_of(called.library.device)
    outcome = characterise(called, elements, 0, evaluate, stages, called.before)
    stages("", 0)
    seconds = time.perf_counter() - started - opening
    print(f"{shape} {dtype}: {': '.join(filter(None, status(outcome)))}")
    told = findings(outcome)
    for finding in SHOWN:
        if finding in told:
            print(f"  {finding}: {told[finding].value}{f' ({told[finding].note})' if told[finding].note else ''}")
    print(f"  {outcome.calls} calls, {outcome.first.calls} of them identical ones at the beginning")
    print(f"  {seconds:.1f} s, and {opening:.1f} s to open it: {', '.join(f'{n} {s:.1f}' for n, s in stages.seconds.items())}")
    return status(outcome)[0] == "confirmed" and "reduction_order" in told and told["reduction_order"].value == "unordered"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callable", default=f"{KERNEL}:split_k")
    parser.add_argument("--shape", action="append", help="Repeatable")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--device")
    chosen = parser.parse_args()
    good = [measured(chosen.callable, shape, chosen.dtype, chosen.device) for shape in chosen.shape or SHAPES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The table of errors over K in docs/accuracy.md from the hardware itself: torch._scaled_mm, on the operands of that table.

    python benchmarks/accuracy_gpu.py -o benchmarks/results/accuracy/h200-hardware.json

`accprobe budget QGMMA` draws the operands. All draws are multiplied at once. Each row of A and of B is repeated until D has
--side rows and columns, so that cuBLASLt has enough tiles and does not split K. With scales of 1, D is the sum itself, in f32.
use_fast_accum=True never promotes it, use_fast_accum=False promotes it every 128 products. Every element of D is compared with
the model measured on an H200, which accprobe's evaluator computes on the same GPU. Errors are errors of the hardware's results.

Prints a line for each case; -o writes the same as JSON. Exit status 1: a result differs. Needs a GPU, torch, cupy.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accprobe import emulate
from accprobe.budget.data import DrawnPair, draw_patterns
from accprobe.budget.error_report import SEEDS, BudgetRequest
from accprobe.budget.errors import exact_sums
from accprobe.evaluate.error_free import Floats
from accprobe.isa.formats import FORMATS, Bits

LIKE = "h200:wgmma.m64n8k32.f32.e4m3.e4m3"
E4M3, F32 = FORMATS["e4m3"], FORMATS["f32"]
KS = tuple(1 << i for i in range(7, 17))
DATA = ("normal", "same-sign")
PROMOTED = {True: None, False: 128}
"""By use_fast_accum: after how many products."""

SIDE = 4096


class Words(NamedTuple):
    """Patterns of D, each output once [rows, columns]; how many were compared, and how many of them are not the model's."""

    outputs: Bits
    compared: int
    differ: int


Multiply = Callable[[Bits, Bits, bool], Words]
"""a [rows, K], b [columns, K], use_fast_accum."""


class Gpu:
    """torch's products and the model's."""

    def __init__(self, device: str, side: int = SIDE) -> None:
        import torch

        self._torch, self._device, self._side = torch, device, side

    def multiplied(self, a: Bits, b: Bits, fast: bool) -> Words:
        torch, (rows, columns) = self._torch, (len(a), len(b))
        of_a, of_b = (torch.from_numpy(x).to(self._device).view(torch.float8_e4m3fn) for x in (a, b))
        one = torch.ones((), device=self._device)
        many_a, many_b = (self._repeated(x) for x in (of_a, of_b))
        hardware = torch._scaled_mm(many_a, many_b.t(), one, one, out_dtype=torch.float32, use_fast_accum=fast)
        model = emulate.predict(LIKE, of_a, of_b.t(), promote_every=PROMOTED[fast])
        blocks = hardware.view(torch.int32).view(-1, rows, hardware.shape[1] // columns, columns)
        differ = (blocks != model.view(torch.int32)[None, :, None, :]).sum()
        return Words(blocks[0, :, 0].cpu().numpy().view(np.uint32), blocks.numel(), int(differ))

    def _repeated(self, x: Any) -> Any:
        """At least `side` rows; torch repeats no small floats."""
        times = -(-self._side // len(x))
        return x.view(self._torch.uint8).repeat(times, 1).view(x.dtype)

    def about(self) -> dict[str, str]:
        return {
            "device": self._torch.cuda.get_device_name(self._device),
            "torch": self._torch.__version__,
            "cuda": str(self._torch.version.cuda),
        }


def draws(data: str, k: int) -> list[DrawnPair]:
    """The operands that an account has of that K."""
    request = BudgetRequest()
    return [
        draw_patterns(data, E4M3, E4M3, *request.shape(), k, np.random.default_rng([request.seed, draw]))
        for draw in range(SEEDS)
    ]


def lines(data: str, k: int, multiply: Multiply) -> Iterator[dict[str, object]]:
    """One for each way of accumulating."""
    drawn = draws(data, k)
    m, n = len(drawn[0].a), len(drawn[0].b)
    a, b = np.concatenate([each.a for each in drawn]), np.concatenate([each.b for each in drawn])
    exact = np.stack([exact_sums(E4M3.values(each.a), E4M3.values(each.b)).sums for each in drawn])
    for fast, every in PROMOTED.items():
        words = multiply(a, b, fast)
        own = [words.outputs[i * m : (i + 1) * m, i * n : (i + 1) * n] for i in range(len(drawn))]
        yield {
            "data": data,
            "k": k,
            "use_fast_accum": fast,
            "promote_every": every,
            "outputs": exact.size,
            "words": words.compared,
            "differ": words.differ,
            **errors(F32.values(np.stack(own)), exact),
        }


def errors(sums: Floats, exact: Floats) -> dict[str, float]:
    """As `accprobe budget` defines them."""
    error = sums - exact
    return {
        "relative_error": float(np.sqrt(np.square(error).sum() / np.square(exact).sum())),
        "bias": float(error.sum() / np.abs(exact).sum()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", metavar="cuda:N", help="the GPU (cuda:0)")
    parser.add_argument("--side", type=int, default=SIDE, metavar="N", help=f"rows and columns of D, at least ({SIDE})")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the results as JSON too")
    options = parser.parse_args()
    gpu = Gpu(options.device, options.side)
    found = []
    for data in DATA:
        for k in KS:
            for line in lines(data, k, gpu.multiplied):
                found.append(line)
                print(", ".join(f"{key} {value}" for key, value in line.items()), flush=True)
    if options.output:
        command = shlex.join(["python", "benchmarks/accuracy_gpu.py", *sys.argv[1:]])
        told = {"command": command, **gpu.about(), "like": LIKE, "seeds": SEEDS, "lines": found}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 1 if any(line["differ"] for line in found) else 0


if __name__ == "__main__":
    sys.exit(main())

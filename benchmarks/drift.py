"""How far a long FP8 sum of one sign drifts from the exact one, unpromoted and promoted every so many products.

    python benchmarks/drift.py -o benchmarks/results/drift/h200.json

A and B are uniform in [0, 1), rounded to e4m3, so every product pushes the running sum up, and every cut takes from it. The
sums are computed by the model that was measured on an H200, not on a GPU; products of e4m3 values add up in float64 without
an error, so the sums that they are held against are exact. Prints one line a promotion; -o writes the same as JSON.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

from accprobe import emulate

LIKE = "h200:wgmma.m64n8k32.f32.e4m3.e4m3"
K, SIDE, SEED = 16384, 16, 0
PROMOTIONS = (None, 4096, 512, 128)


def drift(k: int = K, side: int = SIDE) -> list[dict[str, object]]:
    """Relative errors of side × side sums of k products each, one entry a promotion."""
    rng = np.random.default_rng(SEED)
    a, b = (rng.random(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((side, k), (k, side)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    found: list[dict[str, object]] = []
    for every in PROMOTIONS:
        sums = emulate.matmul(a, b, like=LIKE, promote_every=every).astype(np.float64)
        error = (sums - exact) / exact
        found.append({"promote_every": every, "mean": error.mean(), "lowest": error.min(), "highest": error.max()})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the result as JSON too")
    options = parser.parse_args()
    found = drift()
    for each in found:
        print(", ".join(f"{key} {value:.4%}" if isinstance(value, float) else f"{key} {value}" for key, value in each.items()))
    if options.output:
        command = shlex.join(["python", "benchmarks/drift.py", *sys.argv[1:]])
        data = {"command": command, "like": LIKE, "k": K, "outputs": SIDE**2, "seed": SEED, "relative_error": found}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

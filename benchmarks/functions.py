"""How fast one core predicts recorded functions, and how long numpy's f32 functions take to measure.

    python benchmarks/functions.py [--repeat N] [-o FILE]

Predicted: each table model of the report functions-h200, on standard-normal values and on random words, by compiled code and by
numpy. Random words take longer, because branches of the compiled code are mispredicted; they have no limit. Measured:
`accprobe function numpy:NAME`, sampled at 2^26 words. Times are the processor's, since others may use a shared machine. Exit
status 1 where a limit is missed, or compiled code and numpy differ.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np

from accprobe.evaluate import tiles
from accprobe.evaluate.tiles import share_cores
from accprobe.function.measure import FunctionRequest, measure
from accprobe.function.records import function_words
from accprobe.function.subjects import CallableSubject
from accprobe.isa.formats import FORMATS, Bits
from accprobe.records.functions import FunctionRow, TableModelRecord
from accprobe.report.report import Report

WORDS, OF_NUMPY = 1 << 22, 1 << 20
LEAST_RATE, MOST_SECONDS = 5e7, 20.0
"""Words a second of a prediction, seconds of a measurement."""

MEASURED = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "tanh")


def best_time(row: FunctionRow, words: Bits, repeat: int, compiled: bool) -> tuple[float, Bits]:
    """Return the least seconds of processor time, and the results."""
    tiles.pays = lambda seconds: compiled
    results, best = function_words(row, words), float("inf")
    for _ in range(repeat):
        started = time.process_time()
        function_words(row, words)
        best = min(best, time.process_time() - started)
    return best, results


def predictions(repeat: int) -> Iterator[dict[str, object]]:
    rng = np.random.default_rng(0)
    for row in Report.load("functions-h200").functions:
        if not isinstance(row.model, TableModelRecord):
            continue
        fmt = FORMATS[row.operand]
        normal = rng.standard_normal(WORDS).astype(fmt.ml_dtype).view(fmt.dtype)
        random = rng.integers(0, 1 << fmt.storage_bits, WORDS).astype(fmt.dtype)
        for kind, words in (("normal", normal), ("random words", random)):
            took, results = best_time(row, words, repeat, compiled=True)
            by_numpy, expected = best_time(row, words[:OF_NUMPY], repeat, compiled=False)
            yield {
                "function": row.name,
                "operands": kind,
                "words_per_second": round(WORDS / took),
                "words_per_second_by_numpy": round(OF_NUMPY / by_numpy),
                "differ": int((results[:OF_NUMPY] != expected).sum()),
                "limit": LEAST_RATE if kind == "normal" else None,
            }


def measurements() -> Iterator[dict[str, object]]:
    for name in MEASURED:
        started = time.process_time()
        row = measure(CallableSubject(f"numpy:{name}", FORMATS["f32"], "cpu"), FunctionRequest(exhaustive=False))
        seconds = round(time.process_time() - started, 2)
        yield {"function": row.title, "seconds": seconds, "status": row.status, "limit": MOST_SECONDS}


def failed(result: dict[str, object]) -> bool:
    limit = None if result["limit"] is None else float(str(result["limit"]))
    if "seconds" in result:
        return limit is not None and float(str(result["seconds"])) > limit
    return bool(result["differ"]) or (limit is not None and float(str(result["words_per_second"])) < limit)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of each prediction; the best counts (5)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the results as JSON too")
    options = parser.parse_args()
    share_cores(sys.maxsize)
    results = []
    for result in itertools.chain(predictions(options.repeat), measurements()):
        results.append(result)
        print(json.dumps(result), "MISSED" * failed(result), flush=True)
    if options.output:
        host = {"python": sys.version.split()[0], "numpy": np.__version__, "numba": numba.__version__}
        lines = ",\n".join(f"  {json.dumps(result)}" for result in results)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(f'{{\n "host": {json.dumps(host)},\n "results": [\n{lines}\n ]\n}}\n')
    return 1 if any(map(failed, results)) else 0


if __name__ == "__main__":
    sys.exit(main())

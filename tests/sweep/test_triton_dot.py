"""The sweep's kernel, run by Triton's interpreter, against exact sums."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from accprobe.sweep import masks, prediction
from accprobe.sweep.configurations import DTYPES, Configuration

pytestmark = pytest.mark.skipif(not (find_spec("triton") and find_spec("torch")), reason="needs triton and torch")

CHILD = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import torch
from accprobe.callables.arrays import TorchArrays
from accprobe.probes.triton_dot import masked_gemm
from accprobe.sweep.configurations import DTYPES
from accprobe.sweep.masks import mask
from accprobe.sweep.masks import draw_matrices
found = []
for name, kind, cut in json.loads(sys.argv[1]):
    dtype, m, n, k, block_k = DTYPES[name], 32, 16, 128, 64
    a, b = draw_matrices(kind, dtype, m, n, k, block_k, seed=3)
    arrays = TorchArrays("cpu")
    x, y = (arrays.operand(role, each, dtype.format) for role, each in (("a", a), ("b", b)))
    c = torch.full((m, n), -1, dtype=torch.float32)
    masked_gemm[(m // 16, n // 16)](
        x, y, c, n, k, mask(cut), BLOCK_M=16, BLOCK_N=16, BLOCK_K=block_k,
        PRECISION=dtype.precision, PROMOTE_EVERY=None,
    )
    found.append(c.view(torch.int32).tolist())
print(json.dumps(found))
"""

CASES = [
    ("e4m3", "full-width", 0),
    ("e4m3", "full-width", 10),
    ("e5m2", "full-width", 5),
]
"""Operand type, operand set, low bits masked."""


@pytest.fixture(scope="module")
def interpreted() -> list[Any]:
    """The results of all cases: the interpreter has to be asked for before Triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "TRITON_DEFAULT_FP_FUSION": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD, json.dumps(CASES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=["-".join(map(str, case)) for case in CASES])
def test_each_result_is_the_exact_sum_masked(interpreted: list[Any], number: int) -> None:
    name, kind, cut = CASES[number]
    config = Configuration(DTYPES[name], 64, 4)
    operands = masks.draw_matrices(kind, config.dtype, 32, 16, 128, 64, seed=3)  # type: ignore[arg-type]  # a kind by name
    expected = masks.totals(prediction.exact_partials(config, operands))[cut]
    assert interpreted[number] == expected.view(np.int32).tolist()

"""The exact evaluator of `DotModel`, on arrays of bit patterns.

Behind `evaluate`, and `Trial` for many models on the same operands, stand two implementations that give the same bits:
`reference`, in numpy, and `compiled`, by numba, for whom that is installed and has much to evaluate.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.evaluate.flat import not_compiled
from accprobe.evaluate.reference import CHUNK, Evaluation
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.operands.request import Request

STEP = 1 << 20
"""Products after which a long evaluation looks again at which implementation to go on with."""

KEPT = 1 << 18
"""Products of which what was computed last is kept: who asks a device asks a model about the same."""

LOADING, COMPILING = 0.4, 10.0
"""Seconds that the compiled evaluator takes to load, and the first time on a machine to compile."""

Implementation = Callable[[DotModel, Instruction, Request], Bits]


def evaluate(model: DotModel, inst: Instruction, request: Request) -> Bits:
    """N dot products as the model has them -> [N], bit patterns of D's format.

    Raises AccprobeError where the shapes, types or the number of products do not fit the instruction.
    """
    request.check(inst)
    _check_model(model, inst)
    if request.a.size <= KEPT:
        return _latest.of(model, inst, request)
    n = len(request)
    d = np.empty(n, inst.d.dtype)
    start = 0
    while start < n:
        compiled = _choice.compiled(model)
        part = slice(start, n if compiled else start + max(1, STEP // inst.k))
        if compiled:
            d[part] = compiled(model, inst, request[part])
        else:
            with _choice.numpy():
                d[part] = with_numpy(model, inst, request[part])
        start = part.stop
    return d


def with_numpy(model: DotModel, inst: Instruction, request: Request) -> Bits:
    """As `evaluate`, of operands that fit, and in numpy whatever is installed."""
    d = np.empty(len(request), inst.d.dtype)
    step = max(1, CHUNK // inst.k)
    for start in range(0, len(request), step):
        part = slice(start, start + step)
        d[part] = Evaluation(inst, request[part]).of(model)
    return d


class Trial:
    """Operands that many models are tried on."""

    def __init__(self, inst: Instruction, request: Request) -> None:
        request.check(inst)
        self._inst, self._request = inst, request

    @cached_property
    def _evaluation(self) -> Evaluation:
        return _latest.evaluation(self._inst, self._request)

    def of(self, model: DotModel) -> Bits:
        """The model's results, as `evaluate` gives them."""
        _check_model(model, self._inst)
        compiled = _choice.compiled(model)
        if compiled:
            return compiled(model, self._inst, self._request)
        with _choice.numpy():
            return self._evaluation.of(model)


class _Latest(threading.local):
    """The evaluation in numpy of the operands that came last; each thread's own."""

    def __init__(self) -> None:
        self._evaluation: Evaluation | None = None

    def evaluation(self, inst: Instruction, request: Request) -> Evaluation:
        if self._evaluation is None or not self._evaluation.is_of(inst, request):
            self._evaluation = Evaluation(inst, request)
        return self._evaluation

    def of(self, model: DotModel, inst: Instruction, request: Request) -> Bits:
        compiled = _choice.compiled(model)
        if compiled:
            return compiled(model, inst, request)
        with _choice.numpy():
            return self.evaluation(inst, request).of(model)


class _Choice:
    """Numpy until it has taken as long as the compiled evaluator needs to be ready: who waits, waits twice as long at most.

    Numpy always of models that only it knows.
    """

    def __init__(self) -> None:
        self._spent = 0.0
        self._compiled: Implementation | None = None
        installed = importlib.util.find_spec("numba") is not None
        self._patience = (LOADING if _is_on_disk() else COMPILING) if installed else float("inf")

    def compiled(self, model: DotModel) -> Implementation | None:
        if self._compiled is None and self._spent > self._patience:
            try:
                from accprobe.evaluate.compiled import evaluate
            except (ImportError, RuntimeError):  # a numba that does not go with this numpy, or has nowhere to keep its code
                self._patience = float("inf")
            else:
                self._compiled = evaluate
        return self._compiled if self._compiled and not not_compiled(model) else None

    @contextmanager
    def numpy(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._spent += time.perf_counter() - started


def _is_on_disk() -> bool:
    """Whether numba has kept the compiled evaluator for this Python (it compiles once more where the source has changed)."""
    folder, python = Path(__file__).with_name("__pycache__"), f"py{sys.version_info[0]}{sys.version_info[1]}"
    return any(folder.glob(f"compiled._run-*.{python}.nbi"))


_choice = _Choice()
_latest = _Latest()


def _check_model(model: DotModel, inst: Instruction) -> None:
    floats = [x for x in model.arithmetics if isinstance(x, FloatArithmetic)]
    aligned = any(x.alignment_bits is not None for x in floats)
    if inst.a.name == "f64" and aligned:
        raise AccprobeError(f"{inst.name}: sums of f64 products are evaluated with exact alignment only")
    if any(x.nan_payload != "dropped" for x in floats) and (aligned or len({inst.a, inst.b, inst.c, inst.d}) > 1):
        raise AccprobeError(f"{inst.name}: NaN operands pass through exact sums of one format only")
    if model.ks != tuple(range(inst.k)):
        if model.products != inst.k:
            raise AccprobeError(f"{inst.name} has {inst.k} products, the model {model.products}")
        raise AccprobeError(f"{inst.name} has the products 0 to {inst.k - 1}, each once; the model has others, or some twice")

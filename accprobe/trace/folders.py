"""Traces in folders: recorded with the operands that are asked for, and compared with them."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError, RecordingError
from accprobe.gemm.callables.arrays import TorchArrays, format_of_numpy
from accprobe.gemm.spec import Spec
from accprobe.operands.safetensors import Tensors, read_tensors, write_tensors
from accprobe.trace.causes import Explainer, TraceFindings
from accprobe.trace.compare import DifferenceOrigin, compare_traces
from accprobe.trace.dumps import read_any
from accprobe.trace.mapping import WHOLE_RUN, Mapped, parse_mapping, part_of, taken
from accprobe.trace.product_causes import product_cause
from accprobe.trace.products import POSITIONS, RecordedProduct
from accprobe.trace.recorder import Recorder, open_writer
from accprobe.trace.records import OPERAND_FILE, TracedOperation
from accprobe.trace.sides import Cause, OriginSide

MOST_SAVED = 1 << 33
"""Bytes of operands that one trace saves."""


@contextmanager
def record(
    folder: str | Path,
    *,
    part: str = "",
    save: Sequence[str] = (),
    steps: int | None = None,
    limit: int | None = None,
    kernels: bool = False,
) -> Iterator[Recorder]:
    """Record every torch operation that runs inside to a folder.

    part: the part of each tensor that another run has too, such as "batch=8" (see `accprobe.trace.mapping`). save: operations
    whose operands are saved, by number or by a glob of the module path or name. steps, limit: after how many steps or
    operations the recording ends. kernels: record kernel names, which is slow.
    """
    mapped = part_of(part) if part else None
    writer = open_writer(Path(folder), mapped)

    def keep(operation: TracedOperation) -> bool:
        return any(
            str(operation.number) == each or fnmatchcase(operation.module, each) or fnmatchcase(operation.packet, each)
            for each in save
        )

    recorder = Recorder(mapped, steps, limit, kernels, keep if save else None, writer)
    try:
        with recorder.recording():
            yield recorder
    finally:
        recorder.finish()
        writer.finish(recorder.stopped)
        if save:
            save_operands(recorder, Path(folder))


def save_operands(recorder: Recorder, folder: Path) -> None:
    """Write the operands and results that a recorder kept, as "NUMBER.in0" and "NUMBER.out0"."""
    arrays: dict[str, NDArray[Any]] = {}
    size = 0
    for number, call in recorder.kept.items():
        named = [*((f"in{i}", x) for i, x in enumerate(call.operands())), *((f"out{i}", x) for i, x in enumerate(call.results))]
        for name, operand in named:
            array = array_of(operand.tensor)
            if array is not None and size + array.nbytes <= MOST_SAVED:
                arrays[f"{number}.{name}"] = array
                size += array.nbytes
    write_tensors(folder / OPERAND_FILE, arrays)


def array_of(tensor: Any) -> NDArray[Any] | None:
    """Return a tensor as an array of numpy's or ml_dtypes' type; None where accprobe has no such format."""
    handover = TorchArrays("cpu")
    found = handover.received(tensor)
    if found is None or found.fmt is None:
        return None
    return handover.patterns(tensor.cpu(), found.fmt).view(np.dtype(found.fmt.ml_dtype))


def record_script(script: Path, arguments: Sequence[str], folder: Path, **options: Any) -> Recorder:
    """Run a Python script as `python SCRIPT ARGUMENTS` does, and record it. options: see `record`."""
    if not script.is_file():
        raise AccprobeError(f"there is no file {script}: give a Python script")
    before = sys.argv, list(sys.path)
    sys.argv, sys.path[0] = [str(script), *arguments], str(script.resolve().parent)
    try:
        with record(folder, **options) as recorder:
            try:
                runpy.run_path(str(script), run_name="__main__")
            except SystemExit as e:
                if e.code not in (None, 0):
                    raise AccprobeError(f"{script} ended with status {e.code}; what ran before is in {folder}") from None
            except Exception as e:
                raise AccprobeError(f"{script} raises {type(e).__name__}: {e}; what ran before is in {folder}") from e
    finally:
        sys.argv, sys.path[:] = before
    return recorder


def compare_folders(a: Path, b: Path, mapping: str = "") -> TraceFindings:
    """Compare two traces or dumps, and explain the products whose operands were saved. Raises AccprobeError."""
    parts = parse_mapping(mapping) if mapping else (None, None)
    traces = read_any(a, parts[0]), read_any(b, parts[1])
    for folder, trace, part in zip((a, b), traces, parts, strict=True):
        if part not in (None, WHOLE_RUN) and not trace.part and not trace.source:
            raise AccprobeError(f"{folder} was recorded without parts: record it with --map {part}")
    comparison = compare_traces(*traces, mapping or _recorded_mapping(traces[0].part, traces[1].part))
    saved = _saved(a), _saved(b)
    explainer = Explainer()
    found = TraceFindings(comparison)
    for origin in comparison.origins:
        explained = explainer.explain(origin, OriginSide(origin.left, (), None), OriginSide(origin.right, (), None))
        if traces[0].source:
            explained.cause = Cause("unknown", "not modelled: the dump has no operands")
        products = [_product(x, tensors) for x, tensors in zip((origin.left, origin.right), saved, strict=True)]
        if products[0] is not None and products[1] is not None:
            versions = traces[0].versions, traces[1].versions
            explained.cause = product_cause((products[0], products[1]), (origin.left, origin.right), versions)
            explained.differing, explained.of = _differing(origin, products[0], products[1], comparison.mapping)
        found.origins.append(explained)
    return found


def _recorded_mapping(first: str, second: str) -> str:
    """Return the mapping of traces that were recorded with parts."""
    if not first and not second:
        return ""
    if "batch" in first + second:
        sizes = [each.removeprefix("batch=") or "1" for each in (first, second)]
        return f"batch={':'.join(sizes)}"
    return first or second


def _saved(folder: Path) -> Tensors:
    path = folder / OPERAND_FILE
    try:
        return read_tensors(path) if path.is_file() else {}
    except OSError as e:
        raise RecordingError(f"{path} cannot be read: {e.strerror or e}") from None


def _product(operations: tuple[TracedOperation, ...], saved: Tensors) -> RecordedProduct | None:
    """Return a product of saved operands; None where they were not saved, or it is not a product without a bias."""
    if len(operations) != 1 or operations[0].packet not in ("aten.mm", "aten.bmm"):
        return None
    number, places = operations[0].number, POSITIONS[operations[0].packet]
    names = [*(f"{number}.in{i}" for i in places), f"{number}.out0"]
    if not all(name in saved for name in names):
        return None
    a, b, d = (saved[name]() for name in names)
    a, b, d = (x[0] if x.ndim == 3 and len(x) else x for x in (a, b, d))
    formats = [fmt for x in (a, b, d) if (fmt := format_of_numpy(x.dtype)) is not None]
    if len(formats) != 3 or not a.ndim == b.ndim == d.ndim == 2 or a.shape[1] != b.shape[0] or d.shape != (len(a), b.shape[1]):
        raise RecordingError(
            f"the saved operands of operation {number} are not those of a matrix product; record the trace again"
        )
    of_a, of_b, of_d = (np.ascontiguousarray(x).view(fmt.dtype) for x, fmt in zip((a, b.T, d), formats, strict=True))
    spec = Spec(len(a), b.shape[1], a.shape[1], formats[0], formats[1], formats[2])
    return RecordedProduct(spec, of_a, of_b, of_d, of_d, "cpu")


def _differing(
    origin: DifferenceOrigin, x: RecordedProduct, y: RecordedProduct, mapping: tuple[Mapped, Mapped] | None
) -> tuple[int, int]:
    """Return how many words of the compared part differ, and how many there are."""
    parts = mapping or (WHOLE_RUN, WHOLE_RUN)
    left, right = taken(x.d, y.d, parts[0]), taken(y.d, x.d, parts[1])
    return int((left != right).sum()), int(left.size)

"""Traces in folders: recorded with the operands that are asked for, and compared with them."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.arrays import TorchArrays
from accprobe.errors import AccprobeError, RecordingError, unreadable
from accprobe.operands.safetensors import Tensors, read_tensors, write_tensors
from accprobe.trace.both import isolate_program
from accprobe.trace.causes import OnOrigin, explain_origins
from accprobe.trace.compare import Cause, DifferenceOrigin, TraceComparison, compare_traces
from accprobe.trace.dumps import read_any
from accprobe.trace.mapping import WHOLE_RUN, Mapped, parse_mapping, part_of
from accprobe.trace.recorder import Recorder, check_torch, torch_versions
from accprobe.trace.records import OPERAND_FILE, RecordedTrace, TensorValue, TracedOperation, TraceWriter
from accprobe.trace.replay import Operand, RecordedCall, arguments_of, aten_operation, span_of
from accprobe.trace.schemas import schema_of
from accprobe.trace.sides import KeptCalls
from accprobe.trace.storages import has_storage

MOST_SAVED = 1 << 33
"""Most bytes of operands that one trace saves; operands beyond are left out."""

MOST_NAMES = 4
"""How many --save options an advice lists; for more it has one for all operations."""

IN_PLACE = ("aten.add_.", "aten.mul_.", "aten.div_.", "aten.bernoulli_.")
"""Operations that are called with operands of a folder although they write to one of them."""


@contextmanager
def record(
    folder: str | Path,
    *,
    mapping: str = "",
    save: Sequence[str] = (),
    steps: int | None = None,
    limit: int | None = None,
    kernels: bool = False,
) -> Iterator[Recorder]:
    """Record the torch operations that run inside to a folder (see `accprobe.trace.recorder`). Raises AccprobeError, OSError.

    mapping: the part of each tensor that another run has too, such as "batch=8" (see `accprobe.trace.mapping`).
    save: operations to save operands of, by number or by a glob of the module path or name.
    steps: after how many steps of optimizers, or calls of the outermost module without an optimizer, the recording ends.
    limit: after how many operations. kernels: record kernel names, which is slow.
    """
    mapped = part_of(mapping) if mapping else None
    check_torch()
    writer = TraceWriter(Path(folder), str(mapped or ""), torch_versions())

    def keep(operation: TracedOperation) -> bool:
        return any(matches(each, operation) for each in save)

    recorder = Recorder(mapped, steps, limit, kernels, keep if save else None, writer)
    try:
        with recorder.recording():
            yield recorder
        recorder.finish()
        writer.finish(recorder.stopped)
    except BaseException as e:
        writer.finish(f"its program raised {type(e.__cause__ or e).__name__}", complete=False)
        raise
    finally:
        if save and writer.count:
            save_operands(recorder, Path(folder))


def matches(chosen: str, operation: TracedOperation) -> bool:
    """Return whether an operation is chosen by its number, or by a glob of its module path or its name."""
    return str(operation.number) == chosen or any(fnmatchcase(x, chosen) for x in (operation.module, operation.packet))


def save_operands(recorder: Recorder, folder: Path) -> None:
    """Write the operands and results that a recorder kept, as "NUMBER.in0" and "NUMBER.out0"."""
    arrays: dict[str, NDArray[Any]] = {}
    size = 0
    for number, call in recorder.kept.items():
        named = [*((f"in{i}", x) for i, x in enumerate(call.operands())), *((f"out{i}", x) for i, x in enumerate(call.results))]
        for name, operand in named:
            if operand.tensor.is_meta or not has_storage(operand.tensor):
                continue
            array = array_of(operand.tensor)
            if size + array.nbytes <= MOST_SAVED:
                arrays[f"{number}.{name}"] = array
                size += array.nbytes
    write_tensors(folder / OPERAND_FILE, arrays)


def array_of(tensor: Any) -> NDArray[Any]:
    """Return a tensor as an array of numpy's or ml_dtypes' type; as its bytes where accprobe has no such format."""
    import torch

    handover = TorchArrays("cpu")
    found = handover.received(tensor)
    if found is None or found.fmt is None:
        return np.asarray(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return handover.patterns(tensor.cpu(), found.fmt).view(np.dtype(found.fmt.ml_dtype))


def record_script(script: Path, arguments: Sequence[str], folder: Path, **options: Any) -> Recorder:
    """Run a Python script as `python SCRIPT ARGUMENTS` does, and record it. options: see `record`."""
    if not script.is_file():
        raise AccprobeError(unreadable(script, FileNotFoundError()))
    before = sys.argv, list(sys.path)
    sys.argv, sys.path[0] = [str(script), *arguments], str(script.resolve().parent)
    try:
        with record(folder, **options) as recorder:
            nothing, kept = "it called no operation of torch before", f"what ran before is in {folder}"
            with isolate_program(str(script), str(script), lambda: kept if recorder.count else nothing):
                try:
                    runpy.run_path(str(script), run_name="__main__")
                except SystemExit as e:
                    if e.code not in (None, 0):
                        raise
    finally:
        sys.argv, sys.path[:] = before
    return recorder


def compare_folders(a: Path, b: Path, mapping: str = "", on_origin: OnOrigin = lambda found, number: None) -> TraceComparison:
    """Compare two traces or dumps, and explain each origin, with the operands that were saved. Raises AccprobeError."""
    parts = parse_mapping(mapping) if mapping else (None, None)
    traces = read_any(a, parts[0]), read_any(b, parts[1])
    for folder, trace in zip((a, b), traces, strict=True):
        if all(x.name == "return" for x in trace.operations):
            raise AccprobeError(f"{folder} has no operations: its program called none of torch; record another one")
    mapping = mapping or _recorded_mapping(traces[0].part, traces[1].part)
    found = compare_traces(*traces, mapping, (str(a), str(b)))
    mapped = found.mapping or (WHOLE_RUN, WHOLE_RUN)
    calls = _read_saved_calls(a, traces[0], mapped[0]), _read_saved_calls(b, traces[1], mapped[1])
    explain_origins(found, calls, on_origin=on_origin)
    for each in found.origins:
        if traces[0].source:
            each.cause = Cause("unknown", "not modelled: the dump has no operands")
        elif advice := _advice(each):
            each.cause = replace(each.cause, text=f"{each.cause.text}; {advice}")
    return found


def _advice(origin: DifferenceOrigin) -> str:
    """Return how to seed two runs that draw random numbers, or how to record operands that a cause needs; "" if neither."""
    values = [side.value for side in origin.sides]
    if all(any(x.random for x in operations) for operations in (origin.left, origin.right)):
        return "call torch.manual_seed with one seed in both runs"
    if origin.cause.verified or None not in values:
        return ""
    operations = [x for side in origin.sides if side.value is None for x in side.operations] or list(origin.readers or ())
    names = dict.fromkeys(f"--save '{x.module or x.packet}'" for x in operations if x.name != "return")
    names = names if len(names) <= MOST_NAMES else {"--save '*'": None}
    lacking = [letter for letter, value in zip("AB", values, strict=True) if value is None]
    side = f"side {lacking[0]}" if len(lacking) == 1 else "both sides"
    if not find_spec("torch"):
        return "install torch, which accprobe needs to read saved operands"
    why = (
        "for its values" if origin.is_input else "for the cause" if origin.cause.kind == "unknown" else "to check it on values"
    )
    return f"{why}, record {side} again with {' '.join(names)}"


def _recorded_mapping(first: str, second: str) -> str:
    """Return the mapping of traces that were recorded with parts."""
    if not first and not second:
        return ""
    if "batch" in first + second:
        sizes = [each.removeprefix("batch=") or "1" for each in (first, second)]
        return f"batch={':'.join(sizes)}"
    return first or second


def _read_saved_calls(folder: Path, trace: RecordedTrace, mapped: Mapped) -> KeptCalls:
    """Return the calls with operands in a folder."""
    path = folder / OPERAND_FILE
    try:
        saved = read_tensors(path) if path.is_file() else {}
    except OSError as e:
        raise RecordingError(unreadable(path, e)) from None
    if not find_spec("torch"):
        saved = {}
    numbers = {int(name.partition(".")[0]) for name in saved if name.partition(".")[0].isdecimal()}

    @cache
    def call(number: int) -> RecordedCall | None:
        try:
            return _rebuild_call(trace.operations[number], saved)
        except ValueError as e:
            raise RecordingError(f"{folder}: operation {number} {e}; record the trace again") from None

    return KeptCalls(trace, numbers & set(range(len(trace.operations))), call, mapped, from_folder=True)


def _rebuild_call(operation: TracedOperation, saved: Tensors) -> RecordedCall | None:
    """Return an operation with its saved operands; None where one of them, or its arguments, are missing.

    A trace is data of another machine: only functions of tensors are called, such as aten.mm, and those of IN_PLACE. Raises
    ValueError if the operands do not fit the record.
    """
    function, arguments = aten_operation(operation.name), arguments_of(operation)
    names = [f"{operation.number}.in{i}" for i in range(len(operation.inputs))]
    if arguments is None or not names or not all(name in saved for name in names):
        return None
    if function is not None and not _is_function_of_tensors(function):
        function = None
    operands = [_operand(operation, name, x, saved) for name, x in zip(names, operation.inputs, strict=True)]
    listed, named = _restored(arguments, operands)
    names = [f"{operation.number}.out{i}" for i in range(len(operation.outputs))]
    results = [_operand(operation, name, x, saved) for name, x in zip(names, operation.outputs, strict=True) if name in saved]
    return RecordedCall(function, tuple(listed), named, operation.flags, results)


def _is_function_of_tensors(function: Any) -> bool:
    schema, first = schema_of(function), str(next((x.type for x in function._schema.arguments), ""))
    is_pure = schema.is_pure or schema.name.startswith(IN_PLACE)
    return is_pure and not schema.is_skipped and first in ("Tensor", "List[Tensor]")


def _operand(operation: TracedOperation, name: str, value: TensorValue, saved: Tensors) -> Operand:
    """Return a saved tensor in its recorded strides."""
    import torch

    array, dtype = saved[name](), getattr(torch, value.dtype, None)
    if not isinstance(dtype, torch.dtype) or array.nbytes != value.size * dtype.itemsize:
        raise ValueError("has saved operands of other shapes")
    tensor = torch.from_numpy(array.reshape(-1).view(np.uint8)).view(dtype).reshape(value.shape)
    if 0 not in value.strides and span_of(value.shape, value.strides) <= 2 * value.size:  # else a view of little of its storage
        tensor = torch.empty_strided(value.shape, value.strides, dtype=dtype).copy_(tensor)
    return Operand(value.id, tensor)


def _restored(arguments: Any, operands: Sequence[Operand]) -> Any:
    """Return recorded arguments with the operands, torch's types and complex numbers for their texts. Raises ValueError."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map_only

    if tree_leaves(arguments).count("tensor") > len(operands):
        raise ValueError("has fewer tensors than arguments")
    remaining = iter(operands)

    def restore(text: str) -> Any:
        if text == "tensor":
            return next(remaining)
        with suppress(ValueError):
            return complex(text)  # such as "(1+2j)"
        found = getattr(torch, text.removeprefix("torch."), None) if text.startswith("torch.") else None
        return found if isinstance(found, torch.dtype | torch.layout | torch.memory_format) else text

    return tree_map_only(str, restore, arguments)

"""Records every operation that reaches torch's dispatcher.

`TorchDispatchMode` sees operations below autograd: forward, backward and optimizer, and the library calls of code that Inductor
compiled. Its Triton kernels are seen in `CachingAutotuner.run`, as by torch's own `DebugMode`.
Tested with torch 2.11 and 2.13; needs 2.10 or later.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from accprobe.errors import ToolMissing
from accprobe.trace.hashing import HashQueue
from accprobe.trace.mapping import Mapped
from accprobe.trace.modules import ModuleTracker
from accprobe.trace.records import RecordedTrace, TensorValue, TracedOperation, TraceWriter
from accprobe.trace.replay import Operand, RecordedCall, copy_operand
from accprobe.trace.schemas import Schema, schema_of, tensor_class, tensors_in, wait_for
from accprobe.trace.storages import PendingValue, Storages

_OLDEST = (2, 10)
"""torch's version: `TorchDispatchMode.ignore_compile_internals` came with 2.10."""

FETCH_EVERY = 2048
"""Operations after which hashes are fetched from the device and written."""

PRODUCT_FLAGS = (
    "allow_tf32",
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)

Keep = Callable[[TracedOperation], bool]
"""Selects operations whose operands are kept; the operation has no hashes yet."""

MOST_ARGUMENTS = 1000
"""Characters of arguments that are stored."""


class _Pending(NamedTuple):
    """An operation whose hashes are not fetched yet. listed, named: its arguments (see `_divide`)."""

    name: str
    module: str
    phase: str
    inputs: Sequence[PendingValue]
    outputs: Sequence[PendingValue]
    listed: Sequence[Any] = ()
    named: Mapping[str, Any] = MappingProxyType({})
    random: bool = False
    flags: Mapping[str, Any] = MappingProxyType({})
    kernels: tuple[str, ...] = ()

    def fetched(self, number: int, values: _Values) -> TracedOperation:
        inputs, outputs = tuple([values[x] for x in self.inputs]), tuple([values[x] for x in self.outputs])
        return TracedOperation(
            number,
            self.name,
            self.module,
            self.phase,
            inputs,
            outputs,
            _text(self.listed, self.named),
            self.random,
            self.flags,
            self.kernels,
        )


class _Values(dict[PendingValue, TensorValue]):
    """Values with the hashes that were fetched; one that is read several times is made once."""

    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self._found = found

    def __missing__(self, pending: PendingValue) -> TensorValue:
        self[pending] = pending.fetched(self._found)
        return self[pending]


@dataclass
class Recorder:
    """Records inside `with recorder.recording():`.

    mapped: the part that is hashed beside each tensor. steps, limit: end the recording.

    keep: operations whose operands and results are copied, to `kept`.
    """

    mapped: Mapped | None = None
    steps: int | None = None
    limit: int | None = None
    kernels: bool = False
    keep: Keep | None = None
    writer: TraceWriter | None = None
    operations: list[TracedOperation] = field(default_factory=list)
    kept: dict[int, RecordedCall] = field(default_factory=dict)
    stopped: str = ""
    paused: int = 0

    def __post_init__(self) -> None:
        self._queue = HashQueue()
        self._storages = Storages(self._queue, self.mapped)
        self._modules = ModuleTracker()
        self._pending: list[_Pending] = []
        self._count = 0
        self._copies: dict[Any, Any] = {}
        self._last: Sequence[PendingValue] = ()
        self.results: list[Operand] = []

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Record what runs inside."""
        check_torch()
        mode = _mode_class()(self)
        self._modules.start()
        gc.freeze()  # what is recorded makes the garbage collector run often: let it pass over all that is here already
        try:
            with _triton_kernels(self._triton), _active(self), mode:
                yield self
        finally:
            gc.unfreeze()
            self._modules.stop()
            self._fetch()

    def finish(self, result: Any = None) -> None:
        """Record a last operation "return". Its inputs are the results of the run, or else those of its last operation."""
        inputs = [self._storages.value(each) for each in tensors_in(result)] or self._last
        if self.keep is not None:
            self.results = [self._copy(each) for each in tensors_in(result)]
        self._add(_Pending("return", "", "forward", inputs, []))
        self._fetch()

    def trace(self) -> RecordedTrace:
        return RecordedTrace(self.operations, str(self.mapped or ""), torch_versions(), True, self.stopped)

    def dispatch(self, function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Run one operation and record it."""
        schema = schema_of(function)
        if schema.is_skipped or self.paused or self._ended():
            return function(*arguments, **keywords)
        read: list[Any] = []
        listed = [_divide(given, read if i >= schema.buffers else []) for i, given in enumerate(arguments)]
        named = {name: _divide(given, [] if name in schema.results else read) for name, given in keywords.items()}
        inputs = [self._storages.value(x) for x in read]
        module, phase = self._modules.place()
        flags = product_flags() if schema.multiplies else {}
        random = schema.draws(arguments, keywords)
        call, kernels = None, tuple[str, ...]()
        if self.keep is not None:
            operation = _Pending(schema.name, module, phase, (), (), listed, named, random, flags)
            call = self._kept_call(operation, function, arguments, keywords)
        if self.kernels:
            result, kernels = _profiled(function, arguments, keywords)
        else:
            result = function(*arguments, **keywords)
        if schema.is_collective:
            wait_for(result)
        results = (
            [result]
            if isinstance(result, tensor_class()) and schema.is_pure
            else self._results(schema, arguments, keywords, read, result)
        )
        if not results:
            return result
        if call is not None:
            call.results = [self._copy(x, settled=False) for x in results]
            self.kept[self._count] = call
        outputs = [self._storages.value(x, settled=False) for x in results]
        self._add(_Pending(schema.name, module, phase, inputs, outputs, listed, named, random, flags, kernels))
        return result

    def _results(self, schema: Schema, arguments: tuple[Any, ...], keywords: Mapping[str, Any], read: Any, result: Any) -> Any:
        """Return the tensors that an operation wrote, views of its inputs left out."""
        addresses = {self._storages.address(x) for x in read}
        results = [x for x in tensors_in(result) if self._storages.address(x) not in addresses]
        for i, name in schema.written:
            of_argument = list(tensors_in(arguments[i] if i < len(arguments) else keywords.get(name)))
            for tensor in of_argument:
                self._storages.written(tensor)
            results += [x for x in of_argument if all(x is not y for y in results)]
        if schema.dropout is not None:  # an attention: the state of the random generator, and padding, are undefined
            for tensor in results[1:]:
                self._storages.conceal(tensor)
        return results

    def _add(self, operation: _Pending) -> None:
        self._pending.append(operation)
        self._last = operation.outputs
        self._count += 1
        if len(self._pending) >= FETCH_EVERY:
            self._fetch()

    def _fetch(self) -> None:
        self._queue.fetch()
        values, first = _Values(self._queue.found), self._count - len(self._pending)
        found = [each.fetched(first + i, values) for i, each in enumerate(self._pending)]
        self._pending = []
        self.operations += found
        if self.writer is not None:
            self.writer.add(found)

    def _ended(self) -> bool:
        if self.stopped:
            return True
        if self.limit is not None and self._count >= self.limit:
            self.stopped = f"--limit {self.limit} reached"
        if self.steps is not None and self._modules.steps >= self.steps:
            self.stopped = f"--steps {self.steps} reached"
        return bool(self.stopped)

    def _kept_call(self, operation: _Pending, function: Any, arguments: Any, keywords: Any) -> RecordedCall | None:
        if self.keep is None or not self.keep(operation.fetched(self._count, _Values([]))):
            return None
        return RecordedCall(function, self._frozen(arguments), self._frozen(dict(keywords)), operation.flags)

    def _frozen(self, values: Any) -> Any:
        """Return arguments with a copy in the place of each tensor."""
        import torch

        if isinstance(values, torch.Tensor):
            return self._copy(values)
        if isinstance(values, list | tuple):
            return [self._frozen(x) for x in values] if isinstance(values, list) else tuple(map(self._frozen, values))
        if isinstance(values, dict):
            return {name: self._frozen(x) for name, x in values.items()}
        return values

    def _copy(self, tensor: Any, settled: bool = True) -> Operand:
        return copy_operand(self._storages.id(tensor, settled), tensor, self._copies)

    def _triton(self, name: str, arguments: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        """Run one of Inductor's Triton kernels and record it. Its arguments are named in_ptr0, out_ptr0, in_out_ptr0, …"""
        import torch

        tensors = {key: x for key, x in arguments.items() if isinstance(x, torch.Tensor)}
        if self.paused or self._ended() or not tensors:
            return run()
        inputs = [self._storages.value(x) for key, x in tensors.items() if key.startswith("in_")]
        module, phase = self._modules.place()
        result = run()
        outputs = [x for key, x in tensors.items() if "out" in key]
        for tensor in outputs:
            self._storages.written(tensor)
        written = [self._storages.value(x, settled=False) for x in outputs]
        self._add(_Pending(f"triton.{name}", module, phase, inputs, written))
        return result


_RECORDERS: list[Recorder] = []


@contextmanager
def _active(recorder: Recorder) -> Iterator[None]:
    _RECORDERS.append(recorder)
    try:
        yield
    finally:
        _RECORDERS.remove(recorder)


@contextmanager
def paused() -> Iterator[None]:
    """Leave out what runs inside, such as the prefill before a decode step."""
    recorders = list(_RECORDERS)
    for each in recorders:
        each.paused += 1
    try:
        yield
    finally:
        for each in recorders:
            each.paused -= 1


def check_torch() -> None:
    """Raise ToolMissing if torch is missing or too old."""
    try:
        import torch
    except ImportError as e:
        raise ToolMissing("torch is not installed: accprobe trace records torch programs; pip install torch") from e
    version = tuple(int("".join(filter(str.isdigit, x)) or 0) for x in torch.__version__.split(".")[:2])
    if version < _OLDEST:
        raise ToolMissing(
            f"torch {torch.__version__} is too old: accprobe trace needs torch {'.'.join(map(str, _OLDEST))} or later"
        )


def torch_versions() -> dict[str, str]:
    """Return versions and devices that decide the bits of a run."""
    import torch

    found = {"torch": torch.__version__}
    if torch.cuda.is_available():
        found |= {"cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name()}
    return found


def product_flags() -> dict[str, Any]:
    """Return torch's flags of matrix products that are in force."""
    import torch

    found = {name: getattr(torch.backends.cuda.matmul, name, None) for name in PRODUCT_FLAGS}
    return {name: value if isinstance(value, bool) else str(value) for name, value in found.items() if value is not None}


@cache
def _mode_class() -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class RecordingMode(TorchDispatchMode):  # type: ignore[misc]
        """Passes each operation to a recorder. The compiler is not recorded; compiled code is."""

        def __init__(self, recorder: Recorder) -> None:
            super().__init__()
            self._recorder = recorder

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self._recorder.dispatch(function, args, kwargs or {})

    return RecordingMode


@contextmanager
def _triton_kernels(record: Callable[[str, Mapping[str, Any], Callable[[], Any]], Any]) -> Iterator[None]:
    """Pass each launch of Inductor's Triton kernels to `record`."""
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    except ImportError:  # without Triton
        yield
        return
    original = CachingAutotuner.run

    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if keywords.get("benchmark_run"):
            return original(self, *arguments, **keywords)
        named = dict(zip(self.triton_meta.get("signature", {}), arguments, strict=False))
        return record(self.fn.__name__, named, lambda: original(self, *arguments, **keywords))

    CachingAutotuner.run = run
    try:
        yield
    finally:
        CachingAutotuner.run = original


def _divide(value: Any, tensors: list[Any]) -> Any:
    """Return arguments with "tensor" in the place of each tensor, which goes to `tensors`."""
    if isinstance(value, tensor_class()):
        tensors.append(value)
        return "tensor"
    if isinstance(value, list | tuple):
        return [_divide(x, tensors) for x in value]
    return value


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=str)


def _text(listed: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Return the arguments that are not tensors, as JSON; "" if there are none."""
    if not named and all(x == "tensor" for x in listed):
        return ""
    return _ENCODER.encode([listed, named] if named else listed)[:MOST_ARGUMENTS]


def _profiled(function: Any, arguments: Any, keywords: Any) -> tuple[Any, tuple[str, ...]]:
    """Run an operation under torch's profiler, and return the result and the names of its kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        return function(*arguments, **keywords), ()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        result = function(*arguments, **keywords)
        torch.cuda.synchronize()
    return result, tuple(dict.fromkeys(event.name for event in profiler.events() if event.device_type.name == "CUDA"))


def open_writer(folder: Path, mapped: Mapped | None) -> TraceWriter:
    """Return a writer of a trace with the versions of this process."""
    check_torch()
    return TraceWriter(folder, str(mapped or ""), torch_versions())

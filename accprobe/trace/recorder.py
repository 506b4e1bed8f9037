"""Records the operations that reach torch's dispatcher, except those that make views or memory without content.

`TorchDispatchMode` sees operations below autograd: forward, backward and optimizer, and the library calls of code that Inductor
compiled. Its Triton kernels are seen in `CachingAutotuner.run`, as by torch's own `DebugMode`. The recorder misses a kernel
of another library that is called past the dispatcher: a tensor to which it writes in place may get the hash of its new content.
Tested with torch 2.11 and 2.13; needs 2.10 or later.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from accprobe.callables.options import FLAGS
from accprobe.errors import ToolMissing
from accprobe.trace.hashing import HashQueue
from accprobe.trace.hooks import ModuleTracker, before_launches, inductor_kernels, profile_call
from accprobe.trace.mapping import Mapped
from accprobe.trace.records import NO_FLAGS, RecordedTrace, TensorValue, TracedOperation, TraceWriter
from accprobe.trace.replay import Operand, RecordedCall, copy_operand
from accprobe.trace.schemas import (
    SCHEMAS,
    Listed,
    Schema,
    arguments_text,
    read_arguments,
    schema_of,
    tensor_class,
    tensors_in,
    wait_for,
)
from accprobe.trace.storages import Storages, has_storage

_OLDEST = "2.10"
"""torch's version: `TorchDispatchMode.ignore_compile_internals` came with 2.10."""

FETCH_EVERY = 2048
"""Operations after which hashes are fetched from the device and written."""

Keep = Callable[[TracedOperation], bool]
"""Selects operations to keep operands of; the operation has no hashes and no arguments yet."""


@dataclass
class Recorder:
    """Records inside `with recorder.recording():`.

    mapped: the part that is hashed beside each tensor. steps, limit: after how many steps or operations the recording ends.
    kernels: record kernel names. keep: operations with operands and results to copy to `kept`. stopped: the option that ended
    the recording. paused: how many `pause_recording` are open.
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
        self._unfetched: list[tuple[Any, ...]] = []
        self._tensor = tensor_class()
        self._copies: dict[Any, Any] = {}
        self._is_bounded = self.limit is not None or self.steps is not None
        self._flags = ProductFlags()
        self.results: list[Operand] = []

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Record what runs inside."""
        check_torch()
        mode = _mode_class()(self)
        self._storages.attribute = f"_accprobe_trace_{len(_RECORDERS)}"
        threshold = gc.get_threshold()
        gc.set_threshold(10 * threshold[0], 100 * threshold[1], threshold[2])  # an operation makes ten objects that stay
        gc.freeze()  # the garbage collector passes over all that is here already
        _RECORDERS.append(self)
        try:
            with self._modules.tracking(), inductor_kernels(self._triton), before_launches(self._queue.start), mode:
                yield self
        finally:
            gc.unfreeze()
            gc.set_threshold(*threshold)
            _RECORDERS.remove(self)
            self._fetch()

    def finish(self, result: Any = None) -> None:
        """Record a last operation "return". Its inputs are the results of the run, or else of its last operation."""
        self._fetch()
        inputs = self._storages.values(tensors_in(result)) or (self.operations[-1].outputs if self.operations else ())
        if self.keep is not None:
            self.results = [self._copy(each) for each in tensors_in(result)]
        self._add("return", ("", "forward"), inputs, ())
        self._fetch()

    def trace(self) -> RecordedTrace:
        return RecordedTrace(self.operations, str(self.mapped or ""), torch_versions(), True, self.stopped)

    def dispatch(self, schema: Schema, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Run one operation and record it."""
        is_pure = schema.is_pure
        if not is_pure:
            self._queue.start()  # it may write to a tensor with bits that wait to be hashed
        if self.paused or (self._is_bounded and self._ended()):
            return schema.call(*arguments, **keywords)
        read, listed = read_arguments(schema, arguments, keywords)
        inputs = self._storages.values(read)
        place = self._modules.place()
        flags = self._flags.read() if schema.multiplies else NO_FLAGS
        random = schema.random if schema.dropout is None else schema.draws(arguments, keywords)
        call = None
        if self.keep and self.keep(TracedOperation(self.count, schema.name, *place, inputs, ())):
            call = RecordedCall(schema.function, self._frozen(arguments), self._frozen(dict(keywords)), flags)
        kernels: tuple[str, ...] = ()
        if self.kernels:
            result, kernels = profile_call(schema.call, arguments, keywords)
        else:
            result = schema.call(*arguments, **keywords)
        if schema.is_collective:
            wait_for(result)
        is_new = is_pure and type(result) is self._tensor
        results = [result] if is_new else self._results(schema, arguments, keywords, read, result)
        if not results:
            return result
        if call is not None:
            call.results = [self._copy(x, settled=False) for x in results]
            self.kept[self.count] = call
        outputs = (self._storages.result(result),) if is_new else tuple([self._storages.result(x) for x in results])
        self._add(schema.name, place, inputs, outputs, listed, random, flags, kernels)
        if not is_pure or schema.is_collective:
            self._queue.start()
        return result

    def _results(self, schema: Schema, arguments: tuple[Any, ...], keywords: Mapping[str, Any], read: Any, result: Any) -> Any:
        """Return the tensors that an operation returned in new memory or wrote to, and note its writes."""
        addresses = {x.untyped_storage()._cdata for x in read if has_storage(x)}
        results = [x for x in tensors_in(result) if not has_storage(x) or x.untyped_storage()._cdata not in addresses]
        for i, name in schema.written:
            of_argument = list(tensors_in(arguments[i] if i < len(arguments) else keywords.get(name)))
            for tensor in of_argument:
                self._storages.written(tensor)
            results += [x for x in of_argument if all(x is not y for y in results)]
        if schema.dropout is not None:  # an attention: the state of the random generator, and padding, are undefined
            for tensor in results[1:]:
                self._storages.conceal(tensor)
        return results

    @property
    def count(self) -> int:
        return len(self.operations) + len(self._unfetched)

    def _add(
        self,
        name: str,
        place: tuple[str, str],
        inputs: tuple[TensorValue, ...],
        outputs: tuple[TensorValue, ...],
        listed: Listed | None = None,
        random: bool = False,
        flags: Mapping[str, Any] = NO_FLAGS,
        kernels: tuple[str, ...] = (),
    ) -> None:
        """Add the fields of a `TracedOperation`, without its number; its arguments are not text yet."""
        self._unfetched.append((name, *place, inputs, outputs, listed, random, flags, kernels))
        if len(self._unfetched) >= FETCH_EVERY:
            self._fetch()

    def _fetch(self) -> None:
        self._storages.fetch()
        fetched = []
        for number, each in enumerate(self._unfetched, len(self.operations)):
            name, module, phase, inputs, outputs, listed, *others = each
            arguments = "" if listed is None else arguments_text(listed)
            fetched.append(TracedOperation._make((number, name, module, phase, inputs, outputs, arguments, *others)))
        self.operations += fetched
        if self.writer is not None:
            self.writer.add(fetched)
        self._unfetched = []

    def _ended(self) -> bool:
        if self.stopped:
            return True
        if self.limit is not None and self.count >= self.limit:
            self.stopped = f"--limit {self.limit} reached"
        if self.steps is not None and self._modules.has_finished(self.steps):
            self.stopped = f"--steps {self.steps} reached"
        return bool(self.stopped)

    def _frozen(self, values: Any) -> Any:
        """Return arguments with a copy in the place of each tensor."""
        from torch.utils._pytree import tree_map_only

        return tree_map_only(tensor_class(), self._copy, values)

    def _copy(self, tensor: Any, settled: bool = True) -> Operand:
        identity = self._storages.id(tensor, settled)
        if not has_storage(tensor):
            return Operand(identity, tensor.detach().clone())
        return copy_operand(identity, tensor, self._copies)

    def _triton(self, name: str, arguments: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        """Run one of Inductor's Triton kernels and record it. Its arguments are named in_ptr0, out_ptr0, in_out_ptr0, …"""
        tensors = {key: x for key, x in arguments.items() if isinstance(x, tensor_class())}
        self._queue.start()
        if self.paused or self._ended() or not tensors:
            return run()
        inputs = self._storages.values([x for key, x in tensors.items() if key.startswith("in_")])
        place = self._modules.place()
        result = run()
        outputs = [x for key, x in tensors.items() if "out" in key]
        for tensor in outputs:
            self._storages.written(tensor)
        written = tuple([self._storages.result(x) for x in outputs])
        self._add(f"triton.{name}", place, inputs, written)
        return result


_RECORDERS: list[Recorder] = []


@contextmanager
def pause_recording() -> Iterator[None]:
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
    if torch.__version__ < f"{_OLDEST}.dev0":
        raise ToolMissing(f"torch {torch.__version__} is too old: accprobe trace needs torch {_OLDEST} or later")


def torch_versions() -> dict[str, str]:
    """Return the version of torch and, with a GPU, the version of CUDA and the name of the current GPU."""
    import torch

    found = {"torch": torch.__version__}
    if torch.cuda.is_available():
        found |= {"cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name()}
    return found


class ProductFlags:
    """Torch's flags of matrix products. They are read by C functions of torch, which are faster than its attributes."""

    def __init__(self) -> None:
        import torch

        self._readers = [getattr(torch._C, f"_get_cublas_{name}") for name in FLAGS]
        self._state: list[Any] = []
        self._flags = NO_FLAGS

    def read(self) -> Mapping[str, Any]:
        """Return the flags that are in force, by name."""
        state = [read() for read in self._readers]
        if state != self._state:
            import torch

            found = {name: getattr(torch.backends.cuda.matmul, name) for name in FLAGS}
            self._flags = {name: value if isinstance(value, bool) else str(value) for name, value in found.items()}
            self._state = state
        return self._flags


@cache
def _mode_class() -> Any:
    from torch._dynamo.eval_frame import set_eval_frame, skip_code
    from torch.utils._python_dispatch import TorchDispatchMode

    class RecordingMode(TorchDispatchMode):  # type: ignore[misc]  # torch's class has no type
        """Passes each operation to a recorder. The compiler is not recorded; compiled code is."""

        def __init__(self, recorder: Recorder) -> None:
            super().__init__()
            self._dispatch = recorder.dispatch

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

    known, no_keywords = SCHEMAS, dict[str, Any]()

    def dispatch(self: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = known.get(id(function))
        if schema is not None and schema.is_skipped:
            return schema.call(*args, **(kwargs or no_keywords))
        before = set_eval_frame(None)  # torch.compile must not compile the recorder
        try:
            schema = schema or schema_of(function)
            if schema.is_skipped:
                return schema.call(*args, **(kwargs or no_keywords))
            return self._dispatch(schema, args, kwargs or no_keywords)
        finally:
            if before is not None:
                set_eval_frame(before)

    skip_code(dispatch.__code__)
    RecordingMode.__torch_dispatch__ = dispatch  # as a method of the class, torch would wrap it in slower functions
    return RecordingMode

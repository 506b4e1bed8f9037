"""Two runs in one process: recorded, compared, and run again to keep the operands of each origin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from accprobe.callables.adapter import described
from accprobe.callables.opening import UserFunction, find_callable
from accprobe.callables.options import attributes_set
from accprobe.errors import AccprobeError
from accprobe.trace.causes import OnOrigin, explain_origins
from accprobe.trace.compare import Cause, TraceComparison, compare_traces
from accprobe.trace.mapping import WHOLE_RUN, Mapped, parse_mapping
from accprobe.trace.recorder import Recorder, check_torch
from accprobe.trace.records import TracedOperation
from accprobe.trace.replay import RecordedCall
from accprobe.trace.sides import KeptCalls
from accprobe.trace.summary import find_uncomparable

MOST_EXPLAINED = 32
"""Number of origins to keep operands and infer causes of; the others are only located."""

_SEED = 0


@dataclass(frozen=True)
class ProgramRun:
    """One side of a comparison. name: FILE.py:FUNCTION, imported anew for each run; or function: a function to call.

    backend: of torch.compile, "" or "eager" for none. flags: attributes of torch by their dotted names.
    """

    name: str = ""
    function: Callable[..., Any] | None = None
    keywords: Mapping[str, Any] = field(default_factory=dict)
    backend: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_compiled(self) -> bool:
        return self.backend not in ("", "eager")

    def load(self, file: str) -> Callable[..., Any]:
        """Return the function, of the resolved file, with the same random state each time. Raises AccprobeError."""
        import torch

        torch.manual_seed(_SEED)
        function = self.function
        if function is None:
            if ".py:" not in self.name:
                raise AccprobeError(f"'{self.name}' names no function of a file: give FILE.py:FUNCTION")
            found = find_callable(f"{file}:{self.name.partition(':')[2]}")
            assert isinstance(found, UserFunction)
            function = found.function
            self._check_parameters(function)
        return function

    def _check_parameters(self, function: Callable[..., Any]) -> None:
        """Raise AccprobeError if a parameter without a default gets no value."""
        with suppress(ValueError):  # functions in C may have no signature
            for each in signature(function).parameters.values():
                if each.default is each.empty and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
                    options = {"batch": "--batch N,N", "dtype": "--dtype A,B"}
                    advice = f"give {options[each.name]}" if each.name in options else "give it a default value in the file"
                    if each.name not in self.keywords:
                        raise AccprobeError(f"{self.name} has the parameter `{each.name}`: {advice}")


class _Side:
    """Runs one side and records it.

    A compiled function is compiled once, in a first call that is not recorded. Otherwise the trace would have the operations of
    the compiler, such as those that it times.
    """

    def __init__(self, run: ProgramRun, mapped: Mapped | None) -> None:
        self._file = str(Path(run.name.partition(":")[0]).resolve()) if run.name else ""
        """Resolved before the function runs, which may change the working directory."""
        self.run, self.mapped = run, mapped
        self._compiled: Callable[..., Any] | None = None

    def record(self, **options: Any) -> Recorder:
        """Run the side once, recorded. options: see `Recorder`."""
        import torch

        recorder, name = Recorder(mapped=self.mapped, **options), self.run.name
        flags = ((*_find_holder(flag), value) for flag, value in self.run.flags.items())
        with attributes_set(flags), isolate_program(name or "the function", self._file, lambda: "nothing was compared"):
            function = self._compiled or self.run.load(self._file)
            if self.run.is_compiled and self._compiled is None:
                torch.compiler.reset()
                function = self._compiled = torch.compile(function, backend=self.run.backend)
                torch.manual_seed(_SEED)
                function(**self.run.keywords)
            torch.manual_seed(_SEED)
            with recorder.recording():
                result = function(**self.run.keywords)
            recorder.finish(result)
        return recorder


@contextmanager
def isolate_program(name: str, file: str, ending: Callable[[], str]) -> Iterator[None]:
    """Raise AccprobeError, with one sentence, if the program inside raises an error or ends the process.

    ending: returns the end of the sentence, such as "nothing was compared".
    Restore torch's default dtype afterwards, so that one side does not change the other.
    """
    import torch

    before = torch.get_default_dtype()
    try:
        yield
    except (AccprobeError, KeyboardInterrupt):
        raise
    except BaseException as e:
        raise AccprobeError(f"{name} raises {described(e, file)}; {ending()}") from e
    finally:
        torch.set_default_dtype(before)


def _find_holder(name: str) -> tuple[Any, str]:
    """Return the owner of a flag such as "torch.backends.cuda.matmul.allow_tf32" and its name in it. Raises AccprobeError."""
    owner, _, attribute = name.rpartition(".")
    with suppress(ImportError, AttributeError, ValueError):
        if name.startswith("torch.") and hasattr(holder := resolve_name(owner), attribute):
            return holder, attribute
    raise AccprobeError(f"there is no flag '{name:.80}': give its whole name, such as torch.backends.cuda.matmul.allow_tf32")


def run_both(
    a: ProgramRun,
    b: ProgramRun,
    mapping: str = "",
    with_fixes: bool = False,
    on_origin: OnOrigin = lambda found, number: None,
) -> TraceComparison:
    """Record two runs, compare them and explain each origin. mapping: see `compare_traces`. Raises AccprobeError."""
    check_torch()
    mapped: tuple[Mapped | None, Mapped | None] = parse_mapping(mapping) if mapping else (None, None)
    sides = _Side(a, mapped[0]), _Side(b, mapped[1])
    traces = [side.record().trace() for side in sides]
    for name, side, trace in zip("AB", sides, traces, strict=True):
        if not side.run.is_compiled and all(x.name == "return" for x in trace.operations):  # compiled kernels are not recorded
            raise AccprobeError(f"side {name} called no operation of torch: there is nothing to compare")
    found = compare_traces(traces[0], traces[1], mapping)
    if found.equal and not all(found.operations):
        which = found.operations.index(0)
        raise AccprobeError(
            f"no operation of side {'AB'[which]} was recorded. The results are equal. accprobe sees Triton kernels that"
            f" {sides[which].run.backend} compiles, not C++ for a CPU. Use a GPU to compare the operations"
        )
    if not found.origins:
        is_aligned = not found.count("only one") and not find_uncomparable(found)
        if not found.equal and is_aligned:  # every operation has a counterpart: is the batch ignored?
            _check_batch(sides, found)
        return found
    kept = [_keep_operands(side, found, which) for which, side in enumerate(sides)]
    explain_origins(found, (kept[0], kept[1]), with_fixes, on_origin)
    if a.is_compiled != b.is_compiled:
        _explain_fusion(found, sides)
    return found


def _check_batch(sides: tuple[_Side, _Side], found: TraceComparison) -> None:
    """Raise AccprobeError if no result of a side can be divided into the sequences of its batch."""
    for side, trace in zip(sides, found.traces, strict=True):
        batch = side.run.keywords.get("batch")
        shapes = [value.shape for x in trace.operations if x.name == "return" for value in x.inputs if value.shape]
        if batch and shapes and all(shape[0] % batch for shape in shapes):
            shape = ",".join(map(str, shapes[0]))
            raise AccprobeError(
                f"{side.run.name or 'the function'} returned [{shape}] for batch={batch}: it ignores `batch`, has fewer"
                " sequences, or its first dimension is not the batch"
            )


EMULATED = "torch._inductor.config.emulate_precision_casts"
"""Makes Inductor round intermediate results of fused operations as eager operations do."""


def _explain_fusion(found: TraceComparison, sides: tuple[_Side, _Side]) -> None:
    """Verify origins in compiled code: with `EMULATED`, the compiled side has to give the bits of the eager one."""
    which = 0 if sides[0].run.is_compiled else 1
    run = sides[which].run
    if run.backend != "inductor" or all(each.cause.verified for each in found.origins):
        return
    try:
        emulated = _Side(replace(run, flags={**run.flags, EMULATED: True}), sides[which].mapped).record()
    except (AccprobeError, RuntimeError):  # this torch lacks the flag, or cannot compile with it: causes stay unverified
        return
    emulated_hashes = {each for x in emulated.operations for value in (*x.inputs, *x.outputs) for each in value.hashes}
    text = f"operations fused on side {'AB'[which]}: it does not round their intermediate results; with {EMULATED} it does"
    for each in found.origins:
        of_eager = each.values[1 - which]
        if not each.cause.verified and of_eager.hashes & emulated_hashes:
            each.cause = Cause("fusion", text, verified=True, fixes=(f"{EMULATED} = True",))


def _keep_operands(side: _Side, found: TraceComparison, which: int) -> KeptCalls:
    """Run a side once more and keep the operands of its origins."""
    numbers: set[int] = set()
    for origin in found.origins[:MOST_EXPLAINED]:
        numbers.update(x.number for x in (origin.left, origin.right)[which])
        if origin.readers:  # a value that no operation of this side computes is kept as an operand of its reader
            numbers.add(origin.readers[which].number)

    def keep(operation: TracedOperation) -> bool:
        return operation.number in numbers

    recorder, trace = side.record(keep=keep), found.traces[which]
    calls = dict(recorder.kept)
    if trace.operations[-1].number in numbers and trace.operations[-1].name == "return":  # not called: it has no recorded call
        calls[trace.operations[-1].number] = RecordedCall(None, tuple(recorder.results), {}, {})
    again = {x.number: [y.hash for y in x.outputs] for x in recorder.operations}
    changed = {x.number for x in trace.operations if again.get(x.number) != [y.hash for y in x.outputs]}
    return KeptCalls(trace, frozenset(calls), calls.get, side.mapped or WHOLE_RUN, changed)

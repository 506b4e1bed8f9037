"""Compares two traces: aligns their operations, and finds each origin of a difference.

An origin is an operation with equal inputs and different outputs. If the runs execute different operations, an origin is those
between the last equal values and the first that differs. An input of the runs that differs is an origin without operations.
Differences that follow from an origin are consequences.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import count
from typing import TYPE_CHECKING, Literal

from accprobe.errors import AccprobeError
from accprobe.trace.mapping import WHOLE_RUN, Mapped, comparable, parse_mapping, same
from accprobe.trace.records import RecordedTrace, TensorValue, TracedOperation
from accprobe.trace.replay import COPIES, adds_other_terms, mixes_rows

if TYPE_CHECKING:
    from accprobe.trace.sides import OriginSide

OperationState = Literal["equal", "origin", "consequence", "unmapped", "deferred", "only one"]
"""unmapped: its values or their parts cannot be compared. only one: the other run does not have it. deferred: its results are
compared only where they are read. It returns a constant or the partial sum of a rank, or the aligned operations do not
correspond: they read different values that both runs have, or values of other shapes.
"""

Kind = Literal[
    "split_k", "order", "promotion", "partials", "cast", "fusion", "argument", "function", "reduction", "atomics",
    "dropout", "input", "unknown",
]  # fmt: skip
"""Kinds of causes. partials: the format, order or sizes of a product's partial sums. order: the order, bits or rounding of its
other additions, or the place of its bias. reduction: sums other than products, such as aten.sum or attention. function: the
sides call different operations or scalar functions.
"""

NOT_REACHED = "not explained: interrupted"
"""Cause of an origin until it is explained."""

ALIGN_WORK = 20_000_000
"""Pairs of equal keys up to which difflib aligns operations by name; beyond, the n-th of a name only with the n-th."""

MOST_NAMED = 4
"""Operations of a block up to which each is named."""


@dataclass(frozen=True)
class Cause:
    """verified: both sides gave their recorded results again, models or functions predict them, or the values show the cause.

    fixes: changes that made both sides equal when tried. fixes_tried: fixes were wanted, even if none was found.
    """

    kind: Kind
    text: str
    verified: bool = False
    fixes: tuple[str, ...] = ()
    fixes_tried: bool = False


@dataclass
class DifferenceOrigin:
    """Operations of both runs that compute different bits from equal values. left, right: one, a block, or none.

    values: the results that differ. readers: the operations that read these values; None if the inputs were equal.
    unrecorded: sides, "A", "B" or "AB", whose value comes from no recorded operation: an input of the run, or compiled code.
    sides: both sides with their operands, empty until they are explained. differing, of: how many elements differ, of how many;
    None if the results were not kept.
    """

    left: tuple[TracedOperation, ...]
    right: tuple[TracedOperation, ...]
    values: tuple[TensorValue, TensorValue]
    readers: tuple[TracedOperation, TracedOperation] | None = None
    unrecorded: str = ""
    cause: Cause = field(default_factory=lambda: Cause("unknown", NOT_REACHED))
    sides: tuple[OriginSide, ...] = ()
    differing: int | None = None
    of: int | None = None

    @property
    def is_input(self) -> bool:
        """Return True where no recorded operation computed the values that differ."""
        return not self.left and not self.right

    @property
    def module(self) -> str:
        operations = (*self.right, *self.left) or self.readers or ()
        return next((x.module for x in reversed(operations) if x.module), "")

    @property
    def operation(self) -> str:
        """Return "aten.mm", "aten.mm against aten.addmm", "aten.add on side B only", or "input of aten.mm"."""
        if self.readers is not None and self.is_input:
            return f"input of {self.readers[0].packet}"
        for side, other, letter in ((self.left, self.right, "A"), (self.right, self.left, "B")):
            if not other:
                return f"{_names(side)} on side {letter} only"
        names = [_names(side) for side in (self.left, self.right)]
        return names[0] if names[0] == names[1] else " against ".join(names)


def _names(side: tuple[TracedOperation, ...]) -> str:
    """Return "aten.mm + aten.add", and of many operations the first and the last."""
    names = [x.packet for x in side]
    if len(names) > MOST_NAMED:
        return f"{len(names)} operations ({names[0]} … {names[-1]})"
    return " + ".join(names)


@dataclass
class TraceComparison:
    """The differences of two traces. states: of each operation of both traces, by number; origins: the first one first."""

    traces: tuple[RecordedTrace, RecordedTrace]
    mapping: tuple[Mapped, Mapped] | None
    states: tuple[dict[int, OperationState], dict[int, OperationState]]
    pairs: list[tuple[int, int]] = field(default_factory=list)
    origins: list[DifferenceOrigin] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Return whether both runs ended without a difference. If no return value was recorded, every operation must be
        comparable.
        """
        if self.origins or self.count("consequence") or not all(trace.complete for trace in self.traces):
            return False
        results = [self.states[0][x.number] for x in self.traces[0].operations if x.name == "return"]
        return all(x == "equal" for x in results) if results else not self.count("unmapped")

    def count(self, state: OperationState) -> int:
        """Return the number of operations in a state, in the run that has more of them."""
        runs = zip(self.states, self.traces, strict=True)
        return max(sum(states[x.number] == state for x in trace.operations if x.name != "return") for states, trace in runs)

    @property
    def explained(self) -> int:
        """Return the number of origins that were explained before an interruption."""
        return sum(each.cause.text != NOT_REACHED for each in self.origins)

    @property
    def operations(self) -> tuple[int, int]:
        first, second = (sum(x.name != "return" for x in trace.operations) for trace in self.traces)
        return first, second


def compare_traces(
    a: RecordedTrace, b: RecordedTrace, mapping: str = "", names: tuple[str, str] = ("side A", "side B")
) -> TraceComparison:
    """Compare two traces. mapping: which part should be equal, "" for everything; names: of the traces in an error. Raises
    AccprobeError.
    """
    if a.source != b.source:
        written = " and ".join(f"{name} by {x.source or 'accprobe'}" for name, x in zip(names, (a, b), strict=True))
        raise AccprobeError(f"{written} hash values in different ways: give two traces of one tool")
    mapped = parse_mapping(mapping) if mapping else None
    if mapped is not None:
        if mapped[0].kind == "shard" and b.part and not a.part:
            mapped = mapped[1], mapped[0]
        for name, trace, part in zip(names, (a, b), mapped, strict=True):
            if trace.part != str(part) and part != WHOLE_RUN:
                recorded = f"the parts {trace.part}" if trace.part else "whole tensors only"
                raise AccprobeError(f"{name} has hashes of {recorded}: record it with --map {part}")
    return _Comparing(TraceComparison((a, b), mapped, ({}, {}))).compared()


def align(a: Sequence[TracedOperation], b: Sequence[TracedOperation]) -> list[tuple[int, int]]:
    """Return pairs of numbers of operations of one phase that correspond: by module path and name, in order; in gaps by name.

    If one side is compiled or has no modules, all are paired by name: compiled code has other module paths, or none.
    """
    compiled = any(x.name.startswith("triton.") for x in (*a, *b))
    if compiled or not all(any(x.module for x in side) for side in (a, b)):
        return _aligned(*([(x.phase, x.packet) for x in side] for side in (a, b)))
    pairs = _aligned(*([(x.phase, x.module, x.packet) for x in side] for side in (a, b)))
    found, before = list(pairs), (-1, -1)
    for i, j in (*pairs, (len(a), len(b))):
        gaps = a[before[0] + 1 : i], b[before[1] + 1 : j]
        if all(gaps):
            inside = _aligned(*([(x.phase, x.packet) for x in side] for side in gaps))
            found += [(before[0] + 1 + p, before[1] + 1 + q) for p, q in inside]
        before = i, j
    return sorted(found)


Keys = list[tuple[object, ...]]


def _aligned(x: Sequence[tuple[object, ...]], y: Sequence[tuple[object, ...]]) -> list[tuple[int, int]]:
    """Return pairs of places with equal keys, in order in both."""
    first, second = list(x), list(y)
    counts = Counter(first), Counter(second)
    if sum(count * counts[1][each] for each, count in counts[0].items()) > ALIGN_WORK:
        first, second = _numbered(first), _numbered(second)
    start = 0
    while start < min(len(first), len(second)) and first[start] == second[start]:
        start += 1
    matcher = SequenceMatcher(None, first[start:], second[start:], autojunk=False)
    blocks = matcher.get_matching_blocks()
    return [(i, i) for i in range(start)] + [(start + i + n, start + j + n) for i, j, size in blocks for n in range(size)]


def _numbered(keys: Keys) -> Keys:
    """Return each key with the number of its occurrence."""
    numbers: defaultdict[tuple[object, ...], Iterator[int]] = defaultdict(count)
    return [(*key, next(numbers[key])) for key in keys]


class _Run:
    """One trace as a graph. known: hashes of its values, parts and bases. states: of its operations, as far as compared.

    mixing: operations that mix rows or read mixed ones, and the module that mixed them.
    """

    def __init__(self, trace: RecordedTrace, states: dict[int, OperationState]) -> None:
        self.operations, self.states = trace.operations, states
        self.mixing: dict[int, str] = {}
        self.producer: dict[int, int] = {}
        self.known: set[str] = set()
        for operation in trace.operations:
            for value in operation.outputs:
                self.producer.setdefault(value.id, operation.number)
            for value in (*operation.inputs, *operation.outputs):
                self.known |= value.hashes

    def state_behind(self, number: int) -> Literal["consequence", "unmapped"] | None:
        """Return the state that the results of an operation give those that read them, None if they give none."""
        state = self.states.get(number)
        if state in ("origin", "consequence"):
            return "consequence"
        return "unmapped" if state == "unmapped" and number not in self.mixing else None

    def mark_alone(self) -> None:
        """Give operations without a counterpart their state: consequences if they follow from an origin."""
        for operation in self.operations:
            if operation.number not in self.states:
                producers = [self.producer.get(x.id, operation.number) for x in operation.inputs]
                follows = any(self.states.get(number) in ("origin", "consequence") for number in producers)
                self.states[operation.number] = "consequence" if follows else "only one"


class _Comparing:
    def __init__(self, found: TraceComparison) -> None:
        self._found = found
        self._runs = _Run(found.traces[0], found.states[0]), _Run(found.traces[1], found.states[1])
        self._inputs: set[tuple[int, int]] = set()
        """Values of both runs that differ and that no recorded operation computed."""
        self._sharded = any(each.kind == "shard" for each in found.mapping or ())

    def compared(self) -> TraceComparison:
        a, b = self._runs
        self._found.pairs = align(a.operations, b.operations)
        for i, j in self._found.pairs:
            a.states[i] = b.states[j] = self._state(a.operations[i], b.operations[j])
        for run in self._runs:
            run.mark_alone()
        return self._found

    def _state(self, x: TracedOperation, y: TracedOperation) -> OperationState:
        outputs_equal = len(x.outputs) == len(y.outputs) and all(map(same, x.outputs, y.outputs))
        if self._found.traces[0].source and self._found.origins and not (x.inputs or y.inputs or outputs_equal):
            return "consequence"  # a dump without inputs: origins after the first one cannot be distinguished
        overwrites = x.random and x.packet.endswith("_")  # such as aten.uniform_: its memory may be undefined
        if len(x.inputs) == len(y.inputs) and (overwrites or all(map(same, x.inputs, y.inputs))):
            if self._mixes(x, y) and not outputs_equal:
                return "unmapped"
            constants = (
                not x.inputs and x.arguments != y.arguments
            )  # such as positions from aten.arange: compared where they are read
            return "equal" if outputs_equal else "deferred" if constants else self._of_equal_inputs(x, y)
        if self._mixes(x, y):
            return "equal" if outputs_equal else "unmapped"
        found = {
            self._trace_back(p, q, (x, y), outputs_equal and bool(x.outputs))
            for p, q in zip(x.inputs, y.inputs, strict=False)
            if not same(p, q)
        }
        if outputs_equal and x.name != "return":
            return "equal"
        return next((state for state in ("consequence", "unmapped") if state in found), "deferred")

    def _mixes(self, x: TracedOperation, y: TracedOperation) -> bool:
        """Return whether an operation mixes rows of different sequences, as a sort does, or reads mixed rows in its module.

        Outside of the module, as behind the experts of a mixture, rows are taken to be in their order again.
        """
        if self._found.mapping is None or self._sharded:
            return False
        run, other = self._runs
        numbers = (run.producer.get(value.id, -1) for value in x.inputs)
        scope = next((run.mixing[number] for number in numbers if number in run.mixing), None)
        if scope is None and mixes_rows(x, y):
            scope = x.module
        if scope is None or not x.module.startswith(scope):
            return False
        run.mixing[x.number] = other.mixing[y.number] = scope
        return True

    def _of_equal_inputs(self, x: TracedOperation, y: TracedOperation) -> OperationState:
        results = zip(x.outputs, y.outputs, strict=False)
        differing = next(((p, q) for p, q in results if p.hash and q.hash and not same(p, q)), None)
        if differing is None or not comparable(*differing, self._found.mapping):
            return "unmapped"
        reshaped = any(p.shape != q.shape for p, q in zip(x.inputs, y.inputs, strict=False))
        if self._sharded and reshaped and differing[0].shape == differing[1].shape:
            return "deferred"  # a partial sum: the sum over the ranks is compared where it is read
        if self._adds_other_terms((x,), (y,)):
            return "unmapped"
        self._found.origins.append(DifferenceOrigin((x,), (y,), differing))
        return "origin"

    def _adds_other_terms(self, left: Sequence[TracedOperation], right: Sequence[TracedOperation]) -> bool:
        """Return whether the same operations of both sides add other terms, because of the mapping."""
        if self._found.mapping is None or self._sharded:
            return False
        sides = [[x for x in side if x.packet not in COPIES] for side in (left, right)]
        return [x.packet for x in sides[0]] == [x.packet for x in sides[1]] and any(map(adds_other_terms, *sides))

    def _trace_back(
        self, p: TensorValue, q: TensorValue, readers: tuple[TracedOperation, TracedOperation], equal_after: bool
    ) -> OperationState:
        """Return the state of an operation from two inputs that differ; an origin that is not known yet is added.

        A value that no recorded operation computed and that the other run lacks is an input that differs, or comes from code
        that is not recorded. equal_after: the operation gives equal results in both runs.
        """
        if not (p.hash and q.hash):
            return "unmapped"
        left, right = _block(p, *self._runs), _block(q, *reversed(self._runs))
        if "consequence" in (left, right) or (p.id, q.id) in self._inputs:
            return "consequence"
        if isinstance(left, str) or isinstance(right, str):
            return "unmapped"
        (of_a, is_unknown_a), (of_b, is_unknown_b) = left, right
        unrecorded = "A" * is_unknown_a + "B" * is_unknown_b
        is_input = not of_a and not of_b
        # Dumps of other tools lack casts and views. Operations such as aten.zero_ overwrite memory of any content.
        if is_input and (not unrecorded or self._found.traces[0].source or equal_after):
            return "unmapped" if unrecorded else "deferred"
        if not comparable(p, q, self._found.mapping):  # without a mapping, the operations do not correspond
            return "deferred" if self._found.mapping is None else "unmapped"
        if unrecorded == "AB" and of_a and of_b:
            return "unmapped"
        if self._adds_other_terms(of_a, of_b):
            for run, block in zip(self._runs, (of_a, of_b), strict=True):
                run.states.update((operation.number, "unmapped") for operation in block)
            return "unmapped"
        if len(of_a) > 1 < len(of_b) and (pair := _one_differing_input(of_a[-1], of_b[-1])):
            state = self._trace_back(*pair, (of_a[-1], of_b[-1]), equal_after)
            for run, block in zip(self._runs, (of_a, of_b), strict=True):
                run.states[block[-1].number] = state
            return state
        if is_input:
            self._inputs.add((p.id, q.id))
        self._found.origins.append(DifferenceOrigin(of_a, of_b, (p, q), readers, unrecorded))
        for run, block in zip(self._runs, (of_a, of_b), strict=True):
            run.states.update((operation.number, "origin") for operation in block)
        return "consequence"


_Block = tuple[tuple[TracedOperation, ...], bool] | Literal["consequence", "unmapped"]


def _block(value: TensorValue, run: _Run, other: _Run) -> _Block:
    """Return the operations that compute a value from values that the other run has too, or the state of its readers.

    The second result is whether a value has no operation, and the other run does not have it.
    """
    found: set[int] = set()
    waiting, is_unknown = [value], False
    while waiting:
        each = waiting.pop()
        if other.known & each.hashes:
            continue
        number = run.producer.get(each.id)
        if number is None:
            is_unknown = True
            continue
        if (state := run.state_behind(number)) is not None:
            return state
        operation = run.operations[number]
        if number in found or any(other.known & x.hashes for x in operation.outputs if x.id == each.id):
            continue
        found.add(number)
        waiting += [x for x in operation.inputs if x.id != each.id]
    return tuple(run.operations[number] for number in sorted(found)), is_unknown


def _one_differing_input(x: TracedOperation, y: TracedOperation) -> tuple[TensorValue, TensorValue] | None:
    """Return the only input in which two calls of one operation differ; None for other calls, or more inputs."""
    if (x.name, x.arguments, len(x.inputs)) != (y.name, y.arguments, len(y.inputs)):
        return None
    differing = [(p, q) for p, q in zip(x.inputs, y.inputs, strict=True) if not same(p, q)]
    return differing[0] if len(differing) == 1 and differing[0][0].shape == differing[0][1].shape else None

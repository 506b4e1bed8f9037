"""One side of an origin: its operations with the operands that are at hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from accprobe.trace.compare import DifferenceOrigin
from accprobe.trace.mapping import WHOLE_RUN, Mapped, take_part
from accprobe.trace.records import RecordedTrace, TensorValue, TracedOperation
from accprobe.trace.replay import COPIES, Operand, RecordedCall, count_differing


@dataclass
class OriginSide:
    """One side of an origin. calls: its operations with operands, empty where one lacks them. value: the result that differs,
    None if it was not kept. run: the kept calls of this side's run.
    """

    operations: tuple[TracedOperation, ...]
    calls: tuple[RecordedCall, ...]
    value: Operand | None
    run: KeptCalls

    @property
    def packets(self) -> list[str]:
        return [x.packet for x in self.operations]

    @property
    def computed(self) -> list[str]:
        """Return the packets of operations that compute, without the "_" of operations in place."""
        return [x.removesuffix("_") for x in self.packets if x not in COPIES]

    @property
    def replays(self) -> bool:
        """Return whether the operations, called again alone, give the recorded bits; random ones are not called."""
        if len(self.calls) != len(self.operations):
            return False
        return all(x.random or call.repeats(1) for x, call in zip(self.operations, self.calls, strict=True))


@dataclass(frozen=True)
class KeptCalls:
    """The operations of a run with operands at hand. numbers: theirs. call: returns one by its number.

    unrepeated: operations that gave other bits when the run was repeated. from_folder: another machine may have recorded it.
    """

    trace: RecordedTrace
    numbers: Collection[int]
    call: Callable[[int], RecordedCall | None]
    mapped: Mapped = WHOLE_RUN
    unrepeated: Collection[int] = ()
    from_folder: bool = False

    def side(self, origin: DifferenceOrigin, which: int) -> OriginSide:
        operations = (origin.left, origin.right)[which]
        found = [self.call(x.number) for x in operations if x.number in self.numbers]
        calls = tuple(each for each in found if each is not None and each.function is not None)
        value = self._value(origin.values[which])
        return OriginSide(operations, calls if len(calls) == len(operations) else (), value, self)

    def _value(self, wanted: TensorValue) -> Operand | None:
        """Return a copy of a value: an operand or a result of an operation at hand; None if no such copy was kept."""
        for number in sorted(self.numbers):
            operation = self.trace.operations[number]
            for kind, values in enumerate((operation.inputs, operation.outputs)):
                place = next((i for i, x in enumerate(values) if (x.hash, x.shape) == (wanted.hash, wanted.shape)), None)
                call = None if place is None else self.call(number)
                found = [] if call is None else (call.operands(), call.results)[kind]
                if place is not None and place < len(found):
                    return found[place]
        return None


def kernel_names(left: OriginSide, right: OriginSide) -> str:
    """Return " (kernel A against B)" where the runs were recorded with kernels and these differ, else ""."""
    names = [" + ".join(name for x in side.operations for name in x.kernels) for side in (left, right)]
    return f" (kernel {names[0]} against {names[1]})" if all(names) and names[0] != names[1] else ""


def pair_sides(left: OriginSide, right: OriginSide) -> Iterator[tuple[str, OriginSide, str, OriginSide]]:
    """Yield ("A", left, "B", right), then ("B", right, "A", left)."""
    yield "A", left, "B", right
    yield "B", right, "A", left


def compared_parts(left: OriginSide, right: OriginSide) -> tuple[Any, Any]:
    """Return the parts of both results that are compared."""
    assert left.value is not None
    assert right.value is not None
    x, y = left.value.tensor, right.value.tensor
    return take_part(x, y, left.run.mapped), take_part(y, x, right.run.mapped)


def are_parts_equal(x: Any, y: Any, of_x: Mapped, of_y: Mapped) -> bool:
    """Return whether the compared parts of two tensors have equal bits. of_x, of_y: the parts of their runs."""
    first, second = take_part(x, y, of_x), take_part(y, x, of_y)
    return first.shape == second.shape and not count_differing(first, second)

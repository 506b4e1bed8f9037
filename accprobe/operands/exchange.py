"""One dot product sent to a device, and its result: in hex, as reports and messages show them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request, shapes

if TYPE_CHECKING:
    from pydantic_core import CoreSchema


@dataclass(frozen=True)
class Exchange:
    """Bit patterns in hex, each as wide as its storage. The patterns of one operand are joined without a gap.

    a, b: K patterns each, K / 2 of a sparse A; c, d: one. metadata, scales_a, scales_b: as in `Request`, "" if there are none.
    Reports store the list of these, without empty ones at the end.
    """

    a: str
    b: str
    c: str
    d: str
    metadata: str = ""
    scales_a: str = ""
    scales_b: str = ""

    @classmethod
    def of(cls, request: Request, row: int, results: Bits) -> Exchange:
        """Return one row of a request, with its result among `results` [N]."""
        a, b, c, d = (hex_of(column[row]) for column in (request.a, request.b, request.c, results))
        others = request.metadata, request.scales_a, request.scales_b
        return cls(a, b, c, d, *("" if column is None else hex_of(column[row]) for column in others))

    def request(self, inst: Instruction) -> Request:
        """Return the request of this one dot product."""
        a, b = (_patterns(x, fmt)[None] for x, fmt in ((self.a, inst.a), (self.b, inst.b)))
        metadata = np.frombuffer(bytes.fromhex(self.metadata), np.uint8)[None] if self.metadata else None
        scales = (_patterns(x, inst.scale)[None] if x and inst.scale else None for x in (self.scales_a, self.scales_b))
        return Request(a, b, _patterns(self.c, inst.c), metadata, *scales)

    def result(self, inst: Instruction) -> Bits:
        """Return the result, [1]."""
        return _patterns(self.d, inst.d)

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the number of hex digits of each column; `digits` returns it for an instruction."""
        return tuple(map(len, self.columns))

    @property
    def columns(self) -> list[str]:
        """Return the list that reports store."""
        every = [self.a, self.b, self.c, self.d, self.metadata, self.scales_a, self.scales_b]
        return every[: len(every) - len(list(takewhile(lambda x: not x, reversed(every))))]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        from pydantic_core import core_schema

        words = core_schema.list_schema(core_schema.str_schema(pattern="^[0-9a-f]*$"), min_length=4, max_length=7)
        read = core_schema.no_info_after_validator_function(lambda columns: cls(*columns), words)
        return core_schema.json_or_python_schema(
            json_schema=read,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), read]),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda exchange: exchange.columns),
        )


@dataclass(frozen=True)
class Counterexample:
    """A dot product that the model mispredicts. expected: the model's result, in hex; kind: of its operands."""

    exchange: Exchange
    expected: str
    kind: str

    @classmethod
    def of(cls, request: Request, row: int, results: Bits, expected: Bits, kind: str) -> Counterexample:
        """Return one row of a request, its results and the expected ones."""
        return cls(Exchange.of(request, row, results), hex_of(expected[row]), kind)


def hex_of(patterns: Bits | np.unsignedinteger[Any]) -> str:
    """Return patterns in hex, one after another."""
    array = np.atleast_1d(np.asarray(patterns))
    return array.astype(array.dtype.newbyteorder(">")).tobytes().hex()


def digits(inst: Instruction) -> tuple[int, ...]:
    """Return the hex digits of the columns of an exchange."""
    a, b, c, *others = (2 * dtype.itemsize * prod(width) for dtype, width in shapes(inst).values())
    if inst.scale is not None and not inst.sparse:
        others.insert(0, 0)
    return a, b, c, 2 * inst.d.dtype.itemsize, *others


def _patterns(text: str, fmt: Format) -> Bits:
    return np.frombuffer(bytes.fromhex(text), fmt.dtype.newbyteorder(">")).astype(fmt.dtype)

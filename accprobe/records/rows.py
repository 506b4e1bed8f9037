"""The claim about one instruction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from accprobe.build.lowerings import OpcodeSource, is_ordinary
from accprobe.errors import AccprobeError
from accprobe.isa import instructions
from accprobe.isa.instructions import Instruction
from accprobe.isa.opcodes import MATRIX
from accprobe.model.notation import DotModelField
from accprobe.model.published import Explained
from accprobe.operands.exchange import Exchange, digits
from accprobe.records.claims import Claim, Part


class Row(Part, Claim):
    """One instruction.

    opcodes: the matrix opcodes that ran; lowering: (opcode, count) of all arithmetic that it became.
    unstable: dot products that gave other bits when repeated. evidence: by feature, the exchanges that decided it.
    explains: of a simulated device, results that others recorded on the real chip and that its published model explains.
    """

    kind: Literal["instruction"] = "instruction"
    lowering: tuple[tuple[str, int], ...] = ()
    opcode_source: OpcodeSource | None = None
    cubin_sha256: str | None = None
    model: DotModelField | None = None
    unstable: int = 0
    explains: tuple[Explained, ...] = ()
    evidence: dict[str, tuple[Exchange, ...]] = Field(default_factory=dict)

    @property
    def instruction(self) -> Instruction:
        return instructions.parse(self.name)

    @property
    def parts(self) -> tuple[Row, ...]:
        return (self,)

    def wrong(self) -> Iterator[str]:
        try:
            must = digits(self.instruction)
        except AccprobeError as e:
            yield f"name: {e}"
            return
        yield from self.misplaced()
        if self.status == "inferred" and self.model is None:
            yield "status: 'inferred', yet there is no model"
        matrix = tuple(opcode for opcode, _ in self.lowering if MATRIX.match(opcode))
        if set(self.opcodes) != set(matrix):
            named, ran = (", ".join(names) or "none" for names in (self.opcodes, matrix))
            yield f"opcodes: {named}, yet the matrix opcodes of the lowering are {ran}"
        for key, exchange in self._exchanges():
            if exchange.widths != must:
                have, due = (", ".join(map(str, widths)) for widths in (exchange.widths, must))
                yield f"{key}: it has {have} hex digits, and an exchange of {self.name} has {due}"

    def _exchanges(self) -> Iterator[tuple[str, Exchange]]:
        for name, every in self.evidence.items():
            yield from ((f"evidence.{name}.{i}", exchange) for i, exchange in enumerate(every))
        if self.verification and self.verification.counterexample:
            yield "verification.counterexample", self.verification.counterexample.exchange

    def against(self) -> Iterator[str]:
        yield from super().against()
        if not (self.opcodes or is_ordinary(self.lowering)):
            yield "no opcode is named"
        done = self.verification
        if self.status == "confirmed" and done:
            yield from filter(None, [done.uncovered])
            if done.results and not done.events:
                yield "no events were counted"
            if done.tile and done.tile.differing:
                yield f"tile elements differ: {done.tile.differing}"

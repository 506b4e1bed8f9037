"""The claim about a scalar function, an instruction or a callable: which bits it returns for which operand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from accprobe.records.claims import Claim, StrictRecord, unknown_formats
from accprobe.records.verification import Count


class TableRecord(StrictRecord):
    """Segments of quadratics. bits: of an argument. coefficients: c0, c1 and c2 of each; unit: the exponent of a value of 1.
    square: how the place within a segment is squared."""

    bits: Count
    unit: int
    square: Literal["truncated", "exact"]
    coefficients: tuple[tuple[int, int, int], ...]

    @property
    def segment_bits(self) -> int:
        """Return the number of bits of an argument within its segment."""
        return self.bits - (len(self.coefficients).bit_length() - 1)


class ScalingRecord(StrictRecord):
    """f32 operations around a table: for x (size: |x|) below or above a limit, x · factor before; after, the result is
    multiplied by `value`, plus `value`, or squared."""

    size: bool
    below: bool
    limit: float
    factor: float
    then: Literal["times", "plus", "square"]
    value: float = 0.0


class TableModelRecord(StrictRecord):
    """A model of tables. reduction: its name and parameters. specials: result words by class of input, as hex. exact: result
    words by input word. first: values of argument 0, by table, in place of the
    quadratic's. flushed: subnormal inputs count as zeros.
    """

    reduction: str
    parameters: dict[str, int | tuple[int, ...]] = Field(default={})
    tables: tuple[TableRecord, ...]
    specials: dict[str, str] = Field(default={})
    exact: dict[str, str] = Field(default={})
    first: dict[str, int] = Field(default={})
    scalings: tuple[ScalingRecord, ...] = ()
    flushed: bool = True


class ConversionRecord(StrictRecord):
    """One rounding of a reference function of float64 values. overflow, infinite: results of too large and of infinite values.

    nan: the word of NaN, as hex; None: any. keeps_nan: NaN has the leading bits of the operand. flushed, flushed_operands:
    subnormal results, or operands, become zero.
    """

    function: str
    rounding: Literal["RNE", "RNA", "RZ", "RD", "RU"]
    overflow: Literal["infinity", "largest", "NaN"]
    infinite: Literal["infinity", "largest", "NaN"]
    nan: str | None = None
    keeps_nan: bool = False
    flushed: bool = False
    relu: bool = False
    flushed_operands: bool = False


class FunctionErrors(StrictRecord):
    """Errors against float64 values, in units in the last place, of `words` results that are normal
    numbers, as is their exact value.

    correct: how many are correctly rounded. against: pairs of neighbouring results that fall where the function rises, or rise
    where it falls.
    """

    function: str
    words: Count
    largest: float
    at: str
    mean: float
    correct: Count
    against: Count


class FunctionRow(Claim):
    """One scalar function, arithmetic instruction or quantiser. operand, result: their formats.

    computes: the model in words. digest: hash of all results of an exhaustive run. specials: results of special inputs.
    contradicted: hypotheses that results exclude.
    """

    kind: Literal["function"] = "function"
    operand: str
    result: str
    computes: str = ""
    digest: str = ""
    errors: FunctionErrors | None = None
    specials: dict[str, str] = Field(default_factory=dict)
    model: TableModelRecord | ConversionRecord | None = None
    contradicted: tuple[str, ...] = ()

    @property
    def is_exhaustive(self) -> bool:
        return self.verification is not None and self.verification.compared == self.verification.of > 0

    @property
    def title(self) -> str:
        """Return "torch:exp bf16", or the name of an instruction, which says its formats."""
        return f"{self.name} {self.operand}" if ":" in self.name else self.name

    @property
    def words(self) -> tuple[str, ...]:
        return (self.name, self.operand, self.result)

    def wrong(self) -> Iterator[str]:
        yield from unknown_formats(self, "operand", "result")

    def against(self) -> Iterator[str]:
        yield from super().against()
        if not self.computes:
            yield "there is no model"

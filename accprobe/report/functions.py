"""The claim about a scalar function: an instruction or a callable, from words to words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, Field

from accprobe.report.claims import STRICT, Claim, unknown_formats
from accprobe.verify.outcome import Count


class TableRecord(BaseModel):
    """Segments of quadratics. coefficients: c0, c1 and c2 of each; unit: the exponent of a value of 1."""

    model_config = STRICT

    bits: Count
    unit: int
    square: Literal["truncated", "exact"]
    coefficients: tuple[tuple[int, int, int], ...]


class ScalingRecord(BaseModel):
    """f32 operations around a table: for x (size: |x|) below or above a limit, x · factor before and a correction after."""

    model_config = STRICT

    size: bool
    below: bool
    limit: float
    factor: float
    then: Literal["times", "plus", "square"]
    value: float = 0.0


class TableModelRecord(BaseModel):
    """A model of tables. reduction: its name and parameters. specials: result words by class of input, as hex. exact: result
    words by input word. first: values of argument 0 by table. flushed: subnormal inputs count as zeros.
    """

    model_config = STRICT

    reduction: str
    parameters: dict[str, int | tuple[int, ...]] = {}
    tables: tuple[TableRecord, ...]
    specials: dict[str, str] = {}
    exact: dict[str, str] = {}
    first: dict[str, int] = {}
    scalings: tuple[ScalingRecord, ...] = ()
    flushed: bool = True


class ConversionRecord(BaseModel):
    """One rounding of a reference function of float64 values. overflow, infinite: results of too large and of infinite values.

    nan: the word of NaN, as hex; None: any. keeps_nan: NaN has the leading bits of the operand. flushed, flushed_operands:
    subnormal results, or operands, become zero.
    """

    model_config = STRICT

    function: str
    rounding: Literal["RNE", "RNA", "RZ", "RD", "RU"]
    overflow: Literal["infinity", "largest", "NaN"]
    infinite: Literal["infinity", "largest", "NaN"]
    nan: str | None = None
    keeps_nan: bool = False
    flushed: bool = False
    relu: bool = False
    flushed_operands: bool = False


class FunctionErrors(BaseModel):
    """Errors against float64 values, in units in the last place, of `words` results that are normal
    numbers, as is their exact value.

    correct: how many are correctly rounded. against: neighbouring results that move against the function.
    """

    model_config = STRICT

    function: str
    words: Count
    largest: float
    at: str
    mean: float
    correct: Count
    against: Count


class FunctionRow(Claim):
    """One function of one operand.

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

"""A row of the report for a scalar function: an instruction or a callable, from words to words."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal, Self

from pydantic import BaseModel, model_validator

from accprobe.isa.formats import FORMATS
from accprobe.report.rows import STRICT, Status
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

    nan: the word of NaN, as hex; None: any. flushed, flushed_operands: subnormal results, or operands, become zero.
    """

    model_config = STRICT

    function: str
    rounding: Literal["RNE", "RNA", "RZ", "RD", "RU"]
    overflow: Literal["infinity", "largest", "NaN"]
    infinite: Literal["infinity", "largest", "NaN"]
    nan: str | None = None
    flushed: bool = False
    relu: bool = False
    flushed_operands: bool = False


class FunctionErrors(BaseModel):
    """Errors against float64 values, in units in the last place, of `words` finite results.

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


class FunctionRow(BaseModel):
    """One function of one operand.

    computes: the model in words. words, of: results compared with the model, and how many operands there are. digest: hash of
    all results of an exhaustive run. contradicted: hypotheses that results exclude. specials: results of special inputs.
    """

    model_config = STRICT

    name: str
    operand: str
    result: str
    status: Status
    reason: str = ""
    opcodes: tuple[str, ...] = ()
    computes: str = ""
    words: Count = 0
    of: Count = 0
    mismatches: Count = 0
    counterexamples: tuple[str, ...] = ()
    digest: str = ""
    errors: FunctionErrors | None = None
    specials: dict[str, str] = {}
    model: TableModelRecord | ConversionRecord | None = None
    contradicted: tuple[str, ...] = ()
    device: str = ""
    seconds: float | None = None

    @property
    def is_exhaustive(self) -> bool:
        return self.words == self.of > 0

    @property
    def title(self) -> str:
        """ "torch:exp bf16", or the name of an instruction, which says its formats."""
        return f"{self.name} {self.operand}" if ":" in self.name else self.name

    @property
    def key(self) -> tuple[str, ...]:
        return (self.name, self.operand, self.result)

    def matches(self, word: str) -> bool:
        """Return whether a title, a glob of names or titles, or the start of an opcode means the row."""
        is_named = any(fnmatchcase(name, word) for name in (self.name, self.title))
        return is_named or (bool(word) and any(each.startswith(word) for each in self.opcodes))

    def _wrong(self) -> Iterator[str]:
        for name in ("operand", "result"):
            if getattr(self, name) not in FORMATS:
                yield f"{name}: there is no format '{getattr(self, name):.40}'"
        if self.status == "confirmed" and (self.mismatches or not self.words or not self.computes):
            yield f"status: 'confirmed', yet {self.mismatches:,} of {self.words:,} words differ from the model"
        if self.words > self.of:
            yield f"words: {self.words:,} of {self.of:,}"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if wrong := next(self._wrong(), ""):
            raise ValueError(wrong)
        return self

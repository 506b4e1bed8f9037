"""A whole matrix product as the report has it: what was found of one callable, for one shape."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, PlainSerializer, PlainValidator, model_validator

from accprobe.errors import AccprobeError
from accprobe.model import product_notation
from accprobe.model.product import ProductModel
from accprobe.report.rows import STRICT, Status, Told
from accprobe.verify.outcome import Count


def _read(data: object) -> ProductModel:
    if isinstance(data, ProductModel):
        return data
    try:
        return product_notation.from_json(data)
    except (AccprobeError, TypeError, AttributeError, KeyError) as e:
        raise ValueError(str(e)) from None


Model = Annotated[ProductModel, PlainValidator(_read), PlainSerializer(product_notation.to_json)]


class Kernel(BaseModel):
    """A kernel that ran: its name, its matrix opcodes, and how often it was launched in one call."""

    model_config = STRICT

    name: str
    opcodes: tuple[str, ...] = ()
    launches: int = 1


class Proved(BaseModel):
    """elements: fresh ones that were compared, of each kind in `kinds`; wrong: those that differ. answers, contradicting: of
    all that was asked and kept. counterexample: where the first one is, what came back and what was expected, in hex.
    """

    model_config = STRICT

    elements: Count
    wrong: Count
    seed: int
    kinds: dict[str, int] = {}
    answers: Count = 0
    contradicting: Count = 0
    counterexample: str = ""


class ProductRivals(BaseModel):
    """How many plans with something changed were tried, and in what those differ that could not be contradicted."""

    model_config = STRICT

    tried: Count
    survived: tuple[str, ...] = ()


class RegionRecord(BaseModel):
    """Elements of D that are computed alike: which, how many, what was found of them and their model."""

    model_config = STRICT

    where: str
    elements: int
    findings: dict[str, Told] = {}
    model: Model | None = None
    rivals: ProductRivals | None = None


class ProductRow(BaseModel):
    """One callable for one shape.

    callable: as the command line names it; options: what it was called with; regions: the largest first. calls: how often it
    was called. libraries: versions of those that computed. remarks: what a reader must not miss.
    """

    model_config = STRICT

    callable: str
    options: dict[str, Any] = {}
    m: int
    n: int
    k: int
    a: str
    b: str
    out: str
    scale: str | None = None
    status: Status
    reason: str = ""
    regions: tuple[RegionRecord, ...] = ()
    verification: Proved | None = None
    kernels: tuple[Kernel, ...] = ()
    libraries: dict[str, str] = {}
    remarks: tuple[str, ...] = ()
    calls: int = 0
    seconds: float | None = None

    @property
    def findings(self) -> dict[str, Any]:
        """Those of the largest region."""
        return self.regions[0].findings if self.regions else {}

    @property
    def key(self) -> tuple[object, ...]:
        """What was asked: two rows of one key answer the same question."""
        options = tuple(sorted((name, str(value)) for name, value in self.options.items()))
        return (self.callable, options, self.m, self.n, self.k, self.a, self.b, self.out, self.scale)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.status == "confirmed" and (self.verification is None or self.verification.wrong or self.reason):
            raise ValueError("status: 'confirmed', and the verification does not say so")
        return self

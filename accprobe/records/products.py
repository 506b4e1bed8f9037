"""The claim about a matrix product or a reduction: one callable, one shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from accprobe.model.notation import ProductModelField
from accprobe.model.product import ScaleOf
from accprobe.records.claims import Claim, Part, StrictRecord, unknown_formats
from accprobe.records.findings import Finding
from accprobe.records.verification import Count

Option = str | int | float | bool | None


class KernelRecord(StrictRecord):
    """A kernel that ran: its name, its matrix opcodes, and how often it was launched in one call."""

    name: str
    opcodes: tuple[str, ...] = ()
    launches: Count = 1


class RegionRecord(Part):
    """Elements of D that are computed alike.

    chains_probed: how many of the model's `chains` were probed separately; 0 of 0 in older reports.
    """

    elements: Count
    model: ProductModelField | None = None
    chains: Count = 0
    chains_probed: Count = 0

    @property
    def is_tested(self) -> bool:
        return super().is_tested or (self.model is not None and self.model.a.is_integer)


class RowsRecord(StrictRecord):
    """How the results of the rows become one: their sum T in the order of a model, `order` in words, and the result from T."""

    finish: str
    order: str
    model: ProductModelField


class CompositeRecord(StrictRecord):
    """The steps around the sum S of a composite, such as rms_norm; the row's model describes S.

    finish: the result from S. function: how the scalar functions are computed, with `eps`. order: of S, in words. moments: the
    method that computes a mean and S = Σ (x - mean)²; the row's model is then its order. rows: of a loss that is reduced over
    the rows. same_bits: other steps that gave the same bits in the rows that decided.
    """

    finish: str
    function: str
    eps: float | None = None
    order: str = ""
    moments: str = ""
    rows: RowsRecord | None = None
    same_bits: tuple[str, ...] = ()


class ProductRow(Claim):
    """One callable for one shape.

    name: the callable, as the command line has it. A reduction adds x [n, k] along k, so A is fixed, 2^factor_exponent, 1 for a
    sum; m is 1, or the number of ranks that return the result. probed_part: the part of the callable that is probed, where it
    computes more. regions: the largest first. calls: how often it was called. libraries: their versions. remarks: findings that
    a reader must not miss. composite: the steps around the sum, where there are any.
    """

    kind: Literal["product", "reduction"] = "product"
    options: dict[str, Option] = Field(default_factory=dict)
    probed_part: str = ""
    factor_exponent: int = 0
    composite: CompositeRecord | None = None
    m: Count
    n: Count
    k: Count
    a: str
    b: str
    out: str
    scale: ScaleOf | None = None
    regions: tuple[RegionRecord, ...] = ()
    kernels: tuple[KernelRecord, ...] = ()
    libraries: dict[str, str] = Field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    calls: Count = 0

    @property
    def findings(self) -> dict[str, Finding]:
        """Return the findings of the largest region."""
        return self.regions[0].findings if self.regions else {}

    @property
    def parts(self) -> tuple[RegionRecord, ...]:
        return self.regions

    @property
    def is_reduction(self) -> bool:
        return self.kind == "reduction"

    @property
    def shape(self) -> str:
        return f"{self.n}x{self.k}" if self.is_reduction else f"{self.m}x{self.n}x{self.k}"

    @property
    def words(self) -> tuple[str, ...]:
        """Return "torch:mm", "16x8x4096", "bf16", "f32", "scale=row", "use_fast_accum=True"."""
        return (self.name, self.shape, *dict.fromkeys((self.a, self.b)), self.out, *self._call)

    @property
    def title(self) -> str:
        """Return "torch:mm 16x8x4096 bf16 -> f32, allow_tf32=False"."""
        operands = self.a if self.a == self.b else f"{self.a} x {self.b}"
        return ", ".join((f"{self.name} {self.shape} {operands} -> {self.out}", *self._call))

    @property
    def _call(self) -> tuple[str, ...]:
        scale = (f"scale={self.scale}",) if self.scale else ()
        return (*scale, *(f"{name}={value}" for name, value in sorted(self.options.items())))

    def wrong(self) -> Iterator[str]:
        yield from unknown_formats(self, "a", "b", "out")
        yield from (f"{name}: expected at least 1" for name in ("m", "n", "k") if not getattr(self, name))
        named = (self.k, self.a, self.b, self.out) if self.composite is None else (self.k, "f32", "f32", "f32")
        for i, region in enumerate(self.regions):
            model = region.model
            if model and (of_model := (model.k, model.a.name, model.b.name, model.result.name)) != named:
                yield f"regions.{i}.model: of {' '.join(map(str, of_model))}, and the row of {' '.join(map(str, named))}"
            yield from (f"regions.{i}.{misplaced}" for misplaced in region.misplaced())

    def against(self) -> Iterator[str]:
        yield from super().against()
        if (covered := sum(region.elements for region in self.regions)) != self.m * self.n:
            yield f"its regions have {covered:,} of {self.m * self.n:,} elements"

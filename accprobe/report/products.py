"""A row of the report for a matrix product: one callable, one shape."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Self

from pydantic import BaseModel, model_validator

from accprobe.infer.findings import Finding
from accprobe.isa import formats
from accprobe.model.notation import ProductModelField
from accprobe.model.product import ScaleOf
from accprobe.report.rows import STRICT, SerializedFinding, Status, doubts
from accprobe.verify.outcome import Count

Option = str | int | float | bool | None


class KernelRecord(BaseModel):
    """A kernel that ran: its name, its matrix opcodes, and how often it was launched in one call."""

    model_config = STRICT

    name: str
    opcodes: tuple[str, ...] = ()
    launches: Count = 1


class ProductVerification(BaseModel):
    """Fresh elements compared, of each operand distribution in `kinds`, and how many differ.

    results, contradicting: of all kept results. counterexample: operands of one that differs, with its result and the expected.
    """

    model_config = STRICT

    elements: Count
    mismatches: Count
    seed: int
    kinds: dict[str, int] = {}
    results: Count = 0
    contradicting: Count = 0
    counterexample: str = ""


class ProductAlternatives(BaseModel):
    """How many alternative plans were tested, and the changes of those that no result contradicts."""

    model_config = STRICT

    tested: Count
    surviving: tuple[str, ...] = ()


class RegionRecord(BaseModel):
    """Elements of D that are computed alike.

    chains_probed: how many of the model's `chains` were probed separately; 0 of 0 in older reports.
    """

    model_config = STRICT

    where: str
    elements: Count
    findings: dict[str, SerializedFinding] = {}
    model: ProductModelField | None = None
    alternatives: ProductAlternatives | None = None
    chains: Count = 0
    chains_probed: Count = 0

    def against(self) -> Iterator[str]:
        """Yield the reasons why the region does not confirm a product."""
        if self.model is None:
            yield "there is no model"
            return
        yield from doubts(self.findings, bool(self.alternatives and self.alternatives.tested) or self.model.a.is_integer)


class CompositeRecord(BaseModel):
    """The steps around the sum S of a composite, such as rms_norm; the row's model is that of S.

    finish: the result from S. function: how the scalar function is computed, with `eps`. order: of S, in words. same_bits:
    other steps that gave the same bits in every tested row.
    """

    model_config = STRICT

    finish: str
    function: str
    eps: float | None = None
    order: str = ""
    same_bits: tuple[str, ...] = ()


class ProductRow(BaseModel):
    """One callable for one shape.

    callable: as the command line names it. reduction: it adds x [n, k] along k, so A is fixed,
    2^factor_exponent, 1 for a sum; m is 1, or the number of ranks that return the result. probed_part: the part of the callable
    that is probed, where it computes more.
    device: the device that computed it. regions: the largest first. calls: how often it was called. libraries: their versions.
    remarks: findings that a reader must not miss. composite: the steps around the sum, where there are any.
    """

    model_config = STRICT

    callable: str
    options: dict[str, Option] = {}
    probed_part: str = ""
    reduction: bool = False
    factor_exponent: int = 0
    composite: CompositeRecord | None = None
    m: Count
    n: Count
    k: Count
    a: str
    b: str
    out: str
    scale: ScaleOf | None = None
    status: Status
    reason: str = ""
    regions: tuple[RegionRecord, ...] = ()
    verification: ProductVerification | None = None
    kernels: tuple[KernelRecord, ...] = ()
    libraries: dict[str, str] = {}
    remarks: tuple[str, ...] = ()
    calls: Count = 0
    seconds: float | None = None
    device: str = ""

    @property
    def findings(self) -> dict[str, Finding]:
        """Return the findings of the largest region."""
        return self.regions[0].findings if self.regions else {}

    @property
    def parts(self) -> tuple[RegionRecord, ...]:
        return self.regions

    @property
    def key(self) -> tuple[object, ...]:
        """Return what identifies the row: of two rows with one key, the newer one counts."""
        options = tuple(sorted((name, str(value)) for name, value in self.options.items()))
        return (self.callable, options, self.m, self.n, self.k, self.a, self.b, self.out, self.scale)

    @property
    def shape(self) -> str:
        return f"{self.n}x{self.k}" if self.reduction else f"{self.m}x{self.n}x{self.k}"

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that globs match: "torch:mm", "16x8x4096", "bf16", "f32"; the callable first."""
        return (self.callable, self.shape, *dict.fromkeys((self.a, self.b)), self.out, *self._call)

    @property
    def title(self) -> str:
        """ "torch:mm 16x8x4096 bf16 -> f32, allow_tf32=False"."""
        operands = self.a if self.a == self.b else f"{self.a} x {self.b}"
        return ", ".join((f"{self.callable} {self.shape} {operands} -> {self.out}", *self._call))

    @property
    def _call(self) -> tuple[str, ...]:
        """Return "scale=row" and "use_fast_accum=True"."""
        scale = (f"scale={self.scale}",) if self.scale else ()
        return (*scale, *(f"{name}={value}" for name, value in self.options.items()))

    def matches(self, globs: str) -> bool:
        """Return whether "torch:* 16x8x* bf16" means the row: a glob of the callable, and globs of other words of the row."""
        first, *others = globs.split()
        words = self.words
        return fnmatchcase(words[0], first) and all(any(fnmatchcase(word, glob) for word in words[1:]) for glob in others)

    @property
    def holds(self) -> bool:
        """Return whether the row is confirmed, or simulated and nothing else is missing."""
        return self.status == "confirmed" or (self.status == "simulated" and not self.reason)

    def _against(self) -> Iterator[str]:
        """Yield the contradictions between the row and its status."""
        if not self.holds:
            return
        if self.reason:
            yield f"there is a reason against it: {self.reason}"
        done = self.verification
        if done is None or not done.elements:
            yield "no fresh elements were compared"
        elif done.mismatches or done.contradicting or done.counterexample:
            yield f"{done.mismatches:,} fresh elements differ and {done.contradicting:,} results contradict the model"
        for i, region in enumerate(self.regions):
            yield from (f"regions.{i}: {against}" for against in region.against())
        if (covered := sum(region.elements for region in self.regions)) != self.m * self.n:
            yield f"its regions have {covered:,} of {self.m * self.n:,} elements"

    def _wrong(self) -> Iterator[str]:
        """Yield values that no row may have."""
        for name in ("a", "b", "out"):
            if getattr(self, name) not in formats.FORMATS:
                yield f"{name}: there is no format '{getattr(self, name):.40}'"
        for name in ("m", "n", "k"):
            if not getattr(self, name):
                yield f"{name}: expected at least 1"
        named = (self.k, self.a, self.b, self.out) if self.composite is None else (self.k, "f32", "f32", "f32")
        for i, region in enumerate(self.regions):
            model = region.model
            if model and (of_model := (model.k, model.a.name, model.b.name, model.result.name)) != named:
                yield f"regions.{i}.model: of {' '.join(map(str, of_model))}, and the row of {' '.join(map(str, named))}"
            if misplaced := next((name for name, finding in region.findings.items() if finding.evidence), None):
                yield f"regions.{i}.findings.{misplaced}.evidence: a product's findings have none"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if wrong := next(self._wrong(), ""):
            raise ValueError(wrong)
        if against := next(self._against(), ""):
            raise ValueError(f"status: '{self.status}', yet {against}")
        return self

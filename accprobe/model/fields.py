"""Records of every feature of an instruction in reports, including every field of the model.

The notation of models, alternative models, types of device code and the glossary are derived from these records. A record
does not define how a field is evaluated or inferred.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple, TypeVar, get_args

from accprobe.model import tree
from accprobe.model.record import Feature, Field, Numbers, Patterns, Words
from accprobe.model.tree import SUM_BITS, Arithmetic, DotModel, FloatArithmetic, IntegerArithmetic, Role

# By name, in the order of reports.
FEATURES: dict[str, Feature] = {
    "ran_as": Feature(
        "ran as",
        "the SASS opcodes that the PTX instruction became",
        "Another machine instruction does the work: results of one do not apply to the other.",
        of_row=True,
    ),
    "effective_bits": Feature(
        "effective bits",
        "fraction bits that the running sum keeps at the weakest link of the chain",
        "Long sums have another error: a tolerance or promotion interval of one does not fit the other.",
    ),
    "alignment_bits": Field(
        "alignment bits F",
        "fraction bits kept below the largest exponent when the terms of a sum are aligned; exact: all",
        "Small terms beside a large one are truncated at another bit: the last bits of the same dot product can differ.",
        of_adds=True,
        evidence="M - M and an ever smaller term: the last that survives, the first that is lost",
        values=Numbers(0, SUM_BITS, none=inf, counts_bits=True),
        decides="terms",
    ),
    "result_bits": Field(
        "result bits",
        "fraction bits that a sum's result keeps; of an integer all its bits",
        "Each partial sum is rounded at another bit.",
        of_adds=True,
        evidence="M and an ever smaller term: the last that the result shows, the first that it does not",
        values=Numbers(0, 52, counts_bits=True),
        decides="results",
    ),
    "result_rounding": Field(
        "result rounding",
        "how a sum is rounded to its result: RZ toward zero, RNE to nearest, ties to even, RNA to nearest, ties away from zero",
        "Rounding toward zero is biased: the error of a long sum grows with its length, to nearest with its square root.",
        of_adds=True,
        evidence="ties, and terms on either side of them, of both signs",
        values=Words(get_args(tree.Rounding)),
        compiled=("RZ", "RNE", "RU", "RD"),
        decides="results",
    ),
    "alignment_rounding": Field(
        "alignment rounding",
        "how the bits below F are dropped",
        "Terms are rounded otherwise: the last bits of the same dot product can differ, and their bias too.",
        of_adds=True,
        of_alignment=True,
        evidence="terms of both signs below the last bit kept, beside M - M",
        values=Words(get_args(tree.AlignmentRounding)),
        compiled=("truncate", "floor", "nearest", "sticky"),
        decides="terms",
        with_coarser=("truncate", "floor", "nearest", "sticky"),
    ),
    "products_per_sum": Feature(
        "products per fused sum",
        "products that the hardware adds at once; a larger K is a chain of such sums",
        "The chain of one K is rounded another number of times: the same operands can give other bits.",
    ),
    "order": Feature(
        "order",
        "the summation tree: `[[c 0-15] 16-31]` adds C and 16 products, then that sum and 16 more",
        "Products are added in another order: the same operands can give other bits.",
        evidence="large M and -M as two terms, a small unit as a third: the unit is kept only if M and -M cancel before"
        " it is added, or in the same sum",
    ),
    "addend": Feature(
        "C added in",
        "the fused sum in which the addend C is added, or a separate add",
        "C is added at another place: it is aligned with other terms, or rounded separately.",
    ),
    "overflow": Field(
        "overflow",
        "result of a sum that is too large: infinity or the largest number; of integers: wrap or saturate",
        "Sums that are too large become something else: a kernel that looks for infinities, or that wraps, is at risk.",
        of_adds=True,
        values=Words(get_args(tree.Overflow)),
        of_integers=Words(get_args(tree.IntegerOverflow)),
        place="overflow",
        shows_as="overflow",
    ),
    "product_exponent": Field(
        "product exponent",
        "the exponent with which a product takes part in the search for the largest one",
        "Terms beside products such as 1.5 × 1.5, or of subnormals, are truncated at another bit.",
        of_alignment=True,
        evidence="products with an exponent other than the sum of their factors', beside a term near the last kept bit",
        values=Words(get_args(tree.ProductExponent)),
        decides="terms",
        place="products",
    ),
    "zero_terms": Field(
        "zero terms",
        "whether the exponent of a product with a zero operand counts in the search for the largest one",
        "On one side, zeros beside large numbers can truncate small terms: padding is not free.",
        of_alignment=True,
        evidence="a zero times a large number, beside a small number",
        values=Words(get_args(tree.ZeroTerms)),
        only_where=("product_exponent", "unnormalised"),
        with_coarser=("aligned",),
        place="products",
    ),
    "min_exponent": Field(
        "smallest exponent",
        "terms are aligned no lower than this exponent; none: no floor",
        "Sums of tiny numbers lose bits at other magnitudes.",
        of_alignment=True,
        evidence="the smallest numbers, alone: bits below the lowest alignment are lost",
        values=Numbers(-512, 512, none=-inf),
        place="floor",
    ),
    "subnormal_operands": Field(
        "subnormals of A and B",
        "whether subnormal operands are read as they are or as zero",
        "Subnormal operands count on the one and are zero on the other: scale before converting to a small format.",
        values=Words(get_args(tree.Subnormals)),
        shows_as="subnormal",
    ),
    "subnormal_addend": Field(
        "subnormals of C",
        "whether a subnormal C is read as it is or as zero",
        "A subnormal C counts on the one and is zero on the other.",
        values=Words(get_args(tree.Subnormals)),
        shows_as="subnormal",
    ),
    "subnormal_results": Field(
        "subnormal results",
        "whether results may be subnormal",
        "Tiny results are kept on the one and become zero on the other.",
        of_adds=True,
        values=Words(get_args(tree.Subnormals)),
        place="underflow",
        shows_as="subnormal",
    ),
    "nan": Field(
        "NaN",
        "bit pattern of a NaN result",
        "NaNs have other bits: compare them as NaNs, not as patterns.",
        values=Patterns(64),
    ),
    "nan_payload": Field(
        "NaN payload",
        "whether a NaN operand's payload passes through, and which operand's",
        "NaN payloads differ: compare them as NaNs, not as patterns.",
        values=Words(get_args(tree.NanPayload), codes=(0, 123, 132, 213, 231, 312, 321)),
        of_f64=True,
    ),
    "zero_sign": Field(
        "sign of zero sums",
        "sign of a sum that is exactly zero",
        "Zeros can have another sign: compare them as numbers, not as patterns.",
        of_adds=True,
        values=Words(get_args(tree.ZeroSign)),
        shows_as="sign of zero",
    ),
    "underflow_sign": Field(
        "sign of underflow",
        "sign of a nonzero sum that is rounded to zero",
        "Zeros can have another sign: compare them as numbers, not as patterns.",
        of_adds=True,
        values=Words(get_args(tree.UnderflowSign)),
        place="underflow",
        shows_as="sign of zero",
    ),
    "tininess_detected": Field(
        "tininess detected",
        "whether a sum is too small if it is below the smallest normal number before, or after, rounding; to full precision:"
        " as if exponents had no end",
        "Sums just below the smallest normal number become zero on the one.",
        of_adds=True,
        values=Words(get_args(tree.Tininess)),
        only_where=("subnormal_results", "flushed"),
        compiled=("after rounding",),
        place="underflow",
    ),
    "scaled_products": Field(
        "products scaled at once",
        "products that are added exactly before their block scales are applied; none: each is scaled separately",
        "Small products beside others of their block are truncated at another bit, and so are blocks with small scales.",
        of_alignment=True,
        evidence="small products beside cancelling ones of a larger scale: the remainder",
        values=Numbers(2, 1024, none=1),
        compiled=(None,),
    ),
    "carries": Feature(
        "carries",
        "whether many terms of one sign grow without wrapping",
        "Sums of many terms of one sign can be wrong on one side.",
        evidence="many terms of one sign",
    ),
    "left_out": Feature(
        "left out",
        "effect of the elements of B at positions that a sparse A leaves out; absent: none",
        "On one side, elements of B at positions that a sparse A leaves out change the result.",
        evidence="zeros where A has nothing stored, then other numbers there",
    ),
    "control": Feature(
        "control register",
        "settings of the processor's control register (MXCSR, FPCR) that change results: of rounding, of subnormals",
        "The same operands give other bits in a thread that has set the register otherwise.",
    ),
    "sums_alike": Feature(
        "sums alike",
        "whether all sums of the chain have the same arithmetic",
        "On one side, sums of one K are computed in different ways.",
        of_adds=True,
        of_chains=True,
    ),
    "status": Feature(
        "status",
        "status of the row: confirmed, inferred, …",
        "One side is verified less well: measure it again.",
        of_row=True,
    ),
    "unstable": Feature(
        "unstable",
        "dot products that gave different bits when repeated",
        "One side does not give the same bits twice: suspect a race or a faulty unit.",
        of_row=True,
    ),
}


def fields_of(kind: type[Arithmetic] | type[DotModel]) -> dict[str, Field]:
    """Return the recorded fields of sums or of whole models, in their order."""
    found = {field.name: FEATURES[field.name] for field in dataclasses.fields(kind) if field.name in FEATURES}
    records = {name: record for name, record in found.items() if isinstance(record, Field)}
    if not issubclass(kind, IntegerArithmetic):
        return records
    return {name: dataclasses.replace(x, values=x.of_integers) for name, x in records.items() if x.of_integers}


def written_fields(described: Arithmetic | DotModel) -> dict[str, Field]:
    """Return the fields that reports and code state: all but tacit ones at their usual values."""
    fields = fields_of(type(described)).items()
    return {name: field for name, field in fields if not field.tacit or not field.is_compiled(getattr(described, name))}


_M = TypeVar("_M", bound=Any)


def with_values(record: _M, values: Mapping[str, object]) -> _M:
    """Return a model or an arithmetic with changed fields, given by name."""
    changed: _M = dataclasses.replace(record, **values)
    return changed


ADD = "add_"  # Prefix of features of sums that add only results and C, no products.
IMPORTANCE = sorted(FEATURES, key=lambda name: name == "ran_as")  # Features, the most important first.


class Name(NamedTuple):
    """A feature of the sums of one role; features of the whole model have the role "sum"."""

    feature: str
    role: Role = "sum"

    def __str__(self) -> str:
        return ADD + self.feature if self.role == "add" else self.feature

    @property
    def record(self) -> Feature | None:
        return FEATURES.get(self.feature)

    @property
    def field(self) -> Field | None:
        """Return the record of the model field, if the feature is one."""
        record = self.record
        return record if isinstance(record, Field) else None


def parsed(name: str) -> Name:
    """Return the feature and the role of a name in a report."""
    return Name(name.removeprefix(ADD), "add") if name.startswith(ADD) else Name(name)


def finding_names() -> list[str]:
    """Return every feature that a finding can have, including the features of separate adds."""
    findings = {name: record for name, record in FEATURES.items() if not record.of_row}
    return [*findings, *(str(Name(name, "add")) for name, record in findings.items() if record.of_adds)]


def of_alignment() -> list[str]:
    """Return the features that have no meaning if every bit of the terms is kept."""
    return [name for name, field in fields_of(FloatArithmetic).items() if field.of_alignment]


_TITLES = {"promote_every": "promotion interval", "split_k": "split-K"}
"""Titles of findings of products that are not their names."""


def title(name: str, of_product: bool = False) -> str:
    """Return the title of a feature in tables; an unknown feature keeps its name. A product's result is D, not each sum."""
    if of_product and name == "result_rounding":
        return "rounding to D"
    what = parsed(name)
    words = what.record.title if what.record else _TITLES.get(what.feature, what.feature.replace("_", " "))
    return f"{words} (separate add)" if what.role == "add" else words

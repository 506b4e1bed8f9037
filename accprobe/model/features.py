"""Every feature that a report may have of an instruction: what it says, and what it means for a kernel where two differ."""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """title: as tables head it; says: what it is; differs: what it means for a kernel where two instructions differ in it."""

    title: str
    says: str
    differs: str


FEATURES: dict[str, Feature] = {
    "ran_as": Feature(
        "ran as",
        "the SASS opcodes that the PTX instruction became",
        "Another machine instruction does the work: what was measured of the one says nothing about the other.",
    ),
    "effective_bits": Feature(
        "effective bits",
        "fraction bits of the running sum that a kernel can count on, at the weakest link of the chain",
        "Long sums have another error: a tolerance or a promotion interval that was chosen for the one does not fit the other.",
    ),
    "alignment_bits": Feature(
        "alignment bits F",
        "fraction bits kept below the largest exponent when the terms of a sum are aligned; exact: all",
        "Small terms beside a large one are cut elsewhere: the last bits of the same dot product can differ.",
    ),
    "result_bits": Feature(
        "result bits",
        "fraction bits that a sum's result keeps; of an integer all its bits",
        "Partial sums are rounded elsewhere, each time that one is handed on.",
    ),
    "result_rounding": Feature(
        "result rounding",
        "how a sum is rounded to its result: RZ toward zero, RNE to nearest, ties to even",
        "Rounding toward zero drifts: the error of a long sum grows with its length, that of nearest with its square root.",
    ),
    "alignment_rounding": Feature(
        "alignment rounding",
        "what becomes of the bits below F",
        "Terms of a sum are cut otherwise: the last bits of the same dot product can differ, and their bias too.",
    ),
    "products_per_sum": Feature(
        "products a sum",
        "products that the hardware adds at once; a larger K is a chain of such sums",
        "The chain of one K is rounded another number of times: the same operands can give other bits.",
    ),
    "order": Feature(
        "order",
        "the summation tree: `[[c 0-15] 16-31]` adds C and 16 products, then that sum and 16 more",
        "Products are added in another order: the same operands can give other bits.",
    ),
    "addend": Feature(
        "C joins",
        "with which sum the addend C is added, or that it has an addition of its own",
        "C is added at another place: it shares a cut with other terms, or is rounded on its own.",
    ),
    "overflow": Feature(
        "overflow",
        "what a sum that is too large becomes: infinity, the largest number; of integers wrap or saturate",
        "Sums that are too large become something else: a kernel that looks for infinities, or that wraps, is at risk.",
    ),
    "product_exponent": Feature(
        "product exponent",
        "the exponent with which a product takes part in the search for the largest one",
        "Terms beside products such as 1.5 × 1.5, or of subnormals, are cut one bit elsewhere.",
    ),
    "zero_terms": Feature(
        "zero terms",
        "whether the exponent of a product with a zero operand counts in the search for the largest one",
        "Zeros beside large numbers can cut small terms on the one and not on the other: padding is not free.",
    ),
    "min_exponent": Feature(
        "smallest exponent",
        "terms are aligned no lower than this exponent; none: no floor",
        "Sums of tiny numbers lose bits at other sizes.",
    ),
    "subnormal_operands": Feature(
        "subnormals of A and B",
        "whether subnormal operands are read as they are or as zero",
        "Subnormal operands count on the one and are zero on the other: scale before converting to a small format.",
    ),
    "subnormal_addend": Feature(
        "subnormals of C",
        "whether a subnormal C is read as it is or as zero",
        "A subnormal C counts on the one and is zero on the other.",
    ),
    "subnormal_results": Feature(
        "subnormal results",
        "whether results may be subnormal",
        "Tiny results are kept on the one and become zero on the other.",
    ),
    "nan": Feature(
        "NaN",
        "bit pattern of a NaN result",
        "NaNs have other bits: compare them as NaNs, not as patterns.",
    ),
    "nan_payload": Feature(
        "NaN payload",
        "whether a NaN operand's payload passes through, and which operand's",
        "NaNs that carry a payload arrive otherwise: compare them as NaNs, not as patterns.",
    ),
    "zero_sign": Feature(
        "sign of zero sums",
        "sign of a sum that is exactly zero",
        "Zeros can have another sign: compare them as numbers, not as patterns.",
    ),
    "underflow_sign": Feature(
        "sign of underflow",
        "sign of a sum that is not zero and becomes it by rounding",
        "Zeros can have another sign: compare them as numbers, not as patterns.",
    ),
    "carries": Feature(
        "carries",
        "whether many terms of one sign grow without wrapping",
        "Sums of many terms of one sign can be wrong on one side.",
    ),
    "sums_alike": Feature(
        "sums alike",
        "whether all sums of the chain have the one arithmetic",
        "The sums of one K are not all computed alike on one side.",
    ),
    "status": Feature(
        "status",
        "how well the numbers are proved",
        "The numbers of the two sides are not proved equally well: measure the weaker one again.",
    ),
    "unstable": Feature(
        "unstable",
        "dot products that gave other bits when asked a second time",
        "One side does not give the same bits twice: suspect a race or a faulty unit.",
    ),
}
"""By name, in the order in which differences are told."""

IMPORTANCE = sorted(FEATURES, key=lambda name: name == "ran_as")
"""Features, those first that a reader looks for first."""

ADD = "add_"
"""Prefix of the features of a sum that adds results and C alone, no products."""

OF_ADDS = (
    "alignment_bits",
    "result_bits",
    "result_rounding",
    "alignment_rounding",
    "overflow",
    "subnormal_results",
    "zero_sign",
    "underflow_sign",
    "sums_alike",
)
"""Features that such a sum has."""

OF_ALIGNMENT = ("alignment_rounding", "product_exponent", "min_exponent", "zero_terms")
"""Features that mean nothing where every bit of the terms is kept."""

OF_CHAINS = ("sums_alike",)
"""Features that a single sum has not."""

NUMBERS = ("effective_bits", "alignment_bits", "result_bits", "products_per_sum", "min_exponent")
"""Features whose values are numbers, those of all others are words."""

NO_FINDINGS = ("ran_as", "status", "unstable")
"""Features that a row has of its own."""


def finding_names() -> list[str]:
    """Every feature that a finding may be of, those of separate adds too."""
    return [*(name for name in FEATURES if name not in NO_FINDINGS), *(ADD + name for name in OF_ADDS)]


def title(name: str) -> str:
    """A feature as tables head it; one that is not known by its name."""
    plain = name.removeprefix(ADD)
    words = FEATURES[plain].title if plain in FEATURES else plain.replace("_", " ")
    return f"{words} (separate add)" if name.startswith(ADD) else words

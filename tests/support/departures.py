"""Departures from a model with which the independent evaluator computes planted devices; by default none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Packing:
    """Rounding of results outside the fields of a model.

    rounding: instead of the model's. first_bits: fraction bits beyond the result's to which it is rounded before, to nearest.
    overflow: "before": what overflows is what is beyond the largest number before it is rounded; "exponent": what is beyond it
    by its exponent before it is rounded, and what rounding carries there is the largest. subnormal_before: what lies below
    the smallest normal number before it is rounded is zero. flushed_below: results below 2^(smallest normal + this) are zero.
    blind: (modulus, residue): results whose exponent leaves that residue have no last bit.
    """

    rounding: str = ""
    first_bits: int | None = None
    overflow: str = ""
    subnormal_before: bool = False
    flushed_below: int | None = None
    blind: tuple[int, int] | None = None


USUAL = Packing()


@dataclass(frozen=True)
class Entry:
    """One wrong entry of a product table: code a times code b is `off` units of the product's last place off.

    k: in that product alone, None: in all.
    """

    a: int
    b: int
    off: int
    k: int | None = None


@dataclass(frozen=True)
class Scaling:
    """Departures of block scales.

    bits: fraction bits that are read. nan_is_number: of a NaN's pattern, as if the format had none. flushed: subnormals are
    zeros. last_is_b: A has the scale of B in the last block. group_bits: low bits that sums of products lose before they are
    scaled. largest: exponent of two scales. infinite_zero: an infinity times zero is zero.
    """

    bits: int | None = None
    nan_is_number: bool = False
    flushed: bool = False
    last_is_b: bool = False
    group_bits: int = 0
    largest: int = 1 << 16
    infinite_zero: bool = False


@dataclass(frozen=True)
class Wide:
    """Departures of sums of products from the model; by default none.

    product_bits, product_word: fraction bits of products before alignment, and the rounding to them. addend_bits: fraction bits
    of C and inner results. led_by: the terms whose exponents count: "products", "others", "even", "first half". others_lift:
    added to the exponent of C. word, others_word: rounding of terms, of C and inner results. others_short: fraction bits that C
    and inner results lose; products_short: that products lose. short_at: (modulus, residue, bits): largest exponents at which
    so many fewer are kept of all. pairwise: terms are added in pairs, pairs of pairs, …, each sum without its last bit.
    lost_carry: (n, weight): a sum of exactly n odd terms is 2^weight too small. accumulator: "wrap" or "saturate", and the bits
    that it has above F. packing: of results. nan: "signed": a NaN has the sign of C; "invalid": NaNs of invalid operations have
    another last bit; "from C": a NaN in C passes through, in f64 as it is. entry: a wrong product. separately: f64 products are
    rounded before they are added. integers: "wrap" or "saturate", bits, and products a group, whose sum has those bits.
    """

    product_bits: int | None = None
    product_word: str = "truncate"
    addend_bits: int | None = None
    led_by: str = ""
    others_lift: int = 0
    word: str = ""
    others_word: str = ""
    others_short: int = 0
    products_short: int = 0
    short_at: tuple[int, int, int] | None = None
    pairwise: bool = False
    lost_carry: tuple[int, int] | None = None
    accumulator: tuple[str, int] | None = None
    packing: Packing = USUAL
    nan: str = ""
    entry: Entry | None = None
    separately: bool = False
    integers: tuple[str, int, int] | None = None
    scaling: Scaling = Scaling()


PLAIN = Wide()

"""A `DotModel` as arrays of numbers, which compiled code walks: one record a fused sum, children before parents.

Words are the numbers that their records give them (`accprobe.model.fields`). Bit patterns of 64 bits stand in int64, their sign
bit as its sign.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import Patterns, Value, Values, Words, fields_of
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, Subnormals

Numbers = NDArray[np.int64]
_Record = tuple[int, ...]

FORMAT = np.dtype(
    [
        (name, np.int64)
        for name in (
            "bits",
            "signed",
            "mantissa",
            "ignored",
            "biased_mask",
            "bias",
            "min_exponent",
            "max_exponent",
            "largest",
            "has_infinity",
            "infinity",
            "sign_bit",
            "sign_shift",
            "flushed",
        )
    ]
)
"""largest: the largest finite magnitude without the ignored bits. flushed: subnormals are read as zero."""

_FIELDS = [name for name, field in fields_of(FloatArithmetic).items() if not field.tacit]

_RULES = ("kind", *_FIELDS, *(f"has_{name}" for name in _FIELDS))

NODE = np.dtype([(name, np.int64) for name in ("first_product", "end_products", "first_other", "end_others", *_RULES)])
"""The fields by their names, those that integer sums have too among them; has_NAME: whether the value is not None."""

ALIGNED, EXACT, INTEGER = range(3)
A, B, OTHERS = range(3)
"""Places in `Flat.formats`; of term i that is no product, OTHERS + i."""


class Flat(NamedTuple):
    """nodes: of NODE; products, others: what the nodes' ranges index; formats: of FORMAT.

    Terms that are no products are numbered: i is the result of node i, and the last one is C.
    """

    nodes: NDArray[np.void]
    products: Numbers
    others: Numbers
    formats: NDArray[np.void]


def not_compiled(model: DotModel) -> str:
    """A field of the model, and its value, that compiled code does not know: only numpy evaluates such models; "" of others."""
    return _unknown(model) or next(filter(None, map(_not_compiled, model.arithmetics)), "")


@lru_cache(maxsize=4096)
def _not_compiled(arithmetic: Arithmetic) -> str:
    return _unknown(arithmetic)


def _unknown(described: DotModel | Arithmetic) -> str:
    for name, field in fields_of(type(described)).items():
        if not field.is_compiled(value := getattr(described, name)):
            return f"{name} {value}"
    return ""


@lru_cache(maxsize=256)
def flatten(model: DotModel, inst: Instruction) -> Flat:
    """The model of that instruction as arrays."""
    nodes: list[_Record] = []
    products: list[int] = []
    others: list[int] = []
    formats = [_format(fmt, model.subnormal_operands) for fmt in (inst.a, inst.b)]
    addend = sum(1 for _ in model.root.nodes())

    def add(node: FusedSum) -> int:
        terms = [add(child) for child in node.children] + [addend] * node.has_addend
        first = len(products), len(others)
        products.extend(node.products)
        others.extend(terms)
        formats.append(_format(node.arithmetic.result, "kept"))
        nodes.append((first[0], len(products), first[1], len(others), *_rules(node.arithmetic)))
        return len(nodes) - 1

    add(model.root)
    formats.append(_format(inst.c, model.subnormal_addend))
    return Flat(_records(NODE, nodes), np.array(products, np.int64), np.array(others, np.int64), _records(FORMAT, formats))


def _records(dtype: np.dtype[np.void], rows: list[_Record]) -> NDArray[np.void]:
    """All fields being int64: many times faster than an array of records is made of tuples."""
    records: NDArray[np.void] = np.array(rows, np.int64).view(dtype)[:, 0]
    return records


@lru_cache(maxsize=4096)
def _rules(arithmetic: Arithmetic) -> _Record:
    """What follows in a record of NODE after the ranges; 0 of what such sums do not have."""
    row = _fields(arithmetic)
    return tuple(row.get(name, 0) for name in _RULES)


def _fields(arithmetic: Arithmetic) -> dict[str, int]:
    exact = isinstance(arithmetic, FloatArithmetic) and arithmetic.alignment_bits is None
    row = {"kind": EXACT if exact else INTEGER if isinstance(arithmetic, IntegerArithmetic) else ALIGNED}
    for name, field in fields_of(type(arithmetic)).items():
        value = getattr(arithmetic, name)
        row |= {name: _number(field.values, value), f"has_{name}": int(value is not None)}
    return row


def _number(values: Values, value: Value) -> int:
    if isinstance(values, Words):
        return values.code(str(value))
    if not isinstance(value, int):
        return 0
    return _signed(value) if isinstance(values, Patterns) else value


@cache
def _format(fmt: Format, subnormals: Subnormals) -> _Record:
    row = {"bits": fmt.bits, "signed": int(fmt.kind == "signed"), "largest": fmt.largest >> fmt.ignored_low_bits}
    if fmt.is_float:
        row |= {
            "mantissa": fmt.mantissa_bits,
            "ignored": fmt.ignored_low_bits,
            "biased_mask": (1 << fmt.exponent_bits) - 1,
            "bias": fmt.bias,
            "min_exponent": fmt.min_exponent,
            "max_exponent": fmt.max_exponent,
            "has_infinity": int(fmt.infinity is not None),
            "infinity": fmt.infinity or 0,
            "sign_bit": _signed(fmt.sign_bit),
            "sign_shift": fmt.sign_bit.bit_length() - 1,
            "flushed": int(subnormals == "flushed"),
        }
    return tuple(row.get(name, 0) for name in FORMAT.names or ())


def _signed(pattern: int) -> int:
    return pattern - (1 << 64) if pattern >> 63 else pattern

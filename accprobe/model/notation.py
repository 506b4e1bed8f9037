"""Models as text: the order of their sums, and the whole model as JSON, written and strictly read."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from typing import Any, get_args

from accprobe.errors import AccprobeError
from accprobe.isa import formats
from accprobe.model.tree import (
    SUM_BITS,
    Addend,
    AlignmentRounding,
    Arithmetic,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    IntegerOverflow,
    NanPayload,
    Overflow,
    Product,
    ProductExponent,
    Rounding,
    Subnormals,
    Term,
    UnderflowSign,
    ZeroSign,
    ZeroTerms,
)

RESULTS = ("f16", "bf16", "f32", "f64", "s32")
"""Formats that a fused sum's result may have in a model that is read."""

MOST_PRODUCTS, MOST_NESTED = 1024, 128
"""What an order that is read may have: products, and sums within sums."""


def parse_order(text: str, arithmetics: tuple[Arithmetic, ...]) -> FusedSum:
    """The tree that `DotModel.order` wrote. Raises AccprobeError with the place where the text goes wrong."""
    try:
        return _read(text, arithmetics)
    except AccprobeError as error:
        raise AccprobeError(f"order '{_shown(text)}': {error}") from None


def _read(text: str, arithmetics: tuple[Arithmetic, ...]) -> FusedSum:
    open_sums: list[list[Term]] = []
    leaves: set[Product | Addend] = set()
    root: FusedSum | None = None
    for word in re.findall(r"\[|\](?:@[^\s\[\]]*)?|[^\s\[\]]+", text):
        if root is not None or (word != "[" and not open_sums):
            raise AccprobeError(f"'{_shown(word)}' stands outside of the brackets")
        if word == "[":
            open_sums.append([])
            if len(open_sums) > MOST_NESTED:
                raise AccprobeError(f"more than {MOST_NESTED} sums within sums")
        elif word.startswith("]"):
            node = FusedSum(tuple(open_sums.pop()), _numbered(word[1:], arithmetics))
            if not node.terms:
                raise AccprobeError("a sum has no terms")
            if open_sums:
                open_sums[-1].append(node)
            else:
                root = node
        else:
            for leaf in _leaves(word):
                if leaf in leaves:
                    raise AccprobeError(f"{'c' if isinstance(leaf, Addend) else f'product {leaf.k}'} is there twice")
                leaves.add(leaf)
                open_sums[-1].append(leaf)
    if root is None:
        raise AccprobeError("a ']' is missing at the end" if open_sums else "expected a sum in brackets")
    products = {leaf.k for leaf in leaves if isinstance(leaf, Product)}
    if missing := set(range(max(products, default=0))) - products:
        raise AccprobeError(f"product {min(missing)} is missing")
    return root


def _leaves(word: str) -> list[Addend] | list[Product]:
    if word == "c":
        return [Addend()]
    found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", word)
    if found is None:
        raise AccprobeError(f"'{_shown(word)}' is not 'c', a product or a range of products")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise AccprobeError(f"the range '{word}' is the wrong way round")
    if last >= MOST_PRODUCTS:
        raise AccprobeError(f"'{word}' is beyond product {MOST_PRODUCTS - 1}")
    return [Product(k) for k in range(first, last + 1)]


def _numbered(mark: str, arithmetics: tuple[Arithmetic, ...]) -> Arithmetic:
    """The arithmetic that "@i" names; the first where there is no mark."""
    if mark and not re.fullmatch("@[0-9]{1,9}", mark):
        raise AccprobeError(f"expected a number after '@' at '{_shown(mark)}'")
    index = int(mark[1:] or 0)
    if index >= len(arithmetics):
        raise AccprobeError(f"there is no arithmetic {index}")
    return arithmetics[index]


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def to_json(model: DotModel) -> dict[str, object]:
    """The model as plain JSON values; `from_json` reads it back."""
    return {
        "order": model.order,
        "arithmetics": [{**a.__dict__, "result": a.result.name} for a in model.arithmetics],
        "subnormal_operands": model.subnormal_operands,
        "subnormal_addend": model.subnormal_addend,
    }


_CHOICES: dict[str, tuple[str, ...]] = {
    "subnormal_operands": get_args(Subnormals),
    "subnormal_addend": get_args(Subnormals),
    "result_rounding": get_args(Rounding),
    "alignment_rounding": get_args(AlignmentRounding),
    "product_exponent": get_args(ProductExponent),
    "zero_terms": get_args(ZeroTerms),
    "zero_sign": get_args(ZeroSign),
    "underflow_sign": get_args(UnderflowSign),
    "nan_payload": get_args(NanPayload),
    "subnormal_results": get_args(Subnormals),
}
_NUMBERS: dict[str, tuple[int, int]] = {
    "result_bits": (0, 52),
    "alignment_bits": (0, SUM_BITS),
    "min_exponent": (-512, 512),
    "nan": (0, (1 << 64) - 1),
}
_MAY_BE_NONE = ("alignment_bits", "min_exponent")


def from_json(data: object) -> DotModel:
    """The model that `to_json` wrote. Raises AccprobeError that names the key and the reason."""
    model = _table(data, "model")
    _check_keys(model, dict.fromkeys(("order", "arithmetics", "subnormal_operands", "subnormal_addend"), True), "model")
    rows, order = model["arithmetics"], model["order"]
    if not isinstance(rows, list):
        raise AccprobeError("arithmetics: expected a list")
    if not isinstance(order, str):
        raise AccprobeError("order: expected a text such as '[c 0-15]'")
    tree = parse_order(order, tuple(_arithmetic(row, f"arithmetics[{i}]") for i, row in enumerate(rows)))
    for key in ("subnormal_operands", "subnormal_addend"):
        _check_value(model[key], key, key)
    return DotModel(tree, model["subnormal_operands"], model["subnormal_addend"])


def json_schema() -> dict[str, object]:
    """What `from_json` takes, as a JSON Schema; that the order is a tree of all products, only `from_json` can tell."""
    subnormals = ("subnormal_operands", "subnormal_addend")
    return _object(
        {
            "order": {"type": "string", "pattern": r"^\[.*\](@[0-9]+)?$"},
            "arithmetics": {
                "type": "array",
                "minItems": 1,
                "items": {"anyOf": [_fields(FloatArithmetic), _fields(IntegerArithmetic)]},
            },
            **{key: {"enum": list(_CHOICES[key])} for key in subnormals},
        },
        required=("order", "arithmetics", *subnormals),
    )


def _fields(kind: type[FloatArithmetic] | type[IntegerArithmetic]) -> dict[str, object]:
    integer = kind is IntegerArithmetic
    choices = {**_CHOICES, "overflow": get_args(IntegerOverflow if integer else Overflow)}
    choices["result"] = tuple(name for name in RESULTS if formats.get(name).is_integer == integer)
    table = {field.name: _field(field.name, choices) for field in fields(kind)}
    return _object(table, required=tuple(field.name for field in fields(kind) if field.default is MISSING))


def _field(key: str, choices: dict[str, tuple[str, ...]]) -> dict[str, object]:
    if key not in _NUMBERS:
        return {"enum": list(choices[key])}
    low, high = _NUMBERS[key]
    number: dict[str, object] = {"type": "integer", "minimum": low, "maximum": high}
    return {"anyOf": [number, {"type": "null"}]} if key in _MAY_BE_NONE else number


def _object(properties: dict[str, Any], required: tuple[str, ...]) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _arithmetic(data: object, place: str) -> Arithmetic:
    row = _table(data, place)
    if not isinstance(row.get("result"), str):
        raise AccprobeError(f"{place}.result: expected the name of a format")
    result = formats.get(row["result"])
    kind = IntegerArithmetic if result.is_integer else FloatArithmetic
    _check_keys(row, {field.name: field.default is MISSING for field in fields(kind)}, place)
    if result.name not in RESULTS:
        raise AccprobeError(f"{place}.result: '{result}' is not one of {', '.join(RESULTS)}")
    for key, value in row.items():
        if key != "result":
            _check_value(value, key, f"{place}.{key}", get_args(IntegerOverflow if result.is_integer else Overflow))
    usual = {} if result.is_integer else {"nan": result.sign_bit - 1}
    arithmetic = kind(**{**usual, **row, "result": result})
    if isinstance(arithmetic, FloatArithmetic) and arithmetic.nan >> result.storage_bits:
        raise AccprobeError(f"{place}.nan: {arithmetic.nan} is not a bit pattern of {result}")
    return arithmetic


def _check_value(value: object, key: str, place: str, choices: tuple[str, ...] = ()) -> None:
    """Raise AccprobeError where the key does not take the value; `choices` are those of a key that is not in the tables."""
    if key not in _NUMBERS:
        known = _CHOICES.get(key, choices)
        if value not in known:
            raise AccprobeError(f"{place}: '{_shown(value)}' is not one of {', '.join(known)}")
        return
    low, high = _NUMBERS[key]
    if not (type(value) is int and low <= value <= high) and not (value is None and key in _MAY_BE_NONE):
        null = ", or null" if key in _MAY_BE_NONE else ""
        raise AccprobeError(f"{place}: '{_shown(value)}' is not a whole number from {low} to {high}{null}")


def _table(data: object, place: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise AccprobeError(f"{place}: expected an object, not '{_shown(data)}'")
    return data


def _check_keys(table: dict[str, Any], required: dict[str, bool], place: str) -> None:
    """Raise AccprobeError where a required key is missing or one is there that is not known."""
    for key, needed in required.items():
        if needed and key not in table:
            raise AccprobeError(f"{place}.{key} is missing")
    if unknown := {str(key) for key in table.keys() - required.keys()}:
        raise AccprobeError(f"{place}: there is no key '{_shown(min(unknown))}'")

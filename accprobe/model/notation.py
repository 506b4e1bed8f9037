"""Models as text: the order of their sums, and the whole model as JSON, with strict reading."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from accprobe.errors import AccprobeError
from accprobe.isa import formats
from accprobe.model.fields import fields_of, written_fields
from accprobe.model.record import Numbers, Patterns, Values, Words
from accprobe.model.tree import (
    Addend,
    Arithmetic,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    Product,
    Term,
)

# Formats of results of fused sums that the reader accepts.
RESULTS = ("f16", "bf16", "f32", "f64", "s32")

# Limits of an order that is read: products, and depth of nested sums.
MOST_PRODUCTS, MOST_NESTED = 1024, 128


def parse_order(text: str, arithmetics: tuple[Arithmetic, ...]) -> FusedSum:
    """Return the tree of an order that `DotModel.order` wrote. Raises AccprobeError with the place of the error."""
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
    """Return the arithmetic that "@i" names; without a mark the first."""
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
    """Return the model as plain JSON values; `from_json` reads it back."""
    return {
        "order": model.order,
        "arithmetics": [
            {"result": a.result.name} | {name: getattr(a, name) for name in written_fields(a)} for a in model.arithmetics
        ],
        **{name: getattr(model, name) for name in written_fields(model)},
    }


def from_json(data: object) -> DotModel:
    """Return the model that `to_json` wrote. Raises AccprobeError with the key and the reason."""
    own = fields_of(DotModel)
    needed = ["order", "arithmetics", *(name for name, field in own.items() if not field.tacit)]
    model = checked_table(data, "model", needed, own)
    rows, order = model["arithmetics"], model["order"]
    if not isinstance(rows, list):
        raise AccprobeError("arithmetics: expected a list")
    if not isinstance(order, str):
        raise AccprobeError("order: expected a text such as '[c 0-15]'")
    tree = parse_order(order, tuple(_arithmetic(row, f"arithmetics[{i}]") for i, row in enumerate(rows)))
    given = {name: model[name] for name in own if name in model}
    for name, value in given.items():
        _check_value(value, own[name].values, name)
    return DotModel(tree, **given)


def json_schema() -> dict[str, object]:
    """Return the JSON Schema of models; only `from_json` checks that the order is a tree of all products."""
    described = fields_of(DotModel)
    own = {name: _schema(field.values) for name, field in described.items()}
    needed = {
        "order": {"type": "string", "pattern": r"^\[.*\](@[0-9]+)?$"},
        "arithmetics": {"type": "array", "minItems": 1, "items": {"anyOf": [_sums(FloatArithmetic), _sums(IntegerArithmetic)]}},
    }
    always = {name: own.pop(name) for name, field in described.items() if not field.tacit}
    return json_object(needed | always, own)


def _sums(kind: type[Arithmetic]) -> dict[str, object]:
    results = [name for name in RESULTS if formats.get(name).is_integer == issubclass(kind, IntegerArithmetic)]
    table = {"result": {"enum": results}, **{name: _schema(field.values) for name, field in fields_of(kind).items()}}
    always = {name: table.pop(name) for name in _required(kind)}
    return json_object(always, table)


def _schema(values: Values) -> dict[str, object]:
    if isinstance(values, Words):
        return {"enum": list(values.words)}
    low, high, none = _range(values)
    number: dict[str, object] = {"type": "integer", "minimum": low, "maximum": high}
    return {"anyOf": [number, {"type": "null"}]} if none else number


def _range(values: Numbers | Patterns) -> tuple[int, int, bool]:
    """Return the smallest and the largest value, and whether None is allowed."""
    if isinstance(values, Patterns):
        return 0, (1 << values.bits) - 1, False
    return values.low, values.high, values.none is not None


def _required(kind: type[Arithmetic]) -> list[str]:
    """Return the keys that every arithmetic has."""
    return [field.name for field in fields(kind) if field.default is MISSING]


def _arithmetic(data: object, place: str) -> Arithmetic:
    name = checked_object(data, place).get("result")
    if not isinstance(name, str):
        raise AccprobeError(f"{place}.result: expected the name of a format")
    result = formats.get(name)
    kind = IntegerArithmetic if result.is_integer else FloatArithmetic
    row = checked_table(data, place, _required(kind), fields_of(kind))
    if result.name not in RESULTS:
        raise AccprobeError(f"{place}.result: '{result}' is not one of {', '.join(RESULTS)}")
    for name, field in fields_of(kind).items():
        if name in row:
            _check_value(row[name], field.values, f"{place}.{name}")
    usual = {} if result.is_integer else {"nan": result.sign_bit - 1}
    arithmetic = kind(**{**usual, **row, "result": result})
    if isinstance(arithmetic, FloatArithmetic) and arithmetic.nan >> result.storage_bits:
        raise AccprobeError(f"{place}.nan: {arithmetic.nan} is not a bit pattern of {result}")
    return arithmetic


def _check_value(value: object, values: Values, place: str) -> None:
    """Raise AccprobeError if the value is not allowed."""
    if isinstance(values, Words):
        checked_word(value, values.words, place)
    else:
        low, high, none = _range(values)
        if value is not None or not none:
            checked_number(value, place, low, high, ", or null" * none)


def checked_table(data: object, place: str, needed: Collection[str], optional: Collection[str] = ()) -> dict[str, Any]:
    """Return a JSON object with these keys. Raises AccprobeError with the place."""
    table = checked_object(data, place)
    for key in needed:
        if key not in table:
            raise AccprobeError(f"{place}.{key} is missing")
    if unknown := {str(key) for key in table.keys() - {*needed, *optional}}:
        raise AccprobeError(f"{place}: there is no key '{_shown(min(unknown))}'")
    return table


def checked_object(data: object, place: str) -> dict[str, Any]:
    """Return a JSON object. Raises AccprobeError with the place."""
    if not isinstance(data, dict):
        raise AccprobeError(f"{place}: expected an object, not '{_shown(data)}'")
    return data


def checked_number(value: object, place: str, low: int, high: int, otherwise: str = "") -> int:
    """Return a whole number in this range. Raises AccprobeError with the place."""
    if type(value) is not int or not low <= value <= high:
        raise AccprobeError(f"{place}: '{_shown(value)}' is not a whole number from {low} to {high}{otherwise}")
    return value


def checked_word(value: object, words: Sequence[Any], place: str) -> Any:
    """Return one of the words. Raises AccprobeError with the place."""
    if value not in words:
        raise AccprobeError(f"{place}: '{_shown(value)}' is not one of {', '.join(words)}")
    return value


def json_object(needed: Mapping[str, object], optional: Mapping[str, object] = {}) -> dict[str, object]:
    """Return the JSON Schema of an object with these keys."""
    properties = {**needed, **optional}
    return {"type": "object", "properties": properties, "required": list(needed), "additionalProperties": False}

"""Models are read as they were written, invalid ones are refused with the place; the records of their fields."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from fakes import with_value
from hypothesis import given, settings
from inferred import FP8 as FP8_OF_H100
from inferred import KNOWN
from jsonschema import Draft202012Validator
from planted_models import model_of
from planted_plans import NAMED, drawn
from plants import Plant, float_models, integer_models
from product_rows import product_model, step
from pydantic import TypeAdapter, ValidationError

from accprobe.errors import AccprobeError
from accprobe.evaluate.cuda import source
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.fields import FEATURES, fields_of
from accprobe.model.notation import (
    MOST_PARTS,
    DotModelField,
    ProductModelField,
    dot_json,
    parse_order,
    product_json,
)
from accprobe.model.product import Chain, Merged, Node, ProductModel, Scales, addition, multiply_add
from accprobe.model.record import Field, Numbers, Words
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, Product, chain

F32, S32 = FORMATS["f32"], FORMATS["s32"]
FP8 = FloatArithmetic(F32, 13, "RZ", 13)
ADD = FloatArithmetic(F32, 23, "RNE", None)
DOTS: TypeAdapter[DotModel] = TypeAdapter(DotModelField)
PRODUCTS: TypeAdapter[ProductModel] = TypeAdapter(ProductModelField)


@settings(deadline=None)
@given(float_models() | integer_models())
def test_models_of_instructions_are_read_back(planted: Plant) -> None:
    assert DOTS.validate_json(json.dumps(dot_json(planted.model))) == planted.model


@pytest.mark.parametrize(
    ("model", "order"),
    [
        (chain([range(16)], FP8), "[c 0-15]"),
        (chain([range(4)], FP8, "separate add"), "[[0-3] c]"),
        (chain([range(4)], FP8, "separate add", ADD), "[[0-3]@0 c]@1"),
        (chain([[0, 1, 4, 5], [2, 3, 6, 7]], FP8), "[[c 0-1 4-5] 2-3 6-7]"),
        (chain([[0, 1], [2, 3]], FP8, "last"), "[[0-1] c 2-3]"),
        (FusedSum((FusedSum((Product(0),), FP8), FusedSum((Product(1),), FP8), Addend()), ADD), "[[0]@0 [1]@0 c]@1"),
    ],
)
def test_orders(model: FusedSum, order: str) -> None:
    assert DotModel(model).order == order
    assert parse_order(order.replace("[", " [\n"), DotModel(model).arithmetics) == model


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected one sum in brackets"),
        ("[c 0-3]]", "']' cannot stand there"),
        ("[c 0-٣]", "'0-٣' cannot stand there"),
        ("[c 3-0]", "'3-0' is no range of the products 0 to 1023"),
        ("[[c 0-3] 3-5]", "product 3 is there twice"),
        ("[c 0-3 6]", "product 4 is missing"),
        ("[c 0]@1", "there is no arithmetic '1'"),
        ("[" * 129, "'[' cannot stand there"),
    ],
)
def test_invalid_orders_are_refused(text: str, reason: str) -> None:
    with pytest.raises(AccprobeError) as error:
        parse_order(text, (FP8,))
    assert str(error.value).startswith("order '")
    assert reason in str(error.value)


def test_the_longest_order_is_read() -> None:
    model = DotModel(chain([[k] for k in range(128)], FP8))
    assert DOTS.validate_python(dot_json(model)) == model


PLAIN = tuple(range(32))


def of_tree(tree: Node, k: int = 512) -> ProductModel:
    return replace(product_model(k), tree=tree)


def slices(count: int, size: int = 64) -> tuple[Chain, ...]:
    return tuple(Chain(size * i, size * (i + 1), PLAIN) for i in range(count))


TREES: dict[str, Node] = {
    "dropped products at both ends": Chain(8, 500, PLAIN),
    "interleaved": Chain(0, 512, (0, 1, 8, 9, *range(16, 44)), period=64),
    "shifted": Chain(0, 512, PLAIN, shift=-24),
    "as a tree, partials bf16": Merged(slices(8), "tree", addition(), FORMATS["bf16"]),
    "unordered, toward zero": Merged(slices(8), "unordered", addition(rounding="RZ")),
    "an order without a name": Merged(slices(4, 128), ((0, 2), (3, 1)), addition()),
    "promoted once": Merged((Chain(0, 512, PLAIN),), "forward", addition()),
    "slices of chunks": Merged(
        tuple(Merged(slices(8)[i : i + 4], "forward", addition()) for i in (0, 4)), "forward", addition(FORMATS["f16"])
    ),
    "repeats backward along K": Merged(slices(8)[::-1], "forward", addition()),
}
MODELS = {
    **{name: of_tree(tree) for name, tree in TREES.items()},
    "scales": replace(product_model(promote=128), scales=Scales("128x128", "b then a", fused=True)),
    "multiply-adds": product_model(256, "f32", of=multiply_add(fused=False)),
    "results toward zero": replace(product_model(256, "bf16", "bf16", of=step(16, 23, 25)), result_rounding="RZ"),
    **{f"planted: {name}": model_of(plan) for name, plan in NAMED.items()},
    **{f"drawn: {seed}": model_of(drawn(seed)) for seed in range(20)},
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_products_are_read_back(name: str) -> None:
    text = json.dumps(product_json(MODELS[name]))
    Draft202012Validator(PRODUCTS.json_schema()).validate(json.loads(text))
    assert PRODUCTS.validate_json(text) == MODELS[name]


def test_parts_that_repeat_are_written_once() -> None:
    short, long = (product_json(product_model(k, promote=128)) for k in (1024, 128 * 4096))
    assert len(json.dumps(long)) < len(json.dumps(short)) + 16
    assert product_json(of_tree(TREES["repeats backward along K"]))["tree"]["reduction"] == [
        {"repeat": 8, "distance": -64, "part": {"chain": [448, 512]}}
    ]


DOT = dot_json(DotModel(chain([range(4)], FP8, "separate add", ADD)))
INTEGERS = dot_json(DotModel(chain([range(4)], IntegerArithmetic(S32, "wrap"))))
MATRIX = product_json(product_model(512, promote=128))


@pytest.mark.parametrize(
    ("good", "path", "value", "reason"),
    [
        (DOT, "extra", 1, "extra: Extra inputs"),
        (DOT, "order", "[[0-3]@0 c]@2", "there is no arithmetic '2'"),
        (DOT, "subnormal_operands", "lost", "subnormal_operands: Input should be 'kept' or 'flushed'"),
        (DOT, "arithmetics.1.result", "e4m3", "arithmetics.1.floats.result: Input should be 'f16', 'bf16', 'f32' or 'f64'"),
        (DOT, "arithmetics.1.result_bits", True, "result_bits: Input should be a valid integer"),
        (DOT, "arithmetics.1.alignment_bits", 53, "alignment_bits is 53; a fused sum of 2 terms takes 0 to 49"),
        (DOT, "arithmetics.1.min_exponent", 10**9, "min_exponent: Input should be less than or equal to 512"),
        (DOT, "arithmetics.1.nan", 1 << 32, "nan: 4294967296 is not a bit pattern of f32"),
        (INTEGERS, "arithmetics.0.overflow", "infinity", "overflow: Input should be 'wrap' or 'saturate'"),
        (MATRIX, "k", 256, "tree: a chain of the products 256 to 384, of 256"),
        (MATRIX, "tree.order", [0, 1, 2], "order: expected each of the 4 parts once"),
        (MATRIX, "tree.order", [0, 1, 2, []], "order: [] is not the number of a part"),
        (MATRIX, "tree.reduction.0.repeat", 5, "tree: a chain of the products 512 to 640, of 512"),
        (MATRIX, "tree.reduction.0.part.pattern", [0, 1], "a pattern of 2 products does not fill sums of 32"),
        (MATRIX, "scales", {"of": "tensor", "how": "product of scales"}, "scales.fused: Field required"),
    ],
)
def test_invalid_models_are_refused(good: dict[str, Any], path: str, value: object, reason: str) -> None:
    with pytest.raises(ValidationError) as refused:
        (PRODUCTS if good is MATRIX else DOTS).validate_json(json.dumps(with_value(good, path, value)))
    assert reason in "\n".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in refused.value.errors())


def test_repeats_of_repeats_have_an_end() -> None:
    """Short text must not expand without limit."""
    part: dict[str, Any] = {"chain": [0, 32]}
    for _ in range(3):
        repeated = {"repeat": 100, "distance": 0, "part": part}
        part = {"reduction": [repeated], "order": "forward", "format": "f32", "rounding": "RNE"}
    with pytest.raises(ValidationError, match=f"more than {MOST_PARTS} parts"):
        PRODUCTS.validate_python(MATRIX | {"tree": part})


KINDS = (FloatArithmetic, IntegerArithmetic, DotModel)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_record_with_the_values_of_its_type(kind: type[Any]) -> None:
    hints = get_type_hints(kind)
    described = fields_of(kind)
    assert [f.name for f in fields(kind) if hints[f.name] not in (Format, FusedSum)] == list(described)
    for name, field in described.items():
        if get_origin(hints[name]) is Literal:
            assert field.words == get_args(hints[name])
        else:
            allows_none = isinstance(field.values, Numbers) and field.values.none is not None
            assert hints[name] == (int | None if allows_none else int)
            assert isinstance(hints[name], UnionType) == allows_none


def test_every_field_record_belongs_to_a_field() -> None:
    of_kinds = {name for kind in KINDS for name in fields_of(kind)}
    assert {name for name, record in FEATURES.items() if isinstance(record, Field)} == of_kinds


def test_the_default_word_is_first_and_has_code_zero() -> None:
    """Compiled code and the alternatives to exact sums rely on it."""
    usual = replace(KNOWN[FP8_OF_H100].root.arithmetic, result_rounding="RZ")
    defaults = FloatArithmetic(usual.result, 13, "RZ", 13)
    for name, field in fields_of(FloatArithmetic).items():
        if isinstance(field.values, Words):
            assert getattr(defaults, name) == field.words[0]
            assert field.values.code(field.words[0]) == 0


def test_tacit_fields_are_written_only_at_unusual_values() -> None:
    usual = KNOWN[FP8_OF_H100]
    assert "tininess_detected" not in str(dot_json(usual))
    other = usual.with_arithmetic(lambda has: replace(has, tininess_detected="before rounding"))
    assert "'tininess_detected': 'before rounding'" in str(dot_json(other))
    assert TypeAdapter(DotModelField).validate_python(dot_json(other)) == other
    assert source.not_compiled(usual) == ""
    assert source.not_compiled(other) == "tininess_detected before rounding"

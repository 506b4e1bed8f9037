"""Orders and models are read as written; invalid ones are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from plants import Plant, float_models, integer_models

from accprobe.errors import AccprobeError
from accprobe.isa.formats import FORMATS
from accprobe.model.notation import from_json, parse_order, to_json
from accprobe.model.tree import (
    SUM_BITS,
    Addend,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    Product,
    chain,
)

F32, F16, S32 = FORMATS["f32"], FORMATS["f16"], FORMATS["s32"]
FP8 = FloatArithmetic(F32, 13, "RZ", 13)
ADD = FloatArithmetic(F32, 23, "RNE", None)
WRAP = IntegerArithmetic(S32, "wrap")


@settings(deadline=None)
@given(float_models() | integer_models())
def test_model_is_read_as_it_was_written(planted: Plant) -> None:
    assert from_json(json.loads(json.dumps(to_json(planted.model)))) == planted.model


@pytest.mark.parametrize(
    ("model", "order"),
    [
        (chain([range(16)], FP8), "[c 0-15]"),
        (chain([range(4)], FP8, "separate add"), "[[0-3] c]"),
        (chain([range(4)], FP8, "separate add", ADD), "[[0-3]@0 c]@1"),
        (chain([[0, 1, 4, 5], [2, 3, 6, 7]], FP8), "[[c 0-1 4-5] 2-3 6-7]"),
        (chain([[0], [1]], FP8), "[[c 0] 1]"),
        (FusedSum((FusedSum((Product(0),), FP8), FusedSum((Product(1),), FP8), Addend()), ADD), "[[0]@0 [1]@0 c]@1"),
    ],
)
def test_notation(model: FusedSum, order: str) -> None:
    assert DotModel(model).order == order
    assert parse_order(order, DotModel(model).arithmetics) == model


def test_spaces_do_not_matter() -> None:
    assert parse_order(" [ [c  0-3 ]@0\n4 5-7]@1 ", (FP8, ADD)) == parse_order("[[c 0-3]@0 4-7]@1", (FP8, ADD))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected a sum in brackets"),
        ("c 0-3", "'c' stands outside of the brackets"),
        ("]", "']' stands outside of the brackets"),
        ("[c 0-3", "a ']' is missing at the end"),
        ("[[c 0-3] 4", "a ']' is missing at the end"),
        ("[c 0-3]]", "']' stands outside of the brackets"),
        ("[c 0-3] 4", "'4' stands outside of the brackets"),
        ("[c 0-3][4]", "'[' stands outside of the brackets"),
        ("[]", "a sum has no terms"),
        ("[c [] 0]", "a sum has no terms"),
        ("[c x]", "'x' is not 'c', a product or a range of products"),
        ("[c 0-]", "'0-' is not 'c', a product or a range of products"),
        ("[c -1]", "'-1' is not 'c', a product or a range of products"),
        ("[c 0-1-2]", "'0-1-2' is not 'c', a product or a range of products"),
        ("[c 0,1]", "'0,1' is not 'c', a product or a range of products"),
        ("[c ²]", "'²' is not 'c', a product or a range of products"),
        ("[c 0-٣]", "'0-٣' is not 'c', a product or a range of products"),
        ("[c 3-0]", "the range '3-0' is the wrong way round"),
        ("[c 0-3 2]", "product 2 is there twice"),
        ("[[c 0-3] 3-5]", "product 3 is there twice"),
        ("[[c 0] c 1]", "c is there twice"),
        ("[c 1-3]", "product 0 is missing"),
        ("[c 0-3 6]", "product 4 is missing"),
        ("[c 0-1024]", "'0-1024' is beyond product 1023"),
        ("[c 0-999999999]", "'0-999999999' is beyond product 1023"),
        ("[c 0-1000000000000]", "'0-1000000000000' is not"),
        ("[c 0]@", "expected a number after '@' at '@'"),
        ("[c 0]@x", "expected a number after '@' at '@x'"),
        ("[c 0]@-1", "expected a number after '@' at '@-1'"),
        ("[c 0]@1", "there is no arithmetic 1"),
        ("[" * 129, "more than 128 sums within sums"),
    ],
)
def test_invalid_orders_are_refused(text: str, reason: str) -> None:
    with pytest.raises(AccprobeError) as error:
        parse_order(text, (FP8,))
    assert str(error.value).startswith("order '")
    assert reason in str(error.value)


def test_longest_order_is_read() -> None:
    model = DotModel(chain([[k] for k in range(128)], FP8))
    assert from_json(to_json(model)) == model


def good() -> dict[str, Any]:
    return json.loads(json.dumps(to_json(DotModel(chain([range(4)], FP8, "separate add", ADD)))))


def with_arithmetic(**changes: object) -> dict[str, Any]:
    data = good()
    data["arithmetics"][1] |= changes
    return data


def integer(**changes: object) -> dict[str, Any]:
    data = to_json(DotModel(chain([range(4)], WRAP)))
    data["arithmetics"][0] |= changes  # type: ignore[index]
    return data


def without(key: str) -> dict[str, Any]:
    data = good()
    data["arithmetics"][1].pop(key)
    return data


@pytest.mark.parametrize("key", ["order", "arithmetics", "subnormal_operands", "subnormal_addend"])
def test_missing_key(key: str) -> None:
    data = good()
    del data[key]
    with pytest.raises(AccprobeError, match=rf"^model\.{key} is missing$"):
        from_json(data)
    for key in ("result_bits", "result_rounding", "alignment_bits"):
        with pytest.raises(AccprobeError, match=rf"^arithmetics\[1\]\.{key} is missing$"):
            from_json(without(key))


def test_key_with_a_usual_value_may_be_left_out() -> None:
    assert from_json(without("underflow_sign")) == from_json(good())
    assert from_json(without("nan")) == from_json(good())


def test_usual_nan_has_the_width_of_the_result() -> None:
    data = to_json(DotModel(chain([range(4)], FloatArithmetic(F16, 10, "RNE", 20, nan=0x7FFF))))
    del data["arithmetics"][0]["nan"]  # type: ignore[index]
    assert from_json(data).root.arithmetic.nan == 0x7FFF


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({**good(), "extra": 1}, "model: there is no key 'extra'"),
        ({**good(), 3: 1}, "model: there is no key '3'"),
        ({**good(), "order": None}, "order: expected a text"),
        ({**good(), "order": 7}, "order: expected a text"),
        ({**good(), "order": "[[0-3]@0 c]@2"}, "there is no arithmetic 2"),
        ({**good(), "arithmetics": None}, "arithmetics: expected a list"),
        ({**good(), "arithmetics": {}}, "arithmetics: expected a list"),
        ({**good(), "arithmetics": []}, "there is no arithmetic 0"),
        ({**good(), "arithmetics": [3]}, "arithmetics[0]: expected an object, not '3'"),
        ({**good(), "arithmetics": [good()["arithmetics"][0], None]}, "arithmetics[1]: expected an object, not 'None'"),
        ({**good(), "subnormal_operands": "lost"}, "subnormal_operands: 'lost' is not one of kept, flushed"),
        ({**good(), "subnormal_addend": None}, "subnormal_addend: 'None' is not one of kept, flushed"),
        ({**good(), "subnormal_addend": ["kept"]}, "subnormal_addend: '['kept']' is not one of kept, flushed"),
        (with_arithmetic(extra=1), "arithmetics[1]: there is no key 'extra'"),
        (with_arithmetic(result=32), "arithmetics[1].result: expected the name of a format"),
        (with_arithmetic(result="f33"), "unknown format 'f33'"),
        (with_arithmetic(result="e4m3"), "arithmetics[1].result: 'e4m3' is not one of f16, bf16, f32, f64, s32"),
        (with_arithmetic(result="tf32"), "arithmetics[1].result: 'tf32' is not one of"),
        (with_arithmetic(result="s32"), "arithmetics[1]: there is no key 'alignment_bits'"),
        (with_arithmetic(result_bits="13"), "arithmetics[1].result_bits: '13' is not a whole number"),
        (with_arithmetic(result_bits=13.0), "arithmetics[1].result_bits: '13.0' is not a whole number"),
        (with_arithmetic(result_bits=True), "arithmetics[1].result_bits: 'True' is not a whole number"),
        (with_arithmetic(result_bits=None), "arithmetics[1].result_bits: 'None' is not a whole number from 0 to 52"),
        (with_arithmetic(result_bits=24), "result_bits is 24; f32 holds 0 to 23"),
        (with_arithmetic(alignment_bits=[1]), "arithmetics[1].alignment_bits: '[1]' is not a whole number"),
        (with_arithmetic(alignment_bits=-1), "arithmetics[1].alignment_bits: '-1' is not a whole number from 0 to 53, or null"),
        (with_arithmetic(alignment_bits=53), "alignment_bits is 53; a fused sum of 2 terms takes 0 to 49"),
        (with_arithmetic(min_exponent=10**9), "arithmetics[1].min_exponent: '1000000000' is not a whole number"),
        (with_arithmetic(nan="0x7FFF"), "arithmetics[1].nan: '0x7FFF' is not a whole number"),
        (with_arithmetic(nan=1 << 32), "arithmetics[1].nan: 4294967296 is not a bit pattern of f32"),
        (with_arithmetic(nan=-1), "arithmetics[1].nan: '-1' is not a whole number"),
        (with_arithmetic(overflow="wrap"), "arithmetics[1].overflow: 'wrap' is not one of infinity, largest"),
        (integer(overflow="infinity"), "arithmetics[0].overflow: 'infinity' is not one of wrap, saturate"),
        (integer(result="u8"), "arithmetics[0].result: 'u8' is not one of"),
        (integer(nan=1), "arithmetics[0]: there is no key 'nan'"),
    ],
)
def test_invalid_models_are_refused(data: dict[str, Any], reason: str) -> None:
    with pytest.raises(AccprobeError) as error:
        from_json(data)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [None, 1, 1.5, "x", [], {}, True, [[]], {"a": 1}, -(10**400)])
@pytest.mark.parametrize("key", [*good(), *(("arithmetics", key) for key in good()["arithmetics"][0])])
def test_a_wrong_type_anywhere_is_one_sentence(key: str | tuple[str, str], value: object) -> None:
    data = good()
    if isinstance(key, str):
        data[key] = value
    else:
        data[key[0]][0][key[1]] = value
    message = refusal(data)
    if message is None:
        assert isinstance(key, tuple)
        assert value is None or isinstance(value, int)
    else:
        assert 10 < len(message) < 200


def refusal(data: dict[str, Any]) -> str | None:
    try:
        from_json(data)
    except AccprobeError as error:
        return str(error)
    return None


def test_chain_places_c() -> None:
    first, last, own = (chain([[0, 1], [2, 3]], FP8, place, ADD) for place in ("first", "last", "separate add"))
    assert DotModel(first).order == "[[c 0-1] 2-3]"
    assert DotModel(last).order == "[[0-1] c 2-3]"
    assert DotModel(own).order == "[[[0-1]@0 2-3]@0 c]@1"
    assert own.arithmetic == ADD
    assert all(node.arithmetic == FP8 for node in own.children[0].nodes())


@pytest.mark.parametrize("terms", [1, 3, 4, 16, 33, 65])
def test_most_alignment_bits(terms: int) -> None:
    """The largest sum stays an exact float64: terms below 2^(bits + 2), as many as there are."""
    most = SUM_BITS - 2 - terms.bit_length()
    products = [range(terms - 1)] if terms > 1 else [range(0)]
    DotModel(chain(products, FloatArithmetic(F32, 23, "RZ", most)))
    DotModel(chain(products, FloatArithmetic(F32, 23, "RZ", 0)))
    assert terms * 2 ** (most + 2) <= 2**SUM_BITS
    for bits in (most + 1, -1):
        with pytest.raises(AccprobeError, match=f"alignment_bits is {bits}; a fused sum of {terms} terms takes 0 to {most}"):
            DotModel(chain(products, FloatArithmetic(F32, 23, "RZ", bits)))


@pytest.mark.parametrize(("result", "bits"), [("f32", 24), ("f32", -1), ("f16", 11), ("f64", 53), ("bf16", 8)])
def test_result_bits_beyond_the_result(result: str, bits: int) -> None:
    fmt = FORMATS[result]
    with pytest.raises(AccprobeError, match=f"result_bits is {bits}; {result} holds 0 to {fmt.mantissa_bits}"):
        DotModel(chain([range(4)], FloatArithmetic(fmt, bits, "RZ", None)))
    DotModel(chain([range(4)], FloatArithmetic(fmt, fmt.mantissa_bits, "RZ", None)))


def test_checks_reach_inner_sums() -> None:
    inner = FusedSum((Product(0),), FloatArithmetic(F32, 24, "RZ", 13))
    with pytest.raises(AccprobeError, match="result_bits is 24"):
        DotModel(FusedSum((inner, Addend()), ADD))

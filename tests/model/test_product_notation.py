"""Models of whole products as JSON: written compactly, read strictly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from planted_models import model_of
from planted_plans import NAMED, drawn
from product_rows import product_model, step

from accprobe.errors import AccprobeError
from accprobe.isa.formats import FORMATS
from accprobe.model.product import Chain, Merged, Node, ProductModel, Scales, addition, multiply_add
from accprobe.model.product_notation import MOST_PARTS, from_json, json_schema, to_json

PLAIN = tuple(range(32))


def of_tree(tree: Node, k: int = 512) -> ProductModel:
    return replace(product_model(k), tree=tree)


def slices(count: int, size: int = 64) -> tuple[Chain, ...]:
    return tuple(Chain(size * i, size * (i + 1), PLAIN) for i in range(count))


TREES: dict[str, Node] = {
    "one chain": Chain(0, 512, PLAIN),
    "K is no multiple of a sum": Chain(0, 509, PLAIN),
    "dropped products at both ends": Chain(8, 500, PLAIN),
    "interleaved": Chain(0, 512, (0, 1, 8, 9, *range(16, 44)), period=64),
    "shifted": Chain(0, 512, PLAIN, shift=-24),
    "backward": Merged(slices(8), "backward", addition()),
    "unordered": Merged(slices(8), "unordered", addition()),
    "as a tree, partials bf16": Merged(slices(8), "tree", addition(), FORMATS["bf16"]),
    "serial in f16": Merged(slices(8), "forward", addition(FORMATS["f16"]), FORMATS["f16"]),
    "added toward zero": Merged(slices(8), "forward", addition(rounding="RZ")),
    "an order without a name": Merged(slices(4, 128), ((0, 2), (3, 1)), addition()),
    "promoted once": Merged((Chain(0, 512, PLAIN),), "forward", addition()),
    "uneven": Merged((Chain(0, 320, PLAIN), Chain(320, 512, PLAIN)), "forward", addition()),
    "slices of chunks": Merged(
        tuple(
            Merged(tuple(Chain(i, i + 64, PLAIN) for i in range(low, low + 256, 64)), "forward", addition()) for low in (0, 256)
        ),
        "forward",
        addition(),
        FORMATS["bf16"],
    ),
    "repeats backward along K": Merged(slices(8)[::-1], "forward", addition()),
}
MODELS = {
    **{name: of_tree(tree) for name, tree in TREES.items()},
    "scales": replace(product_model(promote=128), scales=Scales("128x128", "b then a", fused=True)),
    "multiply-adds": product_model(256, "f32", of=multiply_add(product_bits=23)),
    "results toward zero": replace(product_model(256, "bf16", "bf16", of=step(16, 23, 25)), result_rounding="RZ"),
    **{f"planted: {name}": model_of(plan) for name, plan in NAMED.items()},
    **{f"drawn: {seed}": model_of(drawn(seed)) for seed in range(20)},
}


@pytest.mark.parametrize("name", MODELS)
def test_written_models_are_read_back(name: str) -> None:
    data = json.loads(json.dumps(to_json(MODELS[name])))
    Draft202012Validator(json_schema()).validate(data)
    assert from_json(data) == MODELS[name]


def test_parts_that_repeat_are_written_once() -> None:
    short, long = (to_json(product_model(k, promote=128)) for k in (1024, 128 * 4096))
    assert len(json.dumps(long)) < len(json.dumps(short)) + 16
    assert to_json(of_tree(TREES["repeats backward along K"]))["tree"]["reduction"] == [  # type: ignore[index]
        {"repeat": 8, "distance": -64, "part": {"chain": [448, 512]}}
    ]


def setting(path: str, value: object) -> Callable[[dict[str, Any]], object]:
    """A change of the value at that place; None takes the key away."""

    def change(data: dict[str, Any]) -> None:
        place: Any = data
        *keys, last = (int(key) if key.isdigit() else key for key in path.split("."))
        for key in keys:
            place = place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value

    return change


REFUSED: list[tuple[str, object, str]] = [
    ("k", 0, "k: '0' is not a whole number from 1 to 1048576"),
    ("k", True, "k: 'True' is not a whole number"),
    ("k", 256, "tree: a chain of the products 256 to 384, of 256"),
    ("a", None, "model.a is missing"),
    ("a", 8, "a: expected a name"),
    ("a", "f33", "f33"),
    ("more", 1, "model: there is no key 'more'"),
    ("result_rounding", "up", "result_rounding: 'up' is not one of"),
    ("operand_rounding", "RU", "operand_rounding: 'RU' is not one of RZ, RNE, RNA"),
    ("tree", "chain", "tree: expected an object"),
    ("tree.order", "sideways", "tree.order: 'sideways' is not one of forward, backward, tree, unordered"),
    ("tree.order", [0, 1, 2], "tree.order: expected each of the 4 parts once"),
    ("tree.order", [0, [1, 1], 2], "tree.order: expected each of the 4 parts once"),
    ("tree.order", [0, 1, 2, []], "tree.order"),
    ("tree.format", "f33", "f33"),
    ("tree.rounding", None, "tree.rounding is missing"),
    ("tree.partial_format", 1, "tree.partial_format: expected a name"),
    ("tree.reduction", {}, "tree.reduction: expected a list of parts"),
    ("tree.reduction", [], "tree.reduction: expected a list of parts"),
    ("tree.reduction.0.repeat", 0, "tree.reduction[0].repeat: '0' is not a whole number"),
    ("tree.reduction.0.repeat", MOST_PARTS + 1, "tree.reduction[0].repeat"),
    ("tree.reduction.0.repeat", 5, "tree: a chain of the products 512 to 640, of 512"),
    ("tree.reduction.0.distance", 0.5, "tree.reduction[0].distance"),
    ("tree.reduction.0.distance", -128, "tree: a chain of the products -128 to 0, of 512"),
    ("tree.reduction.0.part.chain", [0], "tree.reduction[0].part.chain: expected [start, stop]"),
    ("tree.reduction.0.part.chain", [64, 64], "tree.reduction[0].part.chain: 64 does not lie after 64"),
    ("tree.reduction.0.part.pattern", [], "tree.reduction[0].part.pattern: expected a list of places"),
    ("tree.reduction.0.part.pattern", [0, 1], "a pattern of 2 products does not fill sums of 32"),
    ("tree.reduction.0.part.period", -1, "tree.reduction[0].part.period"),
    ("scales", {"of": "tensor", "how": "product of scales"}, "scales.fused is missing"),
    ("scales", {"of": "tensor", "how": "product of scales", "fused": 1}, "scales.fused: expected true or false"),
    ("scales", {"of": "column", "how": "product of scales", "fused": True}, "scales.of: 'column' is not one of"),
]


@pytest.mark.parametrize(("path", "value", "reason"), REFUSED)
def test_refused(path: str, value: object, reason: str) -> None:
    data = json.loads(json.dumps(to_json(product_model(512, promote=128))))
    setting(path, value)(data)
    with pytest.raises(AccprobeError) as refused:
        from_json(data)
    assert reason in str(refused.value)


def test_repeats_of_repeats_have_an_end() -> None:
    """Short text must not expand without limit."""
    part: dict[str, Any] = {"chain": [0, 32]}
    for _ in range(3):
        part = {
            "reduction": [{"repeat": 100, "distance": 0, "part": part}],
            "order": "forward",
            "format": "f32",
            "rounding": "RNE",
        }
    with pytest.raises(AccprobeError, match=f"more than {MOST_PARTS} parts"):
        from_json({**to_json(product_model(512)), "tree": part})

"""Models of whole products as JSON, with strict reading; repeated parts of a tree are written once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args

from accprobe.errors import AccprobeError
from accprobe.isa import formats
from accprobe.model import notation
from accprobe.model.notation import checked_number, checked_table, checked_word, json_object
from accprobe.model.product import (
    OPERAND_ROUNDINGS,
    Chain,
    Merged,
    Nested,
    Node,
    Order,
    ProductModel,
    ScaleOf,
    Scales,
    Scaling,
    addition,
    chains_of,
)
from accprobe.model.tree import Rounding, Subnormals

# Limits of a tree that is read.
MOST_PARTS, MOST_K = 1 << 14, 1 << 20

_ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)


def to_json(model: ProductModel) -> dict[str, object]:
    """Return the model as plain JSON values; `from_json` reads it back."""
    written: dict[str, object] = {
        "a": model.a.name,
        "b": model.b.name,
        "k": model.k,
        "step": notation.to_json(model.step),
        "tree": _tree(model.tree, model.step.products),
        "result": model.result.name,
        "result_rounding": model.result_rounding,
    }
    if model.operand_rounding != "RZ":
        written["operand_rounding"] = model.operand_rounding
    if model.scales is not None:
        written["scales"] = {"of": model.scales.of, "how": model.scales.how, "fused": model.scales.fused}
    return written


def _tree(node: Node, products: int) -> dict[str, object]:
    if isinstance(node, Chain):
        usual = Chain(node.start, node.stop, tuple(range(products)))
        written: dict[str, object] = {"chain": [node.start, node.stop]}
        if node != usual:
            written |= {"pattern": list(node.pattern), "period": node.period, "shift": node.shift}
        return written
    written = {"reduction": list(_parts(node.parts, products)), "order": node.order}
    written |= {"format": node.arithmetic.result.name, "rounding": getattr(node.arithmetic, "result_rounding", "RNE")}
    if getattr(node.arithmetic, "subnormal_results", "kept") == "flushed":
        written["subnormals"] = "flushed"
    return written | ({"partial_format": node.kept.name} if node.kept is not None else {})


def _parts(parts: Sequence[Node], products: int) -> Iterator[dict[str, object]]:
    """Return the parts; a run of parts that repeats along K becomes one, with its count and distance."""
    first = 0
    while first < len(parts):
        by = _start(parts[first + 1]) - _start(parts[first]) if first + 1 < len(parts) else 0
        count = 1
        while first + count < len(parts) and parts[first + count] == moved(parts[first], count * by):
            count += 1
        part = _tree(parts[first], products)
        yield part if count == 1 else {"repeat": count, "distance": by, "part": part}
        first += count


def _start(node: Node) -> int:
    return node.start if isinstance(node, Chain) else _start(node.parts[0])


def moved(node: Node, by: int) -> Node:
    """Return the same part shifted along K."""
    if isinstance(node, Chain):
        return replace(node, start=node.start + by, stop=node.stop + by)
    return replace(node, parts=tuple(moved(part, by) for part in node.parts))


def from_json(data: object) -> ProductModel:
    """Return the model that `to_json` wrote. Raises AccprobeError with the key and the reason."""
    needed, others = ("a", "b", "k", "step", "tree", "result", "result_rounding"), ("scales", "operand_rounding")
    model = checked_table(data, "model", needed, others)
    k = checked_number(model["k"], "k", 1, MOST_K)
    step = notation.from_json(model["step"])
    tree = _read_tree(model["tree"], step.products, k, "tree")
    if beyond := next((chain for chain in chains_of(tree) if chain.start < 0 or chain.stop > k), None):
        raise AccprobeError(f"tree: a chain of the products {beyond.start} to {beyond.stop}, of {k}")
    a, b, result = (formats.get(_name(model[name], name)) for name in ("a", "b", "result"))
    scales = _read_scales(model["scales"]) if "scales" in model else None
    rounding = checked_word(model["result_rounding"], _ROUNDINGS, "result_rounding")
    of_operands = checked_word(model.get("operand_rounding", "RZ"), OPERAND_ROUNDINGS, "operand_rounding")
    return ProductModel(a, b, k, step, tree, result, rounding, scales, of_operands)


def json_schema() -> dict[str, object]:
    """Return the JSON Schema of product models; only `from_json` checks that borders and orders are complete."""
    whole: dict[str, object] = {"type": "integer"}
    part = {"$dynamicRef": "#part"}
    rounding = {"enum": list(_ROUNDINGS)}
    chain = json_object({"chain": _list(whole, 2, 2)}, {"pattern": _list(whole, 1), "period": whole, "shift": whole})
    order = {"anyOf": [{"enum": list(get_args(Order))}, {"type": "array"}, whole]}
    merged = {"reduction": _list(part, 1), "order": order, "format": {"type": "string"}, "rounding": rounding}
    repeated = json_object({"repeat": whole, "distance": whole, "part": part})
    scales = {"of": {"enum": list(get_args(ScaleOf))}, "how": {"enum": list(get_args(Scaling))}, "fused": {"type": "boolean"}}
    name: dict[str, object] = {"type": "string"}
    others_of_merged = {"partial_format": name, "subnormals": {"enum": list(get_args(Subnormals))}}
    tree = {"$dynamicAnchor": "part", "anyOf": [chain, json_object(merged, others_of_merged), repeated]}
    written = {"a": name, "b": name, "k": whole, "step": notation.json_schema(), "tree": tree, "result": name}
    others = {"scales": json_object(scales), "operand_rounding": {"enum": list(OPERAND_ROUNDINGS)}}
    return json_object(written | {"result_rounding": rounding}, others)


def _list(items: object, least: int, most: int | None = None) -> dict[str, object]:
    return {"type": "array", "items": items, "minItems": least} | ({} if most is None else {"maxItems": most})


def _read_tree(data: object, products: int, k: int, place: str) -> Node:
    if isinstance(data, dict) and "chain" in data:
        chain = checked_table(data, place, ("chain",), ("pattern", "period", "shift"))
        borders = chain["chain"]
        if not isinstance(borders, list) or len(borders) != 2:
            raise AccprobeError(f"{place}.chain: expected [start, stop]")
        start, stop = (checked_number(x, f"{place}.chain", 0, k) for x in borders)
        if stop <= start:
            raise AccprobeError(f"{place}.chain: {stop} does not lie after {start}")
        pattern = chain.get("pattern", list(range(products)))
        if not isinstance(pattern, list) or not pattern or len(pattern) > 2 * MOST_K:
            raise AccprobeError(f"{place}.pattern: expected a list of places")
        places = tuple(checked_number(x, f"{place}.pattern", 0, 2 * MOST_K) for x in pattern)
        period = checked_number(chain.get("period", 0), f"{place}.period", 0, 2 * MOST_K)
        return Chain(start, stop, places, period, checked_number(chain.get("shift", 0), f"{place}.shift", -MOST_K, MOST_K))
    merged = checked_table(data, place, ("reduction", "order", "format", "rounding"), ("partial_format", "subnormals"))
    if not isinstance(merged["reduction"], list):
        raise AccprobeError(f"{place}.reduction: expected a list of parts")
    parts: list[Node] = []
    for i, part in enumerate(merged["reduction"]):
        parts += _read_parts(part, products, k, f"{place}.reduction[{i}]")
        _check_size(parts, 1, f"{place}.reduction")
    if not parts:
        raise AccprobeError(f"{place}.reduction: expected a list of parts")
    fmt = formats.get(_name(merged["format"], f"{place}.format"))
    subnormals = checked_word(merged.get("subnormals", "kept"), get_args(Subnormals), f"{place}.subnormals")
    arithmetic = addition(fmt, checked_word(merged["rounding"], _ROUNDINGS, f"{place}.rounding"), subnormals)
    kept = formats.get(_name(merged["partial_format"], f"{place}.partial_format")) if "partial_format" in merged else None
    return Merged(tuple(parts), _read_order(merged["order"], len(parts), f"{place}.order"), arithmetic, kept)


def _read_parts(data: object, products: int, k: int, place: str) -> list[Node]:
    if not isinstance(data, dict) or "repeat" not in data:
        return [_read_tree(data, products, k, place)]
    repeated = checked_table(data, place, ("repeat", "distance", "part"))
    count = checked_number(repeated["repeat"], f"{place}.repeat", 1, MOST_PARTS)
    by = checked_number(repeated["distance"], f"{place}.distance", -MOST_K, MOST_K)
    part = _read_tree(repeated["part"], products, k, f"{place}.part")
    _check_size([part], count, place)
    return [moved(part, i * by) for i in range(count)]


def _check_size(parts: Sequence[Node], times: int, place: str) -> None:
    if times * sum(1 for part in parts for _ in chains_of(part)) > MOST_PARTS:
        raise AccprobeError(f"{place}: more than {MOST_PARTS} parts")


def _read_order(data: object, parts: int, place: str) -> Order | Nested:
    if isinstance(data, str):
        named: Order = checked_word(data, get_args(Order), place)
        return named
    order = _nested(data, place)
    if sorted(_numbers(order)) != list(range(parts)):
        raise AccprobeError(f"{place}: expected each of the {parts} parts once")
    return order


def _nested(data: object, place: str) -> Nested:
    if isinstance(data, list) and data:
        return tuple(_nested(x, place) for x in data)
    return checked_number(data, place, 0, MOST_PARTS)


def _numbers(order: Nested) -> Iterator[int]:
    if isinstance(order, int):
        yield order
    else:
        for x in order:
            yield from _numbers(x)


def _read_scales(data: object) -> Scales:
    table = checked_table(data, "scales", ("of", "how", "fused"))
    if not isinstance(table["fused"], bool):
        raise AccprobeError("scales.fused: expected true or false")
    of = checked_word(table["of"], get_args(ScaleOf), "scales.of")
    return Scales(of, checked_word(table["how"], get_args(Scaling), "scales.how"), table["fused"])


def _name(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise AccprobeError(f"{place}: expected a name")
    return value

"""Models as JSON, for instructions and for whole products: written compactly, read strictly.

`DotModelField` and `ProductModelField` are the types of these models in pydantic records; `dot_json` and `product_json` write
them. The order of fused sums is a text ("[[c 0-15] 16-31]"); parts of a product's tree that repeat along K are written
once.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetPydanticSchema,
    Tag,
    create_model,
)
from pydantic_core import core_schema

from accprobe.errors import AccprobeError
from accprobe.isa import formats
from accprobe.model.fields import fields_of, written_fields
from accprobe.model.product import (
    Chain,
    Merged,
    Nested,
    Node,
    Order,
    ProductModel,
    ScaleOf,
    Scales,
    Scaling,
    SubnormalSums,
    addition,
    chains_of,
    subnormal_sums,
)
from accprobe.model.record import Patterns, Values, Words
from accprobe.model.tree import (
    Addend,
    Arithmetic,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    Product,
    Rounding,
    Term,
)

# Formats of results of fused sums that the reader accepts.
FLOAT_RESULTS, INTEGER_RESULTS = ("f16", "bf16", "f32", "f64"), ("s32",)

MOST_PRODUCTS, MOST_NESTED = 1024, 128  # Limits of an order that is read: products, and depth of nested sums.
MOST_PARTS, MOST_K = 1 << 14, 1 << 20  # Limits of a product's tree that is read.


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _then(build: Callable[[Any], Any]) -> AfterValidator:
    """Return the step that makes something of what pydantic has read. An AccprobeError means that it is invalid."""

    def built(read: Any) -> Any:
        try:
            return build(read)
        except AccprobeError as e:
            raise ValueError(str(e)) from None

    return AfterValidator(built)


def _read_as(kind: type, table: Any, build: Callable[[Any], Any], write: Callable[[Any], object]) -> GetPydanticSchema:
    """Return how pydantic reads and writes a kind of model: as a table from which `build` makes it."""

    def schema(source: Any, handler: Any) -> Any:
        read = handler(Annotated[table, _then(build)])
        return core_schema.json_or_python_schema(
            json_schema=read,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(kind), read], mode="left_to_right"),
            serialization=core_schema.plain_serializer_function_ser_schema(write),
        )

    return GetPydanticSchema(schema)


def parse_order(text: str, arithmetics: Sequence[Arithmetic]) -> FusedSum:
    """Return the tree of an order that `DotModel.order` wrote. Raises AccprobeError if it is not one."""
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    try:
        root = _read_order(text, arithmetics)
    except AccprobeError as error:
        raise AccprobeError(f"order '{shown}': {error}") from None
    leaves = Counter(term for node in root.nodes() for term in node.terms if not isinstance(term, FusedSum))
    if twice := next((leaf for leaf, count in leaves.items() if count > 1), None):
        raise AccprobeError(f"order '{shown}': {'c' if isinstance(twice, Addend) else f'product {twice.k}'} is there twice")
    products = {leaf.k for leaf in leaves if isinstance(leaf, Product)}
    if missing := set(range(len(products))) - products:
        raise AccprobeError(f"order '{shown}': product {min(missing)} is missing")
    return root


def _read_order(text: str, arithmetics: Sequence[Arithmetic]) -> FusedSum:
    whole: list[Term] = []
    open_sums = [whole]
    for word in re.findall(r"\[|\](?:@[^\s\[\]]*)?|[^\s\[\]]+", text):
        if word == "[" and len(open_sums) <= MOST_NESTED:
            open_sums.append([])
        elif word[0] == "]" and len(open_sums) > 1 and (terms := open_sums.pop()):
            index = re.fullmatch(r"\](?:@([0-9]{1,9}))?", word, re.ASCII)
            if index is None or int(index[1] or 0) >= len(arithmetics):
                raise AccprobeError(f"there is no arithmetic '{word[2:]:.60}'")
            open_sums[-1].append(FusedSum(tuple(terms), arithmetics[int(index[1] or 0)]))
        elif word == "c":
            open_sums[-1].append(Addend())
        elif found := re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", word, re.ASCII):
            first, last = int(found[1]), int(found[2] or found[1])
            if not first <= last < MOST_PRODUCTS:
                raise AccprobeError(f"'{word}' is no range of the products 0 to {MOST_PRODUCTS - 1}")
            open_sums[-1] += map(Product, range(first, last + 1))
        else:
            raise AccprobeError(f"'{word:.60}' cannot stand there")
    if len(open_sums) > 1 or len(whole) != 1 or not isinstance(whole[0], FusedSum):
        raise AccprobeError("expected one sum in brackets")
    return whole[0]


def dot_json(model: DotModel) -> dict[str, object]:
    """Return the model of an instruction as plain JSON values."""
    return {
        "order": model.order,
        "arithmetics": [
            {"result": a.result.name} | {name: getattr(a, name) for name in written_fields(a)} for a in model.arithmetics
        ],
        **{name: getattr(model, name) for name in written_fields(model)},
    }


def _type(values: Values) -> Any:
    if isinstance(values, Words):
        return Literal[values.words]
    if isinstance(values, Patterns):
        return Annotated[int, Field(ge=0, lt=1 << values.bits)]
    number: Any = Annotated[int, Field(ge=values.low, le=values.high)]
    return number if values.none is None else number | None


def table_of(kind: type[Arithmetic] | type[DotModel], **others: Any) -> Any:
    """Return the table that pydantic reads for a kind, with the values that the records of its fields allow."""
    usual = {field.name: field.default for field in dataclasses.fields(kind)}
    types: dict[str, Any] = {
        name: (_type(field.values), usual[name] if field.tacit else ...) for name, field in fields_of(kind).items()
    }
    return create_model(kind.__name__, __base__=_Table, **others, **types)


def _float(read: Any) -> FloatArithmetic:
    result = formats.get(read.result)
    if read.nan >> result.storage_bits:
        raise AccprobeError(f"nan: {read.nan} is not a bit pattern of {result}")
    return FloatArithmetic(**dict(read) | {"result": result})


def _integer(read: Any) -> IntegerArithmetic:
    return IntegerArithmetic(**dict(read) | {"result": formats.get(read.result)})


def _number_kind(arithmetic: Any) -> str:
    return "integers" if isinstance(arithmetic, dict) and arithmetic.get("result") in INTEGER_RESULTS else "floats"


_ORDER: Any = Annotated[str, Field(json_schema_extra={"pattern": r"^\[.*\](@[0-9]+)?$"})]
_FLOATS: Any = Annotated[table_of(FloatArithmetic, result=Literal[FLOAT_RESULTS]), _then(_float), Tag("floats")]
_INTEGERS: Any = Annotated[table_of(IntegerArithmetic, result=Literal[INTEGER_RESULTS]), _then(_integer), Tag("integers")]
_ARITHMETICS: Any = Annotated[list[Annotated[_FLOATS | _INTEGERS, Discriminator(_number_kind)]], Field(min_length=1)]


def _dot(read: Any) -> DotModel:
    fields = dict(read)
    return DotModel(parse_order(fields.pop("order"), fields.pop("arithmetics")), **fields)


_DOT: Any = table_of(DotModel, order=_ORDER, arithmetics=_ARITHMETICS)
DotModelField = Annotated[DotModel, _read_as(DotModel, _DOT, _dot, dot_json)]


def product_json(model: ProductModel) -> dict[str, object]:
    """Return the model of a product as plain JSON values."""
    written: dict[str, object] = {
        "a": model.a.name,
        "b": model.b.name,
        "k": model.k,
        "step": dot_json(model.step),
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
    if (subnormals := subnormal_sums(node.arithmetic)) != "kept":
        written["subnormals"] = subnormals
    return written | ({"partial_format": node.kept.name} if node.kept is not None else {})


def _parts(parts: Sequence[Node], products: int) -> Iterator[dict[str, object]]:
    """Return the parts; a run of parts that repeats along K becomes one, with its count and distance."""
    first = 0
    while first < len(parts):
        by = _start(parts[first + 1]) - _start(parts[first]) if first + 1 < len(parts) else 0
        count = 1
        while first + count < len(parts) and parts[first + count] == _moved(parts[first], count * by):
            count += 1
        part = _tree(parts[first], products)
        yield part if count == 1 else {"repeat": count, "distance": by, "part": part}
        first += count


def _start(node: Node) -> int:
    return node.start if isinstance(node, Chain) else _start(node.parts[0])


def _moved(node: Node, by: int) -> Node:
    """Return the same part shifted along K. Reports have 100,000 such parts; `replace` takes three times as long."""
    if isinstance(node, Chain):
        return Chain(node.start + by, node.stop + by, node.pattern, node.period, node.shift)
    return Merged(tuple(_moved(part, by) for part in node.parts), node.order, node.arithmetic, node.kept) if by else node


_Named = Annotated[str, _then(formats.get)]
_Distance = Annotated[int, Field(ge=-MOST_K, le=MOST_K)]
_Place = Annotated[int, Field(ge=0, le=2 * MOST_K)]


class _Chain(_Table):
    chain: Annotated[list[_Place], Field(min_length=2, max_length=2)]
    pattern: Annotated[list[_Place], Field(min_length=1)] | None = None
    period: _Place = 0
    shift: _Distance = 0


class _Reduction(_Table):
    reduction: Annotated[list[_Part], Field(min_length=1)]
    order: Order | int | list[Any]
    format: _Named
    rounding: Rounding
    partial_format: _Named | None = None
    subnormals: SubnormalSums = "kept"


class _Repeated(_Table):
    repeat: Annotated[int, Field(ge=1, le=MOST_PARTS)]
    distance: _Distance
    part: _Node


def _kind_of(part: Any) -> str:
    return next((key for key in ("chain", "repeat") if isinstance(part, dict) and key in part), "reduction")


_NodeKinds = Annotated[_Chain, Tag("chain")] | Annotated[_Reduction, Tag("reduction")]
_Node = Annotated[_NodeKinds, Discriminator(_kind_of)]
_Part = Annotated[_NodeKinds | Annotated[_Repeated, Tag("repeat")], Discriminator(_kind_of)]


class _Scales(_Table):
    of: ScaleOf
    how: Scaling
    fused: bool


class _Product(_Table):
    a: _Named
    b: _Named
    k: Annotated[int, Field(ge=1, le=MOST_K)]
    step: DotModelField
    tree: _Node
    result: _Named
    result_rounding: Rounding
    scales: _Scales | None = None
    operand_rounding: Literal["RZ", "RNE", "RNA"] = "RZ"


def _build_product(read: Any) -> ProductModel:
    """Make the model. Raises AccprobeError for chains beyond K, and for orders that do not have each part once."""
    tree = _node(read.tree, read.step.products)
    if beyond := next((chain for chain in chains_of(tree) if chain.start < 0 or chain.stop > read.k), None):
        raise AccprobeError(f"tree: a chain of the products {beyond.start} to {beyond.stop}, of {read.k}")
    scales = read.scales and Scales(**dict(read.scales))
    return ProductModel(**dict(read) | {"tree": tree, "scales": scales})


ProductModelField = Annotated[ProductModel, _read_as(ProductModel, _Product, _build_product, product_json)]


def _node(table: Any, products: int) -> Node:
    """Return the node of a tree as it was read. products: number of products of a step (see `ProductModel`)."""
    if isinstance(table, _Chain):
        start, stop = table.chain
        if stop <= start:
            raise AccprobeError(f"chain: {stop} does not lie after {start}")
        pattern = range(products) if table.pattern is None else table.pattern
        return Chain(start, stop, tuple(pattern), table.period, table.shift)
    parts: list[Node] = []
    chains = 0
    for part in table.reduction:
        count, by, one = (part.repeat, part.distance, part.part) if isinstance(part, _Repeated) else (1, 0, part)
        node = _node(one, products)
        chains += count * sum(1 for _ in chains_of(node))
        if chains > MOST_PARTS:
            raise AccprobeError(f"reduction: more than {MOST_PARTS} parts")
        parts += [_moved(node, i * by) for i in range(count)]
    order = table.order if table.order in get_args(Order) else _nested(table.order)
    if not isinstance(order, str) and sorted(_numbers(order)) != list(range(len(parts))):
        raise AccprobeError(f"order: expected each of the {len(parts)} parts once")
    return Merged(tuple(parts), order, addition(table.format, table.rounding, table.subnormals), table.partial_format)


def _nested(order: Any) -> Nested:
    if isinstance(order, list) and order:
        return tuple(map(_nested, order))
    if type(order) is not int:
        raise AccprobeError(f"order: {order!s:.60} is not the number of a part")
    return order


def _numbers(order: Nested) -> Iterator[int]:
    if isinstance(order, int):
        yield order
    else:
        for part in order:
            yield from _numbers(part)

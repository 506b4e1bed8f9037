"""Why an operation gives different bits in two runs.

The two records are compared first: other arguments, an extra cast, a bias that is added elsewhere. With operands at hand, the
operations are called again alone: a cause is verified if both sides give their recorded bits, and products are inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from accprobe.errors import AccprobeError
from accprobe.report.words import so_many
from accprobe.trace.compare import NOT_REACHED, Cause, DifferenceOrigin, TraceComparison
from accprobe.trace.functions import with_functions
from accprobe.trace.mapping import WHOLE_RUN
from accprobe.trace.products import cause_of_products, find_fixes, find_separate_bias, find_split_by_hand
from accprobe.trace.records import TracedOperation
from accprobe.trace.replay import (
    POSITIONS,
    Operand,
    RecordedCall,
    comparable_words,
    count_differing,
    differing_arguments,
    named_arguments,
    terms_of,
)
from accprobe.trace.sides import KeptCalls, OriginSide, are_parts_equal, compared_parts, kernel_names, pair_sides
from accprobe.trace.summary import differs_in_dtype

_REDUCTIONS = (
    "sum", "mean", "var", "std", "norm", "softmax", "logsumexp", "cumsum", "prod", "native_layer_norm", "native_group_norm",
    "native_batch_norm", "_fused_rms_norm", "index_add", "scatter_add", "index_put", "aten.dot", "mv", "pool", "loss",
)  # fmt: skip
"""Words in the names of operations that add, or multiply, many elements."""

_ONLY_ADDS = {"aten.add", "aten.sum"}

SUMS_OVER_RANKS = ("all_reduce", "allreduce", "reduce_scatter")
"""Words in the names of collectives that add."""

WEIGHT_TYPES = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
"""Types to which one side may have rounded its weights."""

WEIGHTS = {
    "aten.mm": {1: "weight"}, "aten.addmm": {0: "bias", 2: "weight"}, "aten.embedding": {0: "weight"},
    "aten.convolution": {1: "weight", 2: "bias"}, "aten.native_layer_norm": {1: "weight", 2: "bias"},
}  # fmt: skip
"""Names of operands of a module's operations that are parameters of the module."""

NOT_MODELLED = "located, not modelled yet"

OnOrigin = Callable[[TraceComparison, int], None]
"""Called before each origin is explained, with the findings so far and the number of the origin."""


def explain_origins(
    found: TraceComparison,
    runs: tuple[KeptCalls, KeptCalls],
    with_fixes: bool = False,
    on_origin: OnOrigin = lambda found, number: None,
) -> None:
    """Set the sides and the cause of each origin. with_fixes: try changes that make both sides equal."""
    for origin in found.origins:
        left, right = origin.sides = runs[0].side(origin, 0), runs[1].side(origin, 1)
        with _errors_as_cause(origin):
            if None not in (left.value, right.value):
                x, y = compared_parts(left, right)
                origin.differing, origin.of = count_differing(x, y), x.numel()
    for number, origin in enumerate(found.origins):
        if origin.cause.text == NOT_REACHED:
            on_origin(found, number)
            with _errors_as_cause(origin):
                origin.cause = _cause(origin, *origin.sides)
                if differs_in_dtype(origin):
                    origin.cause = replace(origin.cause, text=f"{origin.cause.text}; values equal")
                if with_fixes:
                    origin.cause = replace(origin.cause, fixes=tuple(find_fixes(*origin.sides)), fixes_tried=True)


@contextmanager
def _errors_as_cause(each: DifferenceOrigin) -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise
    except (AccprobeError, RuntimeError) as e:  # RuntimeError: of torch, such as too little memory
        each.cause = Cause("unknown", f"not explained: {' '.join(str(e).split())[:200]}")


def _cause(origin: DifferenceOrigin, left: OriginSide, right: OriginSide) -> Cause:
    return with_functions(next(filter(None, _causes(origin, left, right))), left, right)


def _causes(origin: DifferenceOrigin, left: OriginSide, right: OriginSide) -> Iterator[Cause | None]:
    yield _input(origin, left, right)
    yield _randomness(left, right)
    yield _unstable(left, right)
    yield _changed(left, right)
    yield _arguments(left, right)
    yield find_separate_bias(left, right)
    yield find_split_by_hand(left, right)
    yield cause_of_products(left, right)
    yield _cast(origin, left, right)
    yield _fusion(left, right)
    yield _located(origin, left, right)
    yield _unexplained(left, right)


def _input(origin: DifferenceOrigin, left: OriginSide, right: OriginSide) -> Cause | None:
    """A value that both runs read and none computes, such as a weight."""
    if not origin.is_input or origin.readers is None:
        return None
    reader, value = origin.readers[0], origin.values[0]
    place = next((i for i, x in enumerate(reader.inputs) if x == value), 0)
    parameter = WEIGHTS.get(reader.packet, {}).get(place)
    name = f"operand {place} of {reader.packet}, which no recorded operation computed,"
    if parameter and origin.module:
        name = f"{parameter} {origin.module}.{parameter}"
    types = [x.dtype for x in origin.values]
    if types[0] != types[1]:
        return Cause("input", f"{name} is {types[0]} against {types[1]}", verified=True)
    if left.value is None or right.value is None:
        return Cause("input", f"{name} differs")
    return Cause("input", f"{name.removesuffix(',')}: {_differing_words(*compared_parts(left, right))}", verified=True)


def _randomness(left: OriginSide, right: OriginSide) -> Cause | None:
    random = [[x for x in side.operations if x.random] for side in (left, right)]
    if not any(random):
        return None
    first, letter = (random[0] or random[1])[0], "A" if random[0] else "B"
    if all(random):
        text = f"{first.packet} draws random numbers on both sides, {_how_draws_differ(first, random[1][0])}"
    elif any(word in first.name for word in ("dropout", "bernoulli", "attention")):
        text = f"dropout is on in side {letter}{_chance(first)}"
    else:
        text = f"{first.packet} draws random numbers on side {letter} only"
    return Cause("dropout", text, left.replays and right.replays)


def _how_draws_differ(x: TracedOperation, y: TracedOperation) -> str:
    if x.packet != y.packet:
        return f"{y.packet} on side B"
    other_arguments = named_arguments(x) != named_arguments(y)
    return f"with {differing_arguments(x, y)}" if other_arguments else "from different states of the generator"


def _chance(operation: TracedOperation) -> str:
    """Return the probability with which a dropout sets an element to zero: " (p 0.1)"."""
    arguments = named_arguments(operation)
    p = arguments.get("dropout_p", arguments.get("p", arguments.get("argument 1")))
    if not isinstance(p, int | float):
        return ""
    return f" (p {1 - p if 'bernoulli' in operation.name else p:.4g})"  # bernoulli_ draws the elements that stay


def _unstable(left: OriginSide, right: OriginSide) -> Cause | None:
    for name, side in (("A", left), ("B", right)):
        if side.run.from_folder:  # what differs may be the machine
            continue
        changing = [x for x, call in zip(side.operations, side.calls, strict=False) if not x.random and not call.repeats()]
        if changing or any(x.number in side.run.unrepeated for x in side.operations):
            which = changing[0] if changing else side.operations[0]
            reason = "unordered atomics, or another race" if changing else "seen in a second run"
            return Cause("atomics", f"{which.packet} differs from itself on side {name} when it is repeated: {reason}")
    return None


def _changed(left: OriginSide, right: OriginSide) -> Cause | None:
    """Operands with other bits, although both runs computed the same tensor."""
    if len(left.operations) != 1 or len(right.operations) != 1:
        return None
    operands = [side.calls[0].operands() if side.calls else [] for side in (left, right)]
    is_whole = left.run.mapped == right.run.mapped == WHOLE_RUN
    for i, (p, q) in enumerate(zip(left.operations[0].inputs, right.operations[0].inputs, strict=False)):
        if p.shape != q.shape or not (is_whole or p.hash == q.hash):
            continue
        pair = [each[i].tensor for each in operands if i < len(each)]
        how = "it differs" if p.hash != q.hash else ""
        if len(pair) == 2:
            how = _differing_words(pair[0], pair[1]) if count_differing(pair[0], pair[1]) else ""
        if how:
            text = f"operand {i}, of a tensor that both runs computed equal: {how}"
            return Cause("unknown", f"{text}; the runs read other parts of it, or something that was not recorded wrote to it")
    return None


def _differing_words(x: Any, y: Any) -> str:
    """Return "12 of 512 elements differ", in which bit or as which types, or that one tensor is the other one rounded."""
    import torch

    first, second = comparable_words(x, y)
    differ = first != second
    count = int(differ.sum())
    if count == 1:
        bits = (int(first[differ]) ^ int(second[differ])) & ((1 << 8 * first.element_size()) - 1)
        has_words = x.dtype == y.dtype and x.element_size() == first.element_size()
        which = f", in bit {bits.bit_length() - 1}" if bits.bit_count() == 1 and has_words else ""
        return f"1 of {first.numel():,} elements differs{which}"
    if not count and x.dtype != y.dtype:
        return f"{x.dtype} against {y.dtype}".replace("torch.", "")
    text = f"{count:,} of {first.numel():,} elements differ"
    for name in WEIGHT_TYPES if x.is_floating_point() else ():
        for side, (exact, rounded) in {"B": (x, y), "A": (y, x)}.items():
            if not count_differing(exact.to(getattr(torch, name)).to(exact.dtype), rounded):
                return f"{text}: side {side} has the values of side {'BA'['AB'.index(side)]} rounded to {name}"
    return text


def _arguments(left: OriginSide, right: OriginSide) -> Cause | None:
    """The same operation with other arguments, which is repeated with the operands of side B and gives the result of side A.

    An operation in place is the same as one that returns a new tensor.
    """
    is_one = len(left.operations) == len(right.operations) == 1
    if not is_one or left.computed != right.computed or left.packets[0] in POSITIONS:
        return None
    x, y = left.operations[0], right.operations[0]
    if x.arguments == y.arguments:
        return None
    differing = differing_arguments(x, y)
    if not left.calls or not right.calls:
        return Cause("argument", differing) if [z.shape for z in x.inputs] == [z.shape for z in y.inputs] else None
    operands = right.calls[0].operands()
    if len(left.calls[0].operands()) != len(operands):
        return None
    call = left.calls[0] if left.packets == right.packets else replace(left.calls[0], function=right.calls[0].function)
    try:
        result = call({i: operand.tensor for i, operand in enumerate(operands)})[0]
    except (RuntimeError, TypeError):  # the arguments do not fit operands of other shapes, or another operation
        return None
    is_cause = are_parts_equal(result, left.calls[0].results[0].tensor, right.run.mapped, left.run.mapped)
    return Cause("argument", differing, right.replays) if is_cause else None


def _cast(origin: DifferenceOrigin, left: OriginSide, right: OriginSide) -> Cause | None:
    """Operations that only one side has, all of them casts."""
    for name, side, _, other in pair_sides(left, right):
        extra = [x for x in side.operations if x.packet == "aten._to_copy"]
        if extra and [x for x in side.packets if x != "aten._to_copy"] == other.packets:
            types = list(dict.fromkeys(x.outputs[0].dtype for x in extra))
            back = f" and back to {types[1]}" if len(types) == 2 and extra[0].inputs[0].dtype == types[1] else ""
            text = f"side {name} has an extra cast to {types[0]}{back} (aten._to_copy)"
            if origin.readers is not None and not origin.module:
                text += f", read by {' in '.join(filter(None, (origin.readers[0].packet, origin.readers[0].module)))}"
            return Cause("cast", text, left.replays and right.replays)
    return None


def _fusion(left: OriginSide, right: OriginSide) -> Cause | None:
    """Several elementwise operations against one kernel: the side of several is computed with fewer roundings."""
    import torch

    for _, side, name, fused in pair_sides(left, right):
        if fused.value is None or len(side.calls) <= len(fused.operations):
            continue
        if any("mm" in x or "attention" in x for x in side.packets):  # a compiler fuses no product and no attention
            continue
        wanted = fused.value.tensor
        for dtype, wider in ((torch.float32, "f32"), (torch.float64, "f64")):
            try:
                got = _wider(side.calls, dtype).to(wanted.dtype)
            except (RuntimeError, KeyError):
                continue
            if got.shape == wanted.shape and not count_differing(got, wanted):
                text = f"{len(side.calls)} operations fused on side {name}: computed in {wider} and rounded once"
                return Cause("fusion", text, side.replays)
    return None


def _wider(calls: tuple[RecordedCall, ...], dtype: Any) -> Any:
    """Return the last result of operations that compute everything in another type."""
    import torch

    made: dict[int, Any] = {}

    def widen(operand: Operand) -> Any:
        tensor = made.get(operand.value, operand.tensor)
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    result: Any = None
    for call in calls:
        keywords = {key: dtype if isinstance(x, torch.dtype) else x for key, x in call.keywords.items()}
        result = replace(call, keywords=keywords)(dict(enumerate(map(widen, call.operands()))))[-1]
        made[call.results[-1].value] = result
    return result


def _located(origin: DifferenceOrigin, left: OriginSide, right: OriginSide) -> Cause | None:
    """Name what differs in operations with arithmetic that accprobe does not model yet."""
    operations = (*left.operations, *right.operations)
    added = [any(word in x.name for x in side.operations for word in SUMS_OVER_RANKS) for side in (left, right)]
    if added == [True, True]:
        return Cause("unknown", "other ranks gave other partial sums; compare their traces")
    if any(added):
        return Cause("split_k", "K is divided between ranks, which add partial sums: another summation tree")
    if attention := _attention(left, right):
        return attention
    adds = next(filter(_adds, (x.packet for x in operations)), "")
    unseen = next((name for name, side in (("A", left), ("B", right)) if not side.operations and name in origin.unrecorded), "")
    if unseen or any(x.name.startswith("triton.") for x in operations):
        side = f"side {unseen} runs compiled code, or other code that is not recorded" if unseen else "compiled code"
        how = f"{adds} may add in another order" if adds else "it may round less often"
        return Cause("fusion", f"{side}: {how}; {NOT_MODELLED}")
    names = [side.computed for side in (left, right)]
    if adds and (reduction := _reduction(left, right)):
        return reduction
    if names[0] != names[1] or not all(names):
        verified = not adds and left.replays and right.replays
        return Cause("function", _other_operations(left, right), verified)
    if product := next((name for name in names[0] if name.endswith("_mm")), ""):  # aten._scaled_mm, aten._grouped_mm
        return Cause("unknown", f"{product}{kernel_names(left, right)}: located; this product is not modelled")
    return None


def _adds(packet: str) -> bool:
    return any(word in packet for word in _REDUCTIONS)


def _reduction(left: OriginSide, right: OriginSide) -> Cause | None:
    """Name the sums of both sides; None for other operations with sums of two terms. Verified if what differs only adds."""
    if left.packets == right.packets:
        return Cause("reduction", f"another order of a sum{kernel_names(left, right)}; {NOT_MODELLED}")
    operations = (*left.operations, *right.operations)
    if max((terms_of(x) for x in operations if _adds(x.packet)), default=2) <= 2:
        return None
    one, other = Counter(left.computed), Counter(right.computed)
    formats = {value.dtype for x in operations for value in x.outputs}
    only_adds = set((one - other) + (other - one)) <= _ONLY_ADDS and len(formats) == 1
    how = "another reduction tree" if only_adds else "another formula or reduction tree"
    text = f"{how}: {_sums(left)} against {_sums(right)}"
    return Cause("reduction", text, only_adds and one != other and left.replays and right.replays)


def _attention(left: OriginSide, right: OriginSide) -> Cause | None:
    """Name the attention of each side, and which of its sums are not modelled."""
    sides = [[x for x in side.operations if "attention" in x.packet and len(x.inputs) > 1] for side in (left, right)]
    if not all(sides) or any(x.name.startswith("triton.") for x in (*left.operations, *right.operations)):
        return None
    if any("multi_head_attention" in x.packet for side in sides for x in side):
        parts = "the projections of Q, K and V, the attention and the output projection"
        return Cause("unknown", f"one operation computes {parts}; which of them differs is not modelled")
    names, operands = [side[0].packet for side in sides], [side[0].inputs[:2] for side in sides]
    text = "attention" if names[0] == names[1] else f"{names[0]} against {names[1]}"
    if all(len(x.shape) > 1 for each in operands for x in each):
        rows = [f"{so_many(q.shape[-2], 'query row')} and {so_many(k.shape[-2], 'key')}" for q, k in operands]
        text += f" of {rows[0]} against {rows[1]}" if rows[0] != rows[1] else ""
    text += f"{kernel_names(left, right)}: one kernel computes Q·Kᵀ, softmax and P·V, and the order of its sums over keys"
    return Cause("reduction", f"{text} is not modelled yet")


def _sums(side: OriginSide) -> str:
    """Return "2 × aten.sum + 1 × aten.add"."""
    adding = Counter(x for x in side.packets if x == "aten.add" or _adds(x))
    return " + ".join(f"{count} × {name}" for name, count in adding.items()) or "no sum"


def _other_operations(left: OriginSide, right: OriginSide) -> str:
    """Return "another formula: aten.silu against aten.clamp, aten.mul, aten.add (10 operations)"."""
    names = [
        ", ".join(dict.fromkeys(side.packets)) + f" ({len(side.packets)} operations)" * (len(side.packets) > 1)
        for side in (left, right)
    ]
    if not all(names):
        return f"only side {'A' if names[0] else 'B'} computes {names[0] or names[1]}"
    return f"another formula: {names[0]} against {names[1]}"


def _unexplained(left: OriginSide, right: OriginSide) -> Cause:
    if left.value is None or right.value is None:
        return Cause("unknown", "the records have no cause")
    text = f"not explained: {_differing_words(*compared_parts(left, right))}"
    again = [name for name, side in (("A", left), ("B", right)) if side.calls and not side.replays]
    if again:
        text += f"; the operation, called again, does not give the words of side {' or '.join(again)}"
    return Cause("unknown", text)

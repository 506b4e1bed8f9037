"""Why an operation gives different bits in two runs: each side is called again alone, and its arithmetic is inferred."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from accprobe.errors import AccprobeError
from accprobe.trace.compare import DifferenceOrigin, TraceComparison
from accprobe.trace.fixes import fixes
from accprobe.trace.product_causes import cause_of_products
from accprobe.trace.products import POSITIONS
from accprobe.trace.replay import CallBlock, Operand, RecordedCall, count_differing, tensor_words
from accprobe.trace.sides import Cause, OriginSide, compared_parts, same_part

REDUCTIONS = (
    "sum", "mean", "var", "std", "norm", "softmax", "logsumexp", "cumsum", "prod", "native_layer_norm", "native_group_norm",
    "native_batch_norm", "_fused_rms_norm", "index_add", "scatter_add", "index_put", "dot", "mv", "pool", "loss",
)  # fmt: skip
"""Words in the names of operations that add."""

SUMS_OVER_RANKS = ("all_reduce", "allreduce", "reduce_scatter")
"""Words in the names of collectives that add."""

COPIES = (
    "aten._to_copy",
    "aten.clone",
    "aten.copy_",
    "aten.cat",
    "aten.contiguous",
    "aten.slice_scatter",
    "aten.select_scatter",
)

NEARLY = 0.02
"""Share of words up to which a fusion that does not predict them is named."""

NOT_MODELLED = "located, not modelled yet"


@dataclass
class ExplainedOrigin:
    """differing, of: words of the part that is compared, None where the results were not kept."""

    origin: DifferenceOrigin
    cause: Cause
    differing: int | None = None
    of: int | None = None
    sides: tuple[OriginSide, OriginSide] | None = None


@dataclass
class TraceFindings:
    """A comparison and the cause of each of its origins."""

    comparison: TraceComparison
    origins: list[ExplainedOrigin] = field(default_factory=list)


@dataclass
class Explainer:
    """values: of the first run, the id of the same data in the second. with_fixes: try what makes both sides equal."""

    values: Mapping[int, int] = field(default_factory=dict)
    with_fixes: bool = False

    def explain(self, origin: DifferenceOrigin, left: OriginSide, right: OriginSide) -> ExplainedOrigin:
        found = ExplainedOrigin(origin, _without_operands(origin), sides=(left, right))
        if left.value is None or right.value is None:
            return found
        parts = compared_parts(left, right)
        found.differing, found.of = count_differing(*parts), parts[0].numel()
        try:
            found.cause = self._cause(origin, left, right, parts)
            if self.with_fixes:
                found.cause = replace(found.cause, fixes=tuple(fixes(left, right)), fixes_tried=True)
        except (AccprobeError, RuntimeError) as e:  # RuntimeError: of torch, such as too little memory
            found.cause = Cause("unknown", f"not explained: {' '.join(str(e).split())[:200]}")
        return found

    def _cause(self, origin: DifferenceOrigin, left: OriginSide, right: OriginSide, parts: tuple[Any, Any]) -> Cause:
        tried: list[Callable[[], Cause | None]] = [
            lambda: _randomness(left, right),
            lambda: _unstable(left, right),
            lambda: _changed(left, right),
            lambda: _arguments(left, right),
            lambda: cause_of_products(left, right, self.values),
            lambda: _cast(left, right),
            lambda: _fusion(left, right),
            lambda: _located(origin, left, right),
        ]
        return next(filter(None, (each() for each in tried)), None) or _unexplained(left, right, parts)


def _without_operands(origin: DifferenceOrigin) -> Cause:
    sides = OriginSide(origin.left, (), None), OriginSide(origin.right, (), None)
    return _cast(*sides) or _located(origin, *sides) or Cause("unknown", "located; the operands were not saved")


def _randomness(left: OriginSide, right: OriginSide) -> Cause | None:
    random = [x for side in (left, right) for x in side.operations if x.random]
    if not random:
        return None
    where = "both sides" if all(any(x.random for x in side.operations) for side in (left, right)) else _only(left, right)
    verified = all(_replays(side) for side in (left, right))
    return Cause("dropout", f"{random[0].packet} draws random numbers on {where}", verified)


def _only(left: OriginSide, right: OriginSide) -> str:
    return "side A only" if any(x.random for x in left.operations) else "side B only"


def _replays(side: OriginSide) -> bool:
    """Return whether the operations, called again alone, give the recorded bits; random ones are not called."""
    if len(side.calls) != len(side.operations):
        return False
    return all(x.random or call.repeats(1) for x, call in zip(side.operations, side.calls, strict=True))


def _unstable(left: OriginSide, right: OriginSide) -> Cause | None:
    for name, side in (("A", left), ("B", right)):
        changing = [x for x, call in zip(side.operations, side.calls, strict=False) if not x.random and not call.repeats()]
        if changing or not side.repeated:
            which = changing[0] if changing else side.operations[0]
            reason = "unordered atomics, or another race" if changing else "seen in a second run"
            return Cause("atomics", f"{which.packet} differs from itself on side {name} when it is repeated: {reason}")
    return None


def _changed(left: OriginSide, right: OriginSide) -> Cause | None:
    """Operands with other bits than when they were computed: something wrote to them that was not recorded."""
    if len(left.calls) != 1 or len(right.calls) != 1:
        return None
    inputs = zip(left.operations[0].inputs, right.operations[0].inputs, strict=False)  # without the argument `out`
    operands = zip(left.calls[0].operands(), right.calls[0].operands(), strict=False)
    for i, ((p, q), (x, y)) in enumerate(zip(inputs, operands, strict=False)):
        was_equal = x.shape == y.shape and p.hash == q.hash
        if was_equal and count_differing(x.tensor, y.tensor):
            text = f"{_differing_words(x.tensor, y.tensor)} of operand {i}, which was equal when it was computed"
            return Cause("unknown", f"not explained: {text}; something wrote to it that was not recorded")
    return None


def _differing_words(x: Any, y: Any) -> str:
    """Return "12 of 512 words differ", or which bit of one word does."""
    first, second = tensor_words(x), tensor_words(y)
    differ = first != second
    count = int(differ.sum())
    if count == 1:
        bits = (int(first[differ]) ^ int(second[differ])) & ((1 << 8 * first.element_size()) - 1)
        if bits.bit_count() == 1:
            return f"bit {bits.bit_length() - 1} of one word differs"
    return f"{count:,} of {first.numel():,} words differ"


def _arguments(left: OriginSide, right: OriginSide) -> Cause | None:
    """The same operation with other arguments, or with operands in another layout: side A is repeated with what side B has."""
    if len(left.calls) != 1 or len(right.calls) != 1 or left.operations[0].packet != right.operations[0].packet:
        return None
    x, y = left.operations[0], right.operations[0]
    a, b = left.calls[0], right.calls[0]
    if x.packet in POSITIONS or len(a.operands()) != len(b.operands()):
        return None
    if x.arguments != y.arguments and _gives(a, [operand.tensor for operand in b.operands()], left, right):
        return Cause("argument", f"arguments {_plain(x.arguments)} against {_plain(y.arguments)}", _replays(right))
    shapes, others = ([operand.shape for operand in call.operands()] for call in (a, b))
    strides = [[operand.strides for operand in call.operands()] for call in (a, b)]
    if shapes == others and strides[0] != strides[1]:
        relaid = [q.of(q.filled(p.tensor)) for p, q in zip(a.operands(), b.operands(), strict=True)]
        if _gives(a, relaid, right, right):
            text = " against ".join(str(list(each[0])) for each in strides)
            return Cause("layout", f"operands have other strides: {text}", _replays(left))
    return None


def _gives(call: RecordedCall, operands: list[Any], wanted: OriginSide, other: OriginSide) -> bool:
    """Return whether a call of the operands of `other` gives the part of the results that side `wanted` has."""
    try:
        result = call(dict(enumerate(operands)))[0]
    except RuntimeError:  # the arguments do not fit operands of other shapes
        return False
    return same_part(result, wanted.calls[0].results[0].tensor, other.mapped, wanted.mapped)


def _plain(arguments: str) -> str:
    return arguments.replace('"', "") or "none"


def _cast(left: OriginSide, right: OriginSide) -> Cause | None:
    """Operations that only one side has, all of them casts."""
    names = [[x.packet for x in side.operations] for side in (left, right)]
    for which, (side, other) in enumerate(((left, names[1]), (right, names[0]))):
        extra = [x for x in side.operations if x.packet == "aten._to_copy"]
        rest = [x.packet for x in side.operations if x.packet != "aten._to_copy"]
        if extra and rest == other:
            types = " and ".join(dict.fromkeys(x.outputs[0].dtype for x in extra))
            return Cause("cast", f"an extra cast to {types} on side {'AB'[which]}", _replays(left) and _replays(right))
    return None


def _fusion(left: OriginSide, right: OriginSide) -> Cause | None:
    """Several elementwise operations against one kernel: the side of several is computed with fewer roundings."""
    import torch

    for name, side, other in (("B", left, right), ("A", right, left)):
        if not _can_fuse(side) or other.value is None or len(side.calls) <= len(other.operations):
            continue
        wanted, fewest = other.value.tensor, (other.value.tensor.numel(), "")
        for dtype, wider in ((torch.float32, "f32"), (torch.float64, "f64")):
            try:
                got = _wider(side.block, dtype).to(wanted.dtype)
            except (RuntimeError, KeyError):
                continue
            if got.shape == wanted.shape:
                fewest = min(fewest, (count_differing(got, wanted), wider))
        wrong, wider = fewest
        if wrong <= NEARLY * wanted.numel():
            text = f"{len(side.calls)} operations fused on side {name}: computed in {wider} and rounded once"
            unpredicted = f"; {wrong:,} of {wanted.numel():,} words are not predicted" if wrong else ""
            return Cause("fusion", text + unpredicted, not wrong and _replays(side))
    return None


def _can_fuse(side: OriginSide) -> bool:
    """Return whether a side has operations that a compiler fuses: none of them is a product or an attention."""
    return bool(side.calls) and not any("mm" in x.packet or "attention" in x.packet for x in side.operations)


def _wider(block: CallBlock, dtype: Any) -> Any:
    """Return the last result of a block that computes everything in another type."""
    import torch

    made: dict[int, Any] = {}

    def widened(operand: Operand) -> Any:
        tensor = made.get(operand.value, operand.tensor)
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    result: Any = None
    for call in block.calls:
        keywords = {key: dtype if isinstance(x, torch.dtype) else x for key, x in call.keywords.items()}
        result = replace(call, keywords=keywords)(dict(enumerate(map(widened, call.operands()))))[-1]
        made[call.results[-1].value] = result
    return result


def _located(origin: DifferenceOrigin, left: OriginSide, right: OriginSide) -> Cause | None:
    """Name operations whose arithmetic accprobe does not model yet."""
    operations = (*left.operations, *right.operations)
    changed = origin.operation if " against " in origin.operation else operations[0].packet if operations else ""
    added = [any(word in x.name for x in side.operations for word in SUMS_OVER_RANKS) for side in (left, right)]
    if added == [True, True]:
        return Cause("unknown", "other ranks gave other partial sums; compare their traces")
    if any(added):
        return Cause("split_k", "K is divided between ranks, whose partial sums are added: another summation tree")
    verified = bool(left.value and right.value) and left.operations != right.operations and all(map(_replays, (left, right)))
    if any(word in x.packet for x in operations for word in REDUCTIONS):
        return Cause("reduction", f"{changed}: another order of a sum; {NOT_MODELLED}")
    for word, title in (("attention", "attention"), ("grouped_mm", "grouped product"), ("scaled_mm", "scaled product")):
        if any(word in x.packet for x in operations):
            return Cause("unknown", f"{changed}: {title}; {NOT_MODELLED}")
    if len(operations) > 2 and [x.packet for x in left.operations] == [x.packet for x in right.operations]:
        return Cause("unknown", f"one of {changed}; their rows are in another order; {NOT_MODELLED}")
    names = [[x.packet for x in side.operations if x.packet not in COPIES] for side in (left, right)]
    if any(x.name.startswith("triton.") for x in operations):
        return Cause("fusion", f"{changed}: compiled code against eager operations; {NOT_MODELLED}")
    if names[0] != names[1] or not all(names):
        return Cause("function", f"other operations: {changed}", verified)
    return None


def _unexplained(left: OriginSide, right: OriginSide, parts: tuple[Any, Any]) -> Cause:
    told = f"not explained: {_differing_words(*parts)}"
    again = [name for name, side in (("A", left), ("B", right)) if not _replays(side)]
    if again:
        told += f"; the operation, called again, does not give the words of side {' or '.join(again)}"
    return Cause("unknown", told)

"""The comparison of two traces in words and as JSON: the first difference, and how many operations are in each state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accprobe.report.words import so_many
from accprobe.trace.compare import DifferenceOrigin, OperationState, TraceComparison
from accprobe.trace.records import TracedOperation
from accprobe.trace.replay import adds_other_terms


def trace_headline(found: TraceComparison) -> str:
    """Return "equal: 187 operations", the first difference and its cause, or why there is none. Equal results suffice."""
    first, second = found.operations
    if found.equal and list_limits(found):
        return f"no difference found: {so_many(max(first, second), 'operation')}"
    if found.equal:
        count, rest = found.count("equal"), _uncompared(found)
        if not count:
            return f"equal results: {', '.join(['no operation is recorded in both runs', *rest])}"
        same = so_many(count, "operation")
        return f"equal results: {', '.join([f'{same} equal', *rest])}" if rest else f"equal: {same}"
    ended = [i for i, trace in enumerate(found.traces) if not trace.complete]
    if ended and not found.origins and not any("only one" in found.states[i].values() for i in ended):
        sides = " and ".join(f"side {'AB'[i]} after {so_many(found.operations[i], 'operation')}" for i in ended)
        return f"no difference found, but the record ends early: {sides}; record the whole run"
    if not found.origins and (reason := find_uncomparable(found)):
        return f"not comparable: {reason}"
    if not found.origins:
        return f"different: {_without_origin(found)}"
    origin = found.origins[0]
    inputs = sum(each.is_input for each in found.origins)
    if origin.is_input:
        return f"inputs differ: {origin.cause.text}" + f" (and {so_many(inputs - 1, 'other input')})" * (inputs > 1)
    return f"first difference: {_place(origin)}{origin.cause.text}"


def find_uncomparable(found: TraceComparison) -> str:
    """Return why the first operation with a known reason is not comparable; "" if there is none."""
    for i, j in found.pairs:
        x, y = (trace.operations[number] for trace, number in zip(found.traces, (i, j), strict=True))
        if found.states[0][i] != "unmapped":
            continue
        if not all(value.hash for value in (*x.inputs, *x.outputs)):
            return f"{x.packet} reads or gives a sparse, nested, meta, conjugated or negated tensor; its bits are not read"
        if found.mapping is not None and adds_other_terms(x, y):
            shapes = operand_shapes(DifferenceOrigin((x,), (y,), (x.outputs[0], y.outputs[0])))
            return f"{x.packet} {shapes} reduces over the mapped dimension, which has different elements in the two runs"
    return ""


def _without_origin(found: TraceComparison) -> str:
    """Return which operations one run lacks, and how the shapes of the results differ."""
    differences, shapes = [], []
    mapped = " and ".join(f"{each} of {letter}" for each, letter in zip(found.mapping or (), "AB", strict=False))
    for letter, trace, states in zip("AB", found.traces, found.states, strict=True):
        operations = [x for x in trace.operations if x.name != "return"]
        alone = next((x for x in operations if states[x.number] == "only one"), None)
        if alone is not None:
            differences.append(f"only side {letter} has {alone.packet}" + f" in module {alone.module}" * bool(alone.module))
        returned = [value for x in trace.operations if x.name == "return" for value in x.inputs]
        shapes.append(" ".join(f"[{','.join(map(str, x.shape))}]" for x in returned) or "none")
    if shapes[0] != shapes[1]:
        advice = "" if differences else "; give --map if a part of them should be equal"
        if found.mapping:
            advice = f"; the parts to compare, {mapped}, have no equal shape"
        differences.append(f"the results have shape {shapes[0]} against {shapes[1]}{advice}")
    unfit = f", or the parts to compare, {mapped}, do not" * bool(mapped)
    return "; ".join(differences) or f"the operations of the two runs do not correspond{unfit}"


def list_limits(found: TraceComparison) -> str:
    """Return what dumps of other tools do not have, and where a recording ended before its program; "" for whole traces."""
    ended = [
        f"side {name} is incomplete: {trace.stopped or 'the record ends early'}, after {so_many(count, 'operation')}"
        for name, trace, count in zip("AB", found.traces, found.operations, strict=True)
        if not trace.source and (trace.stopped or not trace.complete)
    ]
    return "; ".join([*dict.fromkeys(trace.lacks for trace in found.traces if trace.lacks), *ended])


def count_operations(found: TraceComparison) -> str:
    """Return how many operations there are, and how many in each state."""
    first, second = found.operations
    shown = [
        f"{found.count('equal'):,} equal",
        so_many(len(found.origins), "origin"),
        so_many(found.count("consequence"), "consequence"),
    ]
    return f"{first:,} and {second:,} operations: {', '.join([*shown, *_uncompared(found)])}"


_UNCOMPARED: dict[OperationState, str] = {
    "only one": "in one run only",
    "deferred": "compared where read",
    "unmapped": "not comparable",
}


def _uncompared(found: TraceComparison) -> list[str]:
    """Return how many operations are in each state that is neither equal nor different."""
    return [f"{number:,} {words}" for state, words in _UNCOMPARED.items() if (number := found.count(state))]


def findings_json(found: TraceComparison) -> dict[str, Any]:
    """Return the findings as `--format json` prints them."""
    return {
        "equal": found.equal,
        "operations": list(found.operations),
        "consequences": found.count("consequence"),
        "not_comparable": found.count("unmapped"),
        **({"limits": list_limits(found)} if list_limits(found) else {}),
        "origins": [_origin(each) for each in found.origins],
    }


def _origin(origin: DifferenceOrigin) -> dict[str, Any]:
    cause = origin.cause
    return {
        "operation": origin.operation,
        "module": origin.module,
        "numbers": [[x.number for x in side] for side in (origin.left, origin.right)],
        "shapes": [[list(x.shape) for x in side[-1].inputs] if side else [] for side in (origin.left, origin.right)],
        "differing": origin.differing,
        "of": origin.of,
        "cause": {"kind": cause.kind, "text": cause.text, "verified": cause.verified, "fixes": list(cause.fixes)},
    }


def _place(origin: DifferenceOrigin) -> str:
    """Return "module layers.0.mlp, aten.mm [16,64]·[64,64]: "; a cause of several operations names them itself."""
    module = f"module {origin.module}" if origin.module else ""
    is_named = (len(origin.left), len(origin.right)) != (1, 1) and origin.cause.kind != "unknown"
    operation = "" if is_named else f"{origin.operation} {operand_shapes(origin)}".strip()
    return ", ".join(filter(None, (module, operation))) + ": " * bool(module or operation)


def differs_in_dtype(origin: DifferenceOrigin) -> bool:
    """Return whether the results have equal values in different dtypes."""
    return origin.differing == 0 and origin.values[0].dtype != origin.values[1].dtype


def operand_shapes(origin: DifferenceOrigin) -> str:
    """Return the shapes of operands of the last operation of both sides, once where they are the same."""
    sides = [_operands(side) for side in (origin.left, origin.right)]
    return sides[0] if sides[0] == sides[1] else " against ".join(filter(None, sides))


def _operands(side: Sequence[TracedOperation]) -> str:
    """Return "[16,4096]·[4096,11008]" of a product, and up to three shapes of another operation."""
    if not side:
        return ""
    shapes = [f"[{','.join(map(str, x.shape))}]" for x in side[-1].inputs if x.dtype]
    if side[-1].packet in ("aten.addmm", "aten.baddbmm"):
        shapes = shapes[1:]
    return ("·" if "mm" in side[-1].packet else " ").join(shapes[:3])

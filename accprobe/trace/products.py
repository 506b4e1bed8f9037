"""Why matrix products of equal operands differ: a bias that is added elsewhere, a split by hand, or the plan of each side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from accprobe.callables.arrays import TorchArrays
from accprobe.callables.spec import Spec
from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.blackbox import Call, one_nan
from accprobe.isa.formats import FORMATS
from accprobe.model.product import ScaleOf
from accprobe.trace.compare import Cause, Kind
from accprobe.trace.plans import PLANS, RecordedProduct, RegionPlans
from accprobe.trace.replay import COPIES, POSITIONS, RecordedCall, count_differing, same_layout
from accprobe.trace.sides import OriginSide, are_parts_equal, kernel_names, pair_sides

SCALED = "aten._scaled_mm"

FINDINGS_OF_KIND: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("split_k", ("split_k",)),
    ("promotion", ("promote_every", "promotion_format", "promotion_rounding")),
    ("partials", ("partial_format", "reduction_order", "slice_sizes")),
    (
        "order",
        ("order", "products_per_sum", "instruction", "effective_bits", "alignment_bits", "result_bits", "sum_rounding"),
    ),
)
"""Findings of a plan by the kind of cause that a difference in them is, the most important first."""


def find_separate_bias(left: OriginSide, right: OriginSide) -> Cause | None:
    """Name a product that adds a bias itself, against a product and an addition; verified if equal without it, and replayed."""
    for name, fused, other, apart in pair_sides(left, right):
        if fused.packets not in (["aten.addmm"], ["aten.baddbmm"]) or apart.packets not in (
            ["aten.mm", "aten.add"],
            ["aten.bmm", "aten.add"],
        ):
            continue
        text = (
            f"{fused.packets[0]} (one operation) against {apart.packets[0]} then aten.add: the bias is added inside the sum on "
            f"side {name}, after the product is rounded on side {other}"
        )
        if not fused.calls or not apart.calls:
            return Cause("fusion", text)
        products = [without_bias(each.calls[0], POSITIONS[each.packets[0]]) for each in (fused, apart)]
        if are_parts_equal(products[0], products[1], fused.run.mapped, apart.run.mapped):
            return Cause("fusion", f"{text}; without the bias both are equal", fused.replays and apart.replays)
        return Cause("fusion", f"{text}; the products differ without the bias too")
    return None


def find_split_by_hand(left: OriginSide, right: OriginSide) -> Cause | None:
    """Name one product against the added results of several products of slices of K."""
    for name, whole, other, sliced in pair_sides(left, right):
        depths = [_depths(side) for side in (whole, sliced)]
        others = {packet for packet in sliced.packets if packet not in POSITIONS and packet not in COPIES}
        if len(depths[0]) == 1 < len(depths[1]) and sum(depths[1]) == depths[0][0] and others <= {"aten.add", "aten.add_"}:
            slices = " + ".join(map(str, depths[1]))
            text = f"side {other} is split-K {len(depths[1])}: it adds {len(depths[1])} GEMMs of K = {slices}"
            text += f"; side {name} computes one product of K = {depths[0][0]}"
            return Cause("split_k", text, whole.replays and sliced.replays)
    return None


def _depths(side: OriginSide) -> list[int]:
    """Return K of each product of a side."""
    return [x.inputs[POSITIONS[x.packet][0]].shape[-1] for x in side.operations if x.packet in POSITIONS and len(x.inputs) > 1]


def cause_of_products(left: OriginSide, right: OriginSide) -> Cause | None:
    """Name the difference of two products and torch's flags that differ; None if a side is not one product."""
    found = _inferred_cause(left, right)
    if found is not None:
        return replace(found, text=found.text + _flags(left, right))
    if not all(len(side.operations) == 1 and side.packets[0] in POSITIONS for side in (left, right)):
        return None
    other = f"its products are added in another order or precision{kernel_names(left, right)}"
    return Cause("unknown", f"{other}{_flags(left, right)}")


def _flags(left: OriginSide, right: OriginSide) -> str:
    """Return flags of torch that differ, as the end of a sentence."""
    first, second = (side.operations[-1].flags if side.operations else {} for side in (left, right))
    differing = [f"{name} {x} against {second[name]}" for name, x in first.items() if x != second.get(name, x)]
    return f" ({', '.join(differing)})" if differing else ""


def _inferred_cause(left: OriginSide, right: OriginSide) -> Cause | None:
    """Return in which finding the plans of two products differ; None where a side is not one product with its operands."""
    products = [_recorded_product(x) for x in (left, right)]
    first, second = products
    if first is None or second is None:
        return None
    sides = (left, right)
    if all(POSITIONS[side.packets[0]][0] for side in sides):
        one, other = (without_bias(side.calls[0], POSITIONS[side.packets[0]]) for side in sides)
        if are_parts_equal(one, other, left.run.mapped, right.run.mapped):
            return Cause("order", "without the bias both products are equal: it is added at another place of the sum")
    plans = [PLANS.of(_plan_key(x), product) for x, product in ((left, first), (right, second))]
    found = cause_of_plans((plans[0][0], plans[1][0]), (plans[0][1], plans[1][1]), first.words.d.size)
    return replace(found, text=f"{found.text}, of the products without the bias") if POSITIONS[left.packets[0]][0] else found


def cause_of_plans(plans: tuple[RegionPlans | None, RegionPlans | None], wrong: tuple[int, int], words: int) -> Cause:
    """Return in which finding two plans differ. wrong: how many of the recorded words each does not predict."""
    first, second = plans
    lacking = " and ".join(name for name, plan in zip("AB", plans, strict=True) if plan is None or not plan.is_ordered)
    no_order = Cause("unknown", f"not explained: accprobe infers no order of the additions of side {lacking}")
    if first is None or second is None:
        return no_order
    if any(wrong):
        counts = [f"{words - n:,} of {words:,} words of side {name}" for name, n in zip("AB", wrong, strict=True) if n]
        return Cause("unknown", f"not explained: models of accprobe predict only {' and '.join(counts)}")
    kind, text = _difference(first, second)
    if lacking and kind not in ("cast", "split_k"):
        return no_order
    return Cause(kind, text, verified=kind != "unknown" and not lacking)


def _difference(first: RegionPlans, second: RegionPlans) -> tuple[Kind, str]:
    """Return the most important difference of two plans, and its kind."""
    formats = [str(plan.regions[0][2].a) for plan in (first, second)]
    if formats[0] != formats[1]:
        return "cast", " against ".join(f"{x.upper() if x == 'tf32' else x} operands" for x in formats)
    one, other = first.findings, second.findings
    for kind, names in FINDINGS_OF_KIND:
        differing = [name for name in names if name in one and name in other and one[name] != other[name]]
        if kind in ("split_k", "promotion") and differing:
            return kind, f"{_in_words(one, kind)} against {_in_words(other, kind)}"
        if differing:
            return kind, ", ".join(f"{name.replace('_', ' ')} {one[name]} against {other[name]}" for name in differing)
    if [x[2] for x in first.regions] != [x[2] for x in second.regions]:
        return "order", "the products are added in another order"
    return "unknown", "not explained: both sides have the same plan"


def _in_words(findings: Mapping[str, Any], kind: Kind) -> str:
    """Return the split or the promotion of a plan: "split-K 4 (f32 partial sums)"."""
    if kind == "promotion":
        every = findings.get("promote_every")
        return "no promotion" if every is None else f"promotion every {every} k"
    split = findings.get("split_k") or 1
    return "no split" if split == 1 else f"split-K {split} ({findings.get('partial_format', 'f32')} partial sums)"


def _plan_key(side: OriginSide) -> tuple[Any, ...]:
    """Return everything that the plan of a product can depend on."""
    x = side.operations[0]
    shapes = tuple((y.shape, y.strides, y.dtype) for y in x.inputs)
    return tuple(side.run.trace.versions.items()), x.name, x.arguments, shapes, tuple(sorted(x.flags.items()))


def _recorded_product(side: OriginSide) -> RecordedProduct | None:
    """Return the product that a side computes, None where it is not one that can be modelled.

    A batched product is represented by its first matrix. A product of a folder is only probed where it gives its recorded
    words again: another machine may have computed it. Others with scales or a bias are not modelled.
    """
    if len(side.calls) != 1 or side.packets[0] not in POSITIONS:
        return None
    call, places, is_scaled = side.calls[0], POSITIONS[side.packets[0]], side.packets[0] == SCALED
    repeats = not side.run.from_folder or call.repeats(1)
    if any(call.keywords.get(name, 1) != 1 for name in ("alpha", "beta")) or ((places[0] or is_scaled) and not repeats):
        return None
    tensors, made = [x.tensor for x in call.operands()], call.results[0].tensor
    operands, scales, batched = [tensors[i] for i in places], tensors[2:] if is_scaled else [], made.dim() == 3
    a, b, d = (x[0] if batched else x for x in (*operands, made))
    arrays = TorchArrays("cpu")
    formats = [found.fmt for x in (a, b, d) if (found := arrays.received(x)) is not None and found.fmt is not None]
    scale = _scale_of(scales, a, b) if is_scaled else None
    if not d.numel() or not a.shape[-1] or len(formats) != 3 or (is_scaled and scale is None):
        return None

    def multiply(p: Any, q: Any, *factors: Any) -> Any:
        replaced = {i: _like(x, y, batched) for i, x, y in zip(places, operands, (p, q), strict=True)}
        replaced |= {i: x.reshape(y.shape) for i, (x, y) in enumerate(zip(factors, scales, strict=True), 2)}
        result = without_bias(call, places, replaced)
        return result[0] if batched else result

    spec = Spec(d.shape[0], d.shape[1], a.shape[1], formats[0], formats[1], formats[2], scale)
    plain = multiply(a, b) if places[0] else d
    of_a, of_b, of_d = (arrays.patterns(x.cpu(), fmt) for x, fmt in zip((a, b.t(), plain), formats, strict=True))
    is_tf32 = formats[0] is FORMATS["f32"] and call.flags.get("allow_tf32") is True and "gpu" in side.run.trace.versions
    factors = [x.cpu().numpy().reshape(shape) for x, shape in zip(scales, spec.scale_shapes if is_scaled else (), strict=True)]
    scaling = ScaleWords(*factors) if is_scaled else None
    words = Call(of_a, of_b, scaling, one_nan(of_d, spec.out))
    return RecordedProduct(spec, words, str(d.device), multiply if repeats else None, is_tf32)


def _scale_of(scales: Sequence[Any], a: Any, b: Any) -> ScaleOf | None:
    """Return what has a scale: each tensor, or each row of A and column of B. None for other scales, or a bias among them."""
    if len(scales) == 2 and all(x.dtype.itemsize == 4 for x in scales):
        if all(x.numel() == 1 for x in scales):
            return "tensor"
        if [tuple(x.shape) for x in scales] == [(len(a), 1), (1, b.shape[1])]:
            return "row"
    return None


def without_bias(call: RecordedCall, places: tuple[int, int], replaced: Mapping[int, Any] | None = None) -> Any:
    """Return the result of a product without its bias. replaced: by position, other tensors for operands."""
    import torch

    # -0 is the bias that changes no sum, not even a sum of -0.
    no_bias = {0: torch.full_like(call.operands()[0].tensor, -0.0)} if places[0] else {}
    return call({**(replaced or {}), **no_bias})[0]


def _like(pattern: Any, matrix: Any, batched: bool) -> Any:
    """Return a matrix with the shape and the strides of a recorded operand; in a batch, as its first one."""
    laid = same_layout(pattern)
    (laid[0] if batched else laid).copy_(matrix)
    return laid


def find_fixes(left: OriginSide, right: OriginSide) -> Iterator[str]:
    """Yield changes that make both sides equal, each of them tried with the recorded operands."""
    import torch

    if len(left.calls) != 1 or len(right.calls) != 1:
        return

    def agree(**flags: bool) -> bool:
        calls = (replace(side.calls[0], flags={**side.calls[0].flags, **flags}) for side in (left, right))
        first, second = (call()[0] for call in calls)
        return are_parts_equal(first, second, left.run.mapped, right.run.mapped)

    used = [side.calls[0].flags for side in (left, right)]
    for name in ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction", "allow_tf32"):
        if any(flags.get(name) for flags in used) and agree(**{name: False}):
            yield f"torch.backends.cuda.matmul.{name} = False"
    if rows := _padded_rows(left, right):
        yield f"pad the batch to {rows} rows"
    if not torch.are_deterministic_algorithms_enabled() and not all(side.calls[0].repeats() for side in (left, right)):
        torch.use_deterministic_algorithms(True)
        try:
            if agree() and agree():
                yield "torch.use_deterministic_algorithms(True)"
        except RuntimeError:  # the operation has no deterministic algorithm
            pass
        finally:
            torch.use_deterministic_algorithms(False)


def _padded_rows(left: OriginSide, right: OriginSide) -> int:
    """Return the rows of the larger product if the smaller, with its rows repeated up to them, gives its bits; else 0."""
    import torch

    def repeated(lines: Any) -> Any:
        return torch.cat([lines] * -(-rows // len(lines)))[:rows]

    small, large = sorted((left, right), key=lambda side: side.calls[0].results[0].shape[0])
    wanted = large.calls[0].results[0].tensor
    if small.packets[0] not in ("aten.mm", "aten.addmm", SCALED):
        return 0
    operands, place, rows = small.calls[0].operands(), POSITIONS[small.packets[0]][0], len(wanted)
    a = operands[place].tensor
    if rows == len(a):
        return 0
    padded = {place: repeated(a)}
    by_row = {SCALED: 2, "aten.addmm": 0}.get(small.packets[0], place)  # scales of rows, or a bias of shape [M, N]
    if (other := operands[by_row].tensor).dim() == 2 and len(other) == len(a):
        padded[by_row] = repeated(other)
    got = small.calls[0](padded)[0][: len(a)]
    return 0 if count_differing(got, wanted[: len(a)]) else rows

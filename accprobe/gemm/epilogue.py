"""Infer how an epilogue is computed: where C is added, how alpha and beta are applied, and where results are rounded.

The plan of the product predicts its sums. Each way to go on from them is compared with results of random operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from math import frexp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.adapter import CallableAdapter
from accprobe.callables.epilogues import Epilogue
from accprobe.callables.operands import draw_operands
from accprobe.errors import AccprobeError
from accprobe.evaluate.error_free import rounded_to_odd
from accprobe.evaluate.product import product
from accprobe.gemm.blackbox import Call, one_nan
from accprobe.gemm.findings import ProductOutcome
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import ProductModel
from accprobe.operands.distributions import random_lines
from accprobe.records.findings import Finding
from accprobe.records.products import ProductRow

SUM_FORMAT = FORMATS["f32"]
KINDS = ("normal", "wide", "same sign", "cancelling")
# Rows and columns of a region that are predicted in a call, and elements that are compared in all.
PREDICTED_LINES, ELEMENTS = 64, 1 << 15

SumValues = NDArray[Any]  # of float32


class EpilogueInputs(NamedTuple):
    """model: of the sums in f32. call: operands of a part of D; sums, c: its sums and addend in f32. out: the format of D."""

    model: ProductModel
    call: Call
    sums: SumValues
    c: SumValues
    out: Format


# A way to compute an epilogue: its values in f32, which are then rounded to D.
EpilogueWay = Callable[[EpilogueInputs], SumValues]


def infer_epilogue(adapter: CallableAdapter, outcome: ProductOutcome, seed: int) -> None:
    """Add the finding `epilogue` to an outcome with an explained product or, in `stopped`, the reason why there is none."""
    epilogue, rng = adapter.epilogue, np.random.default_rng((seed, 0xE9))
    if epilogue is None or not outcome.explained:
        return
    if outcome.spec.out.name not in ("f32", "f16", "bf16"):
        outcome.stopped = f"accprobe has no model of epilogues with {outcome.spec.out} results"
        return
    activated = "" if epilogue.activation is None else f"; {epilogue.activation.name} of the rounded result"
    ways = {f"{name}{activated}": way for name, way in _linear_ways(epilogue.alpha, epilogue.beta, outcome.spec.out)}
    wrong, compared = dict.fromkeys(ways, 0), 0
    for kind in cycle(KINDS):
        call, addend = _probe(adapter, epilogue, outcome, kind, rng)
        for found in outcome.found:
            rows, columns = (rng.permutation(lines)[:PREDICTED_LINES] for lines in (found.region.rows, found.region.columns))
            part, out = call.part(rows, columns), outcome.spec.out
            compared += part.d.size
            assert found.plan is not None
            inputs = _inputs(found.plan, part, addend[np.ix_(rows, columns)], out)
            for name, way in ways.items():
                d = _results(way, inputs) if epilogue.activation is None else activation_words(epilogue, _results(way, inputs))
                wrong[name] += int(np.count_nonzero(one_nan(d, out) != part.d))
        if compared >= ELEMENTS:
            break
    kept = [name for name, count in wrong.items() if not count]
    if kept:
        others = f", {len(wrong) - len(kept)} of {len(wrong) - 1} other ways contradicted" if len(wrong) > 1 else ""
        note = f"{compared:,} results, 0 mismatches{others}"
        candidates = tuple(kept) if len(kept) > 1 else ()
        outcome.epilogue = Finding(kept[0], "undetermined" if candidates else "exact", candidates, note)
        return
    nearest = min(wrong, key=lambda name: wrong[name])
    outcome.stopped = (
        f"the epilogue is not explained: {wrong[nearest]:,} of {compared:,} results differ from the nearest of {len(wrong)}"
        f" ways, '{nearest}'"
    )


def _probe(
    adapter: CallableAdapter, epilogue: Epilogue, outcome: ProductOutcome, kind: str, rng: np.random.Generator
) -> tuple[Call, Bits]:
    """Probe random operands and a random C, or one that cancels the product, so that D shows the last bits of the sum."""
    spec, out = outcome.spec, outcome.spec.out
    a, b, _ = draw_operands(spec, kind, rng)
    addend = random_lines(out, (spec.m, spec.n), "wide", rng)
    is_bias = len(epilogue.shape) == 1
    if rng.integers(2):
        epilogue.active = False
        if is_bias:  # rows that differ in the last bits of A alone, so that one bias cancels the sums of all
            a = a[rng.integers(spec.m)] ^ rng.integers(0, 2, a.shape, a.dtype)
        factor = -epilogue.alpha / (epilogue.beta or 1)
        addend = out.patterns(factor * out.values(adapter.product(a, b)))
    if is_bias:
        addend[:] = addend[rng.integers(spec.m)]
    epilogue.switch_on(addend)
    return Call(a, b, None, one_nan(adapter.product(a, b), out)), addend


def _inputs(plan: ProductModel, call: Call, c: Bits, out: Format) -> EpilogueInputs:
    model = replace(plan, result=SUM_FORMAT)
    return EpilogueInputs(model, call, _sums(model, call.a, call.b), _singles(out, c), out)


def _sums(model: ProductModel, a: Bits, b: Bits, start: SumValues | None = None) -> SumValues:
    """Return the sums in f32 that begin with these first terms (None: 0)."""
    return product(model, a, b, None if start is None else np.ascontiguousarray(start).view(np.uint32)).view(np.float32)


def _results(way: EpilogueWay, inputs: EpilogueInputs) -> Bits:
    with np.errstate(all="ignore"):
        return inputs.out.patterns(way(inputs))


def _singles(fmt: Format, words: Bits) -> SumValues:
    return fmt.values(words).astype(np.float32)


def _fma(factor: float, x: SumValues, y: SumValues) -> SumValues:
    exact = np.multiply(x, np.float32(factor), dtype=np.float64)
    return rounded_to_odd(exact, y.astype(np.float64)).astype(np.float32)


def _linear_ways(alpha: float, beta: float, out: Format) -> Iterator[tuple[str, EpilogueWay]]:
    """Yield the ways without an activation, once if two are the same: a product with zero or a power of two is exact."""
    by_alpha, by_beta = np.float32(alpha), np.float32(beta)
    once = f", rounded once to {out}" if out is not SUM_FORMAT else ""
    first, second = "sum" if alpha == 1 else "alpha · sum", "C" if beta == 1 else "beta · C"
    yield f"{first} + {second} in f32{once}", lambda x: by_alpha * x.sums + by_beta * x.c
    if not _is_exact(alpha):
        yield f"fma(alpha, sum, {second}) in f32{once}", lambda x: _fma(alpha, x.sums, by_beta * x.c)
    if not _is_exact(beta):
        yield f"fma(beta, C, {first}) in f32{once}", lambda x: _fma(beta, x.c, by_alpha * x.sums)
    if out is not SUM_FORMAT and beta:
        rounded = f"{first} rounded to {out}, then {second} added and rounded"
        yield rounded, lambda x: _singles(out, out.patterns(by_alpha * x.sums)) + by_beta * x.c
    if alpha == 1 and beta:
        yield f"{second} as the first term of the sum{once}", lambda x: _sums(x.model, x.call.a, x.call.b, by_beta * x.c)


def _is_exact(factor: float) -> bool:
    return abs(frexp(factor)[0]) in (0, 0.5)


def recorded_way(row: ProductRow, has_addend: bool) -> EpilogueWay | None:
    """Return the way in which a recorded product adds C; None for a product without an epilogue.

    Raises AccprobeError for an activation, for a C that is missing or not taken, and for a C where the way is not known.
    """
    found = row.findings.get("epilogue")
    value = "" if found is None else str(found.value)
    inferred = value.partition("; ")[2].removesuffix(" of the rounded result")
    if activation := row.options.get("activation") or inferred:
        without = "which predict does not compute; use a row without an activation"
        raise AccprobeError(f"{row.title}: this row applies {activation}, {without}")
    alpha, beta = (float(1.0 if (x := row.options.get(name)) is None else x) for name in ("alpha", "beta"))
    has_epilogue = bool(value) or (alpha, beta) != (1, 1)
    if not has_addend:
        if has_epilogue:
            raise AccprobeError(f"{row.title}: give C, because the row was probed with one")
        return None
    if not has_epilogue:
        raise AccprobeError(f"{row.title} takes no C: it has no epilogue")
    way = dict(_linear_ways(alpha, beta, FORMATS[row.out])).get(value)
    if way is None or (found is not None and found.bound != "exact"):
        raise AccprobeError(f"{row.title}: how it adds C is not known, so its results cannot be predicted")
    return way


def with_addend(way: EpilogueWay, model: ProductModel, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return D of a recorded product for a [M, K], b [N, K] and C [M, N]."""
    return _results(way, _inputs(model, Call(a, b, None, c), c, model.result))


def activation_words(epilogue: Epilogue, words: Bits) -> Bits:
    """Return the results of the activation, as torch computes it in the format of D."""
    assert epilogue.activation is not None
    fmt = epilogue.spec.out
    return epilogue.library.patterns(epilogue.activation.function(epilogue.library.operand("value", words, fmt)), fmt)

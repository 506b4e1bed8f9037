"""Name the functions that the two sides of an origin compute, from the words of one operand and of the results.

No operation is called: an operation, a chain of them and a kernel that was not recorded are explained in one way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from accprobe.callables.arrays import library_of
from accprobe.function.candidates import Hypothesis, fit_rounding, recognise_function
from accprobe.function.compositions import Library, compositions
from accprobe.function.reference import FUNCTIONS, errors_in_ulp, exact_values
from accprobe.isa.formats import Bits, Format, ordered
from accprobe.trace.compare import Cause
from accprobe.trace.sides import OriginSide, compared_parts

MOST_WORDS, TOGETHER, SAMPLE = 1 << 24, 1 << 20, 1 << 13
"""Numbers of words of an operand: to compare in all, to compare at a time, and to recognise a function from."""


@dataclass(frozen=True)
class SideFunction:
    """name: the reference function that the results are near to. computes: a candidate that gives every word that was compared,
    "" if none. largest_error: of the words compared, in ulp. compared, total: words.
    """

    name: str
    computes: str
    largest_error: float
    compared: int
    total: int

    def __str__(self) -> str:
        found = self.computes or f"{self.name} with errors of up to {self.largest_error:.3g} ulp"
        return found if self.compared == self.total else f"{found}, in the {self.compared:,} of {self.total:,} words compared"


def with_functions(cause: Cause, left: OriginSide, right: OriginSide) -> Cause:
    """Return the cause with the functions of both sides, where the results are ones of a single operand, or their distance.

    Functions that give all words of their side are a verified cause, and replace one that is not. Only some words
    of larger results are compared, which verifies no cause.
    """
    if cause.kind not in ("argument", "function", "fusion", "unknown") or left.value is None or right.value is None:
        return cause
    x, y = compared_parts(left, right)
    if x.shape != y.shape:
        return cause
    a, b = _operand(left), _operand(right)  # if a side's operand is not at hand, it has the other side's
    operands = (b if a is None else a, a if b is None else b) if x.dtype == y.dtype else (None, None)
    one, other = map(_function, operands, (left, right))
    if one is None or other is None:
        return replace(cause, text=f"{cause.text}; {_distance(x, y)}") if cause.kind == "function" else cause
    text = f"{_names(one, other)}; {_distance(x, y, one.name == other.name)}"
    if one.computes and other.computes and (cause.kind in ("function", "unknown") or not cause.verified):
        return Cause("function", text, verified=all(each.compared == each.total for each in (one, other)))
    return cause if cause.kind == "unknown" else replace(cause, text=f"{cause.text}; {text}")


def _names(one: SideFunction, other: SideFunction) -> str:
    """Return "silu: torch's silu in f32 against silu, rounded once (RNE)"."""
    for name, side, missing in (("A", one, other), ("B", other, one)):
        if missing.name == "identity" != side.name:
            return f"only side {name} computes {side.name} ({side})"
    start = f"{one.name}: " if one.name == other.name else f"{one.name} against {other.name}: "
    return f"{start}{one} against {other}"


def _operand(side: OriginSide) -> Any:
    """Return the only tensor of several elements that a side reads, if it has the shape of the result; else None."""
    made: set[int] = set()
    found: dict[int, Any] = {}
    for call in side.calls:
        found |= {x.value: x.tensor for x in call.operands() if x.value not in made and x.tensor.numel() > 1}
        made |= {x.value for x in call.results}
    assert side.value is not None
    tensors = list(found.values())
    return tensors[0] if len(tensors) == 1 and tensors[0].shape == side.value.tensor.shape else None


def _function(x: Any, side: OriginSide) -> SideFunction | None:
    """Return the function from words of x to the result of a side."""
    assert side.value is not None
    y = side.value.tensor
    if x is None or x.shape != y.shape:
        return None
    library = library_of(y)
    formats = [received.fmt if (received := library.received(each)) else None for each in (x, y)]
    operand, result = formats
    if operand is None or result is None or not (operand.is_float and result.is_float) or operand.storage_bits > 32:
        return None
    every = [library.patterns(each, fmt).reshape(-1) for each, fmt in ((x, operand), (y, result))]
    words, results = (each[:: -(-len(each) // MOST_WORDS)] for each in every)
    sample = slice(None, None, -(-len(words) // SAMPLE))
    name = recognise_function(words[sample], results[sample], operand, result)
    if not name:
        return None
    parts = [slice(first, first + TOGETHER) for first in range(0, len(words), TOGETHER)]
    candidates = _candidates(name, words[sample], results[sample], operand, result, library)
    explains = (x.in_words for x in candidates if not any(x.count_wrong(words[some], results[some], result) for some in parts))
    computes = next(explains, "")
    exact = exact_values(name, operand)
    errors = 0.0 if computes else max(np.nanmax(errors_in_ulp(results[some], exact(words[some]), result)) for some in parts)
    return SideFunction(name, computes, float(errors), len(words), len(every[0]))


def _candidates(name: str, words: Bits, results: Bits, operand: Format, result: Format, library: Any) -> Iterator[Hypothesis]:
    """Yield one rounding, functions of the device, and torch's: in f32, and each step rounded to the operand's format."""
    yield fit_rounding(name, words, results, operand, result)
    yield from compositions(name, operand, result, library.device)
    for steps in ("f32", operand.name)[: 1 if operand.name == "f32" else 2]:
        for text, way in _of_torch(steps).list_variants(name):

            def given(operands: Bits, way: Any = way, wide: bool = steps == "f32") -> Bits:
                x = library.operand("x", np.ascontiguousarray(operands), operand)
                found: Bits = library.patterns(way(x.float() if wide else x).to(library.type(result)), result)
                return found

            yield Hypothesis(text, given, any_nan=True)


def _of_torch(steps: str) -> Library:
    """Return torch's functions. steps: the format to which each rounds."""
    import torch

    of_nn = torch.nn.functional
    functions = {name: getattr(torch, name) for name in FUNCTIONS if hasattr(torch, name)}
    functions |= {name: getattr(of_nn, name) for name in ("silu", "gelu", "softplus")}
    functions["gelu_tanh"] = partial(of_nn.gelu, approximate="tanh")
    names = {name: name for name in functions} | {"gelu_tanh": "gelu of 'tanh'"}
    return Library(names, functions, f"torch's {{}} in {steps}")


def _distance(x: Any, y: Any, in_ulp: bool = False) -> str:
    """Return the largest difference of two results. in_ulp: counted in representable numbers of their format."""
    if not in_ulp:
        import torch

        wide = torch.complex128 if x.is_complex() or y.is_complex() else torch.float64
        return f"results differ by up to {(x.to(wide) - y.to(wide)).abs().max().item():.1e}"
    library = library_of(x)
    received = library.received(x)
    assert received is not None
    assert received.fmt is not None
    one, other = (ordered(received.fmt, library.patterns(each, received.fmt)) for each in (x, y))
    return f"results differ by up to {np.abs(one - other).max():,} ulp"

"""The steps around a sum: the terms from x, the scalar functions, and the result from the sum. Each step rounds to float32.

The sum is S, its terms are products of two float32 numbers, so that a plan says whether they are rounded before they are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.evaluate.error_free import rounded_to_odd
from accprobe.evaluate.product import product
from accprobe.function.gpu_candidates import recorded_unit
from accprobe.function.records import model_of
from accprobe.gemm.callables.arrays import ArrayLibrary
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import ProductModel, multiply_add

SingleValues = NDArray[Any]  # of float32
SingleFunction = Callable[[SingleValues], SingleValues]

SINGLE = FORMATS["f32"]
# A step that rounds each product to float32 before it is added.
ROUNDED_FIRST = multiply_add(product_bits=SINGLE.mantissa_bits)
# The start of the name of a function that only its library computes.
LIBRARY = "torch:"


def fused(a: Any, b: Any, c: Any) -> NDArray[np.float64]:
    """Return a · b + c of float32 numbers in 53 bits, which round to float32 as the exact value does."""
    exact = np.multiply(a, b, dtype=np.float64)
    return rounded_to_odd(*np.broadcast_arrays(exact, np.asarray(c, np.float64)))


def _cuda_expf(unit: SingleFunction) -> SingleFunction:
    """Return expf of CUDA without fast math, read in SASS of sm_90a: 2^n · ex2.approx(x · log2 e - n)."""

    def function(x: SingleValues) -> SingleValues:
        scaled = np.clip(fused(x, np.float32(0.0057249800302088261), np.float32(0.5)), 0, 1).astype(np.float32)
        shifted = np.floor(np.multiply(scaled, 252, dtype=np.float64) + 12582913).astype(np.float32)
        n = (shifted - np.float32(12583039)).astype(np.float32)
        rest = fused(x, np.float32(1.4426950216293335), -n).astype(np.float32)
        rest = fused(x, np.float32(1.925963033500011e-08), rest).astype(np.float32)
        power: SingleValues = (shifted.view(np.uint32) << np.uint32(23)).view(np.float32)
        return power * unit(rest)

    return function


_SLEEF_EXP = (1.9852762e-4, 1.3930436e-3, 8.3333608e-3, 4.1666485e-2, 0.16666667, 0.5)


def _sleef_expf(x: SingleValues) -> SingleValues:
    """Return expf of SLEEF with an error of 1.0 ulp, with fused multiply-adds (src/libm/sleefsimdsp.c, xexpf)."""
    n = np.rint(x * np.float32(1.442695040888963407))
    rest = fused(n, np.float32(-0.693145751953125), x).astype(np.float32)
    rest = fused(n, np.float32(-1.428606765330187045e-06), rest).astype(np.float32)
    total = np.full_like(rest, np.float32(_SLEEF_EXP[0]))
    for coefficient in _SLEEF_EXP[1:]:
        total = fused(total, rest, np.float32(coefficient)).astype(np.float32)
    found = np.float32(1) + fused(rest * rest, total, rest).astype(np.float32)
    scaled = np.ldexp(found.astype(np.float64), np.clip(n, -2000, 2000).astype(np.int32)).astype(np.float32)
    return np.where(x < -104, np.float32(0), scaled)


def _unit(name: str) -> SingleFunction | None:
    """Return the model of a special function unit, None if it is not recorded."""
    record = recorded_unit(name)
    if record is None:
        return None
    model = model_of(record)
    return lambda x: model.words(np.ascontiguousarray(x).view(np.uint32)).view(np.float32)


def _of_units(function: str) -> Iterator[tuple[str, SingleFunction]]:
    if function == "exp" and (unit := _unit("ex2.approx.ftz.f32")):
        yield "expf of CUDA", _cuda_expf(unit)
    if function == "rsqrt":
        for name in ("rsqrt.approx.f32", "rsqrt.approx.ftz.f32"):
            if unit := _unit(name):
                yield name, unit


def _once(exact: Callable[[Any], Any]) -> SingleFunction:
    return lambda x: exact(x.astype(np.float64)).astype(np.float32)


ROUNDED_ONCE = "{} rounded once"
_ROUNDED: Mapping[str, tuple[tuple[str, SingleFunction], ...]] = {
    "rsqrt": (
        ("1 / sqrt, both rounded", lambda x: np.float32(1) / np.sqrt(x)),
        (ROUNDED_ONCE.format("rsqrt"), _once(lambda x: 1 / np.sqrt(x))),
    ),
    "exp": ((ROUNDED_ONCE.format("exp"), _once(np.exp)), ("expf of SLEEF", _sleef_expf)),
    "sqrt": ((ROUNDED_ONCE.format("sqrt"), np.sqrt),),
}


def functions_of(function: str, library: ArrayLibrary | None = None) -> Iterator[tuple[str, SingleFunction]]:
    """Yield ways to compute a scalar function in float32 by name; at last as the library computes it alone, if it is given."""
    yield from _ROUNDED[function]
    yield from _of_units(function)
    if library is not None:
        yield LIBRARY + function, _of_library(function, library)


def _of_library(function: str, library: ArrayLibrary) -> SingleFunction:
    import torch

    called = getattr(torch, function)

    def words(x: SingleValues) -> SingleValues:
        result = called(library.operand("function", np.atleast_2d(x).view(np.uint32), SINGLE))
        return library.patterns(result, SINGLE).view(np.float32).reshape(x.shape)

    return words


# Terms (a, b) [rows, K] of x, whose products are added; the maximum of a row is subtracted first in softmax.
TermsOf = Callable[[SingleValues, SingleFunction], tuple[SingleValues, SingleValues]]
# The result [rows, K] or [rows, 1] from S [rows, 1], x, the terms b, K, eps and the function.
Finish = Callable[[SingleValues, SingleValues, SingleValues, int, Any, SingleFunction], SingleValues]


# Changes random rows x [rows, K].
RowChange = Callable[[SingleValues, np.random.Generator], SingleValues]


def _squares(x: SingleValues, function: SingleFunction) -> tuple[SingleValues, SingleValues]:
    return x, x


def _exponentials(x: SingleValues, function: SingleFunction) -> tuple[SingleValues, SingleValues]:
    return np.ones_like(x), function(x - x.max(axis=1, keepdims=True))


def _one_element(x: SingleValues, rng: np.random.Generator) -> SingleValues:
    """Keep one element of each row: its square is the sum in any order."""
    found = np.zeros_like(x)
    rows = np.arange(len(x))
    places = rng.integers(0, x.shape[1], len(x))
    found[rows, places] = x[rows, places]
    return found


def _two_elements(x: SingleValues, rng: np.random.Generator) -> SingleValues:
    """Keep a zero and a negative number in each row; the sum of two terms does not depend on the order."""
    found = np.full_like(x, -np.inf)
    rows = np.arange(len(x))
    first = rng.integers(0, x.shape[1], len(x))
    other = (first + rng.integers(1, max(2, x.shape[1]), len(x))) % x.shape[1]
    found[rows, other] = -8 * abs(x[rows, other])
    found[rows, first] = 0
    return found


def _unit_mean_square(x: SingleValues, rng: np.random.Generator) -> SingleValues:
    root: SingleValues = np.sqrt(np.mean(x * x, axis=1, keepdims=True))
    return x / root


@dataclass(frozen=True)
class Composite:
    """A reduction with steps around its sum.

    call: of torch, x [rows, K] and eps to the result. function: the scalar function whose variants are tried. squares: whether
    terms are products, which may be fused. isolated: changes random x to rows whose sum is the same in any order.
    finishes: by text. eps: its default, None if it has none. sharpened, sharp_eps: rows and an eps with which a result
    shows the last bits of the sum.
    """

    call: Callable[[Any, Any], Any]
    function: str
    squares: bool
    terms: TermsOf
    isolated: RowChange
    finishes: Mapping[str, Finish]
    eps: float | None = None
    sharpened: RowChange | None = None
    sharp_eps: float | None = None


def _rms_norm(x: Any, eps: Any) -> Any:
    import torch

    return torch.rms_norm(x, (x.shape[-1],), None, eps)


def _softmax(x: Any, eps: Any) -> Any:
    import torch

    return torch.softmax(x, -1)


def _norm(x: Any, eps: Any) -> Any:
    import torch

    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)


_NAMED: Mapping[str, Composite] = {
    "torch:rms_norm": Composite(
        _rms_norm,
        "rsqrt",
        True,
        _squares,
        _one_element,
        {
            "x · rsqrt(S / K + eps)": lambda s, x, b, k, eps, f: x * f(s / np.float32(k) + eps),
            "x · rsqrt(S · (1 / K) + eps)": lambda s, x, b, k, eps, f: x * f(s * (np.float32(1) / np.float32(k)) + eps),
            "x · rsqrt(fma(S, 1 / K, eps))": lambda s, x, b, k, eps, f: (
                x * f(fused(s, np.float32(1) / np.float32(k), eps).astype(np.float32))
            ),
        },
        1e-6,
        _unit_mean_square,
        2.0**-8 - 1,  # S / K is near 1, and the difference keeps its last bits
    ),
    "torch:softmax": Composite(
        _softmax,
        "exp",
        False,
        _exponentials,
        _two_elements,
        {"e / S": lambda s, x, b, k, eps, f: b / s, "e · (1 / S)": lambda s, x, b, k, eps, f: b * (np.float32(1) / s)},
    ),
    "torch:norm": Composite(_norm, "sqrt", True, _squares, _one_element, {"sqrt(S)": lambda s, x, b, k, eps, f: f(s)}),
}

_OTHER_NAMES = {
    "torch:nn.functional.rms_norm": "torch:rms_norm",
    "torch:nn.functional.softmax": "torch:softmax",
    "torch:linalg.vector_norm": "torch:norm",
}
COMPOSITES: Mapping[str, Composite] = {**_NAMED, **{name: _NAMED[same] for name, same in _OTHER_NAMES.items()}}


@dataclass(frozen=True)
class Steps:
    """The chosen steps of a composite. function, finish: names of `functions_of` and of `Composite.finishes`."""

    composite: Composite
    function: str
    compute: SingleFunction
    finish: str
    eps: float | None

    def __str__(self) -> str:
        return f"{self.finish} with {self.function}"

    def terms(self, x: SingleValues) -> tuple[SingleValues, SingleValues]:
        with np.errstate(all="ignore"):
            return self.composite.terms(x, self.compute)

    def results(self, sums: SingleValues, x: SingleValues, b: SingleValues, out: Format) -> Bits:
        """Return the result words [rows, K] or [rows, 1] from sums [rows], x and the terms b."""
        with np.errstate(all="ignore"):
            eps = None if self.eps is None else np.float32(self.eps)
            values = self.composite.finishes[self.finish](sums[:, None], x, b, x.shape[1], eps, self.compute)
            assert out.ml_dtype is not None
            return values.astype(out.ml_dtype).view(out.dtype)

    def sums(self, model: ProductModel, a: SingleValues, b: SingleValues) -> SingleValues:
        """Return the sums of terms, [rows], with a plan."""
        if model.step == ROUNDED_FIRST:  # sums of exact products are evaluated faster
            model, a, b = replace(model, step=multiply_add()), np.ones_like(a), a * b
        first, second = (np.ascontiguousarray(each).view(np.uint32)[:, None] for each in (a, b))
        found: SingleValues = product(model, first, second)[:, 0, 0].view(np.float32)
        return found

    def words(self, model: ProductModel, words: Bits, fmt: Format, out: Format) -> Bits:
        """Return the results for x, as bit patterns, with the sum of a plan."""
        x = fmt.values(words).astype(np.float32)
        a, b = self.terms(x)
        return self.results(self.sums(model, a, b), x, b, out)


def recorded_steps(name: str, function: str, finish: str, eps: float | None) -> Steps:
    """Return the steps that a report names. Raises AccprobeError if only a library computes a function."""
    for known, compute in functions_of(COMPOSITES[name].function):
        if known == function:
            return Steps(COMPOSITES[name], function, compute, finish, eps)
    raise AccprobeError(f"{name} uses {function} on the measured device, whose bits have no recorded model")

"""The steps around a sum: the terms of a row, the scalar functions, and the results. Each step rounds to float32.

S is the sum of the terms: squares, or exponentials of differences from the maximum. For layer_norm, var and std, S is M2, the
sum of squared differences from the mean, which Welford's method updates with each element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from accprobe.callables.arrays import is_tensor
from accprobe.composites.functions import SINGLE, SingleFunction, SingleValues, combinations, fma
from accprobe.composites.partial import WELFORD, Arrays, Rule, Schedule, Sum
from accprobe.errors import AccprobeError
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import ProductModel, multiply_add
from accprobe.model.tree import DotModel
from accprobe.records.products import ProductRow

# Accumulation steps of plans: float32, and float32 with squares that are rounded first.
IN_SINGLE, ROUNDED_FIRST = multiply_add(), multiply_add(fused=False)


class Arguments(NamedTuple):
    """Arguments of a call besides x: eps, the targets of a loss [rows], and its reduction over the rows."""

    eps: float | None = None
    targets: Any = None
    reduction: str | None = None


class RowValues(NamedTuple):
    """The inputs of the results. x and terms: [rows, columns]. k: number of elements of a row. eps: one number, or None.

    The others are [rows, 1]. s: S; mean: the number 0 for a sum; at_target: x at the targets of a loss, else the first x.
    """

    x: SingleValues
    terms: SingleValues
    largest: SingleValues
    at_target: SingleValues
    k: int
    s: Any = None
    mean: Any = np.float32(0)
    eps: Any = None

    def first(self, columns: int) -> RowValues:
        return self._replace(x=self.x[:, :columns], terms=self.terms[:, :columns])

    def repeated(self, times: int) -> RowValues:
        x, terms, largest, at_target = (np.tile(each, (times, 1)) for each in self[:4])
        return RowValues(x, terms, largest, at_target, self.k)


# The results [rows, K] or [rows, 1], with the last scalar function.
Finish = Callable[[RowValues, SingleFunction], SingleValues]
# Changes random rows x [rows, K].
RowChange = Callable[[SingleValues, np.random.Generator], SingleValues]


def _one_element(x: SingleValues, rng: np.random.Generator) -> SingleValues:
    """Keep one element of each row: its square is the sum in any order."""
    found = np.zeros_like(x)
    rows = np.arange(len(x))
    places = rng.integers(0, x.shape[1], len(x))
    found[rows, places] = x[rows, places]
    return found


def _two_elements(x: SingleValues, rng: np.random.Generator) -> SingleValues:
    """Put a zero and a negative number in each row, else -inf: only two terms are not 0, and their order has no effect."""
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


def _unit_variance(x: SingleValues, rng: np.random.Generator) -> SingleValues:
    found: SingleValues = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True) + np.float32(0.5)
    return found


# An eps with which S / K + eps of rows with S / K near 1 keeps the last bits of S.
SHARP_EPS = 2.0**-8 - 1


@dataclass(frozen=True)
class Composite:
    """A reduction with steps around its sum.

    call: torch's function of x [rows, K] and arguments. terms: kind of the sum's terms. functions: scalar functions, tried in
    every known variant. The first computes any exponentials, the last is for `finishes`, by text. isolated: changes random x to
    rows whose sum is the same in any order; None if there are none. eps: its default, None without one. sharpened: changes
    random x to rows whose results show the last bits of the sum with SHARP_EPS. reductions: over the rows, the default first.
    formats: of x and the results.
    """

    call: Callable[[Any, Arguments], Any]
    terms: Literal["squares", "exponentials", "moments"]
    functions: tuple[str, ...]
    finishes: Mapping[str, Finish]
    isolated: RowChange | None = None
    eps: float | None = None
    sharpened: RowChange | None = None
    reductions: tuple[str, ...] = ()
    formats: tuple[str, ...] = ("f32", "f16", "bf16")

    @property
    def takes_target(self) -> bool:
        return bool(self.reductions)


def _torch(name: str) -> Callable[..., Any]:
    """Return a function of torch, which is imported when it is called."""

    def call(*arguments: Any, **named: Any) -> Any:
        import torch

        found: Any = torch
        for part in name.split("."):
            found = getattr(found, part)
        return found(*arguments, **named)

    return call


def _cross_entropy(x: Any, given: Arguments) -> Any:
    losses = _torch("nn.functional.cross_entropy")(x, given.targets, reduction=given.reduction)
    return losses[:, None] if given.reduction == "none" else losses


# Ways to compute the mean of squares plus eps, and to scale the difference from the mean by its reciprocal root r.
_MEAN_SQUARES: Mapping[str, Callable[[RowValues], SingleValues]] = {
    "S / K + eps": lambda row: row.s / np.float32(row.k) + row.eps,
    "S · (1 / K) + eps": lambda row: row.s * (np.float32(1) / np.float32(row.k)) + row.eps,
    "fma(S, 1 / K, eps)": lambda row: fma(row.s, np.float32(1) / np.float32(row.k), row.eps),
}
_SCALINGS: Mapping[str, Callable[[RowValues, SingleValues], SingleValues]] = {
    "(x - mean) · r": lambda row, r: (row.x - row.mean) * r,
    "x · r + (-r · mean)": lambda row, r: row.x * r + -r * row.mean,
    "fma(x, r, -r · mean)": lambda row, r: fma(row.x, r, -r * row.mean),
}


def _scaled(how: str) -> Finish:
    return lambda row, f: row.x * f(_MEAN_SQUARES[how](row))


def _normalised(scaling: str, how: str) -> Finish:
    return lambda row, f: _SCALINGS[scaling](row, f(_MEAN_SQUARES[how](row)))


COMPOSITES: Mapping[str, Composite] = {
    "torch:rms_norm": Composite(
        lambda x, given: _torch("rms_norm")(x, (x.shape[-1],), None, given.eps),
        "squares",
        ("rsqrt",),
        {f"x · rsqrt({how})": _scaled(how) for how in _MEAN_SQUARES},
        _one_element,
        1e-6,
        _unit_mean_square,
    ),
    "torch:softmax": Composite(
        lambda x, given: _torch("softmax")(x, -1),
        "exponentials",
        ("exp",),
        {
            "e / S": lambda row, f: row.terms / row.s,
            "e · (1 / S)": lambda row, f: row.terms * (np.float32(1) / row.s),
        },
        _two_elements,
    ),
    "torch:norm": Composite(
        lambda x, given: _torch("linalg.vector_norm")(x, dim=-1, keepdim=True),
        "squares",
        ("sqrt",),
        {"sqrt(S)": lambda row, f: f(row.s)},
        _one_element,
    ),
    "torch:logsumexp": Composite(
        lambda x, given: _torch("logsumexp")(x, -1, keepdim=True),
        "exponentials",
        ("exp", "log"),
        {"log(S) + max": lambda row, f: f(row.s) + row.largest},
        _two_elements,
        formats=("f32",),
    ),
    "torch:cross_entropy": Composite(
        _cross_entropy,
        "exponentials",
        ("exp", "log"),
        {
            "-(x[target] - max - log(S))": lambda row, f: -(row.at_target - row.largest - f(row.s)),
            "-(x[target] - (max + log(S)))": lambda row, f: -(row.at_target - (row.largest + f(row.s))),
        },
        _two_elements,
        reductions=("mean", "sum", "none"),
    ),
    "torch:layer_norm": Composite(
        lambda x, given: _torch("nn.functional.layer_norm")(x, (x.shape[-1],), None, None, given.eps),
        "moments",
        ("rsqrt",),
        {f"{way} with r = rsqrt({how})": _normalised(way, how) for how in _MEAN_SQUARES for way in _SCALINGS},
        eps=1e-5,
        sharpened=_unit_variance,
    ),
    "torch:var": Composite(
        lambda x, given: _torch("var")(x, -1, keepdim=True),
        "moments",
        (),
        {"S / (K - 1)": lambda row, f: row.s / np.float32(row.k - 1)},
    ),
    "torch:std": Composite(
        lambda x, given: _torch("std")(x, -1, keepdim=True),
        "moments",
        (),
        {"sqrt(S / (K - 1))": lambda row, f: np.sqrt(row.s / np.float32(row.k - 1))},
    ),
}


@dataclass(frozen=True)
class Steps:
    """The chosen steps of a composite. function: names of its functions; finish: of `Composite.finishes`; eps: of the call."""

    composite: Composite
    function: str
    compute: tuple[SingleFunction, ...]
    finish: str
    eps: float | None

    def __str__(self) -> str:
        return f"{self.finish} with {self.function}" if self.function else self.finish

    def inputs(self, x: SingleValues, targets: Any = None) -> RowValues:
        """Return the terms of rows x [rows, K] and what else the results depend on."""
        largest = x.max(axis=1, keepdims=True)
        at_target = x[:, :1] if targets is None else np.take_along_axis(x, targets[:, None], axis=1)
        with np.errstate(all="ignore"):
            terms = self.compute[0](x - largest) if self.composite.terms == "exponentials" else x
        return RowValues(x, terms, largest, at_target, x.shape[1])

    def results(self, parts: Arrays, given: RowValues, out: Format) -> Bits:
        """Return the result words [rows, columns] or [rows, 1]. parts: (S,), or mean and M2, [rows]."""
        *mean, s = (each[:, None] for each in parts)
        eps = None if self.eps is None else np.float32(self.eps)
        row = given._replace(s=s, mean=mean[0] if mean else np.float32(0), eps=eps)
        *_, last = (np.sqrt, *self.compute)
        with np.errstate(all="ignore"):
            values = self.composite.finishes[self.finish](row, last)
            assert out.ml_dtype is not None
            return values.astype(np.float32).astype(out.ml_dtype).view(out.dtype)

    def words(self, rule: Rule, schedule: Schedule, words: Bits, fmt: Format, out: Format, targets: Any = None) -> Bits:
        """Return the results for x, as bit patterns."""
        given = self.inputs(fmt.values(words).astype(np.float32), targets)
        return self.results(schedule.result(rule, given.terms.T.copy()), given, out)


def rules_of(composite: Composite, fmt: Format) -> Iterator[tuple[Rule, DotModel, str]]:
    """Yield ways to take a term with the step of their plan, and words for the ones that differ in squares."""
    if composite.terms == "moments":
        yield from ((rule, IN_SINGLE, "") for rule in WELFORD.values())
    elif composite.terms == "exponentials":
        yield Sum(), IN_SINGLE, ""
    elif 2 * fmt.mantissa_bits + 1 <= SINGLE.mantissa_bits:  # float32 holds every square
        yield Sum("fused"), IN_SINGLE, ""
    else:
        yield Sum("fused"), IN_SINGLE, "squares fused"
        yield Sum("rounded"), ROUNDED_FIRST, "squares rounded"


def compute_composite(row: ProductRow, model: ProductModel, words: Bits, targets: Any = None) -> Bits:
    """Return the result words of a row of a report for x [rows, K]. Raises AccprobeError for bad targets or an unknown part."""
    composite, record, out = COMPOSITES[row.name], row.composite, FORMATS[row.out]
    assert record is not None
    if composite.takes_target != (targets is not None):
        usage = "x and the targets of its rows: give the targets as B" if composite.takes_target else "x alone"
        raise AccprobeError(f"{row.title} takes {usage}")
    if targets is not None:
        targets = np.asarray(targets.cpu() if is_tensor(targets) else targets)
        if targets.shape != (row.n,) or targets.dtype.kind not in "iu" or targets.min() < 0 or targets.max() >= row.k:
            raise AccprobeError(f"{row.title} takes {row.n} targets from 0 to {row.k - 1}, one of each row")
    compute = next((compute for known, compute in combinations(composite.functions) if known == record.function), None)
    if compute is None:
        raise AccprobeError(f"{row.name} uses {record.function}, and no recorded model gives its bits on the measured device")
    steps = Steps(composite, record.function, compute, record.finish, record.eps)
    found = steps.words(_recorded_rule(row, model), Schedule(model.tree), words, FORMATS[row.a], out, targets)
    if record.rows is None:
        return found
    return reduced_words(Schedule(record.rows.model.tree), record.rows.finish, found, out)


def _recorded_rule(row: ProductRow, model: ProductModel) -> Rule:
    terms = COMPOSITES[row.name].terms
    if terms == "exponentials":
        return Sum()
    if terms == "squares":
        return Sum("rounded" if model.step == ROUNDED_FIRST else "fused")
    assert row.composite is not None
    if row.composite.moments not in WELFORD:
        raise AccprobeError(f"{row.title} has the unknown method '{row.composite.moments:.80}'")
    return WELFORD[row.composite.moments]


# Ways to compute a reduction over N results of rows from their sum T.
ROWS_FINISHES = {"mean": ("T / N", "T · (1 / N)"), "sum": ("T",)}


def reduced_words(schedule: Schedule, finish: str, words: Bits, out: Format) -> Bits:
    """Return the result word [1, 1] of results of rows [N, 1]."""
    values = out.values(words).astype(np.float32)
    (total,), n = schedule.result(Sum(), values), np.float32(len(words))
    found = total / n if finish == "T / N" else total * (np.float32(1) / n) if finish == "T · (1 / N)" else total
    assert out.ml_dtype is not None
    return np.asarray(found.astype(out.ml_dtype).view(out.dtype)[:, None])

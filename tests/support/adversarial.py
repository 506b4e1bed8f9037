"""Operands whose error comes near the error bound of a product."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.random import Generator

from accprobe.evaluate.error_free import Floats
from accprobe.isa.formats import Bits, Format
from accprobe.model.product import ProductModel
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.report.names import named_models
from accprobe.report.recorded import recorded
from accprobe.report.report import Report


def float_models() -> Iterator[tuple[str, DotModel, Format, Format]]:
    """Yield every distinct floating-point arithmetic of the recorded reports and published chips, with its first owner."""
    seen = set()
    simulated = [f"sim:{name}" for name in ("v100", "a100", "a2", "l40s", "h100", "b200")]
    for source in [*(name for name in recorded() if Report.load(name).instructions), *simulated]:
        for inst, model in named_models(source).items():
            key = model, inst.a, inst.b
            if inst.is_integer or inst.sparse or inst.scale is not None or inst.c is not inst.d or key in seen:
                continue
            seen.add(key)
            yield f"{source}:{inst.name}", model, inst.a, inst.b


def crafted(kind: str, model: ProductModel, m: int, n: int, rng: Generator) -> tuple[Bits, Bits]:
    """Return bit patterns a [m, K], b [n, K]; "patterns" of f64 are "wide", so that errors of products are normal numbers."""
    if kind == "patterns" and model.a.bits < 64:
        a, b = (rng.integers(0, 1 << fmt.storage_bits, shape).astype(fmt.dtype) for fmt, shape in _shapes(model, m, n))
        return _finite(model.a, a), _finite(model.b, b)
    values = _VALUES[kind](model, m, n, rng)
    return _encoded(model.a, values[0]), _encoded(model.b, values[1])


def _encoded(fmt: Format, values: Floats) -> Bits:
    largest = float(fmt.values(np.array([fmt.largest], fmt.dtype))[0])
    clipped = np.clip(values, -largest, largest)
    assert fmt.ml_dtype is not None
    return np.ascontiguousarray(clipped.astype(fmt.ml_dtype)).view(fmt.dtype)


def _finite(fmt: Format, patterns: Bits) -> Bits:
    return np.where(np.isfinite(fmt.values(patterns)), patterns, fmt.dtype.type(0))


def _full(fmt: Format) -> float:
    """Return the largest significand."""
    return 2.0 - 2.0**-fmt.mantissa_bits


def _full_significands(model: ProductModel, m: int, n: int, rng: Generator) -> tuple[Floats, Floats]:
    """Return values of one sign with the last bits set."""
    of_a, of_b = (_full(fmt) - 2.0**-fmt.mantissa_bits * 2 * rng.integers(0, 2, shape) for fmt, shape in _shapes(model, m, n))
    return of_a * np.exp2(rng.integers(-1, 2, of_a.shape)), of_b


def _below_the_cut(model: ProductModel, m: int, n: int, rng: Generator) -> tuple[Floats, Floats]:
    """Return one large product at the head of each chain, and others of nearly one unit of the last bit kept below it."""
    arithmetic = next(node.arithmetic for node in model.step.root.nodes() if node.products)
    assert isinstance(arithmetic, FloatArithmetic)
    kept = arithmetic.result_bits if arithmetic.alignment_bits is None else arithmetic.alignment_bits
    head = min(model.a.max_exponent - 1, 60) + rng.integers(-2, 1, (m, 1))
    other = min(model.b.max_exponent - 1, 60)
    below = kept + 1 - rng.integers(0, 2)
    share = min(below // 2 + 1, head.min() - model.a.min_exponent)
    a, b = (
        np.full((m, model.k), _full(model.a)) * np.exp2(head - share),
        np.full((n, model.k), np.exp2(other - (below - share))),
    )
    heads = [chain.start for chain in model.chains()]
    if rng.integers(0, 2):
        heads = heads[:1]
    a[:, heads], b[:, heads] = np.exp2(head), np.exp2(other)
    return a, b


def _in_turn(model: ProductModel, m: int, n: int, rng: Generator) -> tuple[Floats, Floats]:
    a, b = _below_the_cut(model, m, n, rng)
    turns = np.where(np.arange(model.k) // int(rng.choice([1, 2, model.step.products])) % 2, -1.0, 1.0)
    return a * turns, b


def _near_powers(model: ProductModel, m: int, n: int, rng: Generator) -> tuple[Floats, Floats]:
    """Return sums that cross a power of two: up by many small products, down by one."""
    a, b = np.full((m, model.k), _full(model.a)), np.full((n, model.k), 2.0 ** -rng.integers(0, 4))
    a[:, 0] *= 2.0 ** np.ceil(np.log2(model.k))
    down = rng.random((m, model.k)) < 0.1
    return np.where(down, -a * 2, a) * np.exp2(rng.integers(-1, 1, (m, 1))), b


def _carries(model: ProductModel, m: int, n: int, rng: Generator) -> tuple[Floats, Floats]:
    """Return products whose sum doubles and halves again."""
    of_a, of_b = (np.exp2(rng.integers(-2, 3, shape)) * _full(fmt) for fmt, shape in _shapes(model, m, n))
    return of_a * np.where(rng.random(of_a.shape) < 0.5, -1, 1), of_b


def _subnormals(model: ProductModel, m: int, n: int, rng: Generator) -> tuple[Floats, Floats]:
    of_a, of_b = (
        rng.integers(1, 4 << fmt.mantissa_bits, shape) * 2.0 ** (fmt.min_exponent - fmt.mantissa_bits)
        for fmt, shape in _shapes(model, m, n)
    )
    if rng.integers(0, 2):
        of_b = of_b * np.exp2(rng.integers(0, model.b.max_exponent, of_b.shape))
    return of_a * rng.choice([-1, 1], of_a.shape), of_b


def _integers(model: ProductModel, m: int, n: int, rng: Generator) -> tuple[Floats, Floats]:
    """Return sums of few bits, which are ties at the output."""
    of_a, of_b = (rng.integers(-7, 8, shape).astype(np.float64) for _, shape in _shapes(model, m, n))
    return of_a * np.exp2(rng.integers(-3, 4, of_a.shape)), of_b


def _wide(model: ProductModel, m: int, n: int, rng: Generator) -> tuple[Floats, Floats]:
    """Return values of any sign with exponents over most of the range."""
    reach = min(model.a.max_exponent, model.b.max_exponent, 15)
    of_a, of_b = (
        rng.uniform(1, 2, shape) * np.exp2(rng.integers(-reach, reach, shape)) * rng.choice([-1, 1], shape)
        for _, shape in _shapes(model, m, n)
    )
    return of_a, of_b


def _shapes(model: ProductModel, m: int, n: int) -> tuple[tuple[Format, tuple[int, int]], tuple[Format, tuple[int, int]]]:
    return (model.a, (m, model.k)), (model.b, (n, model.k))


_VALUES = {
    "full significands": _full_significands,
    "below the cut": _below_the_cut,
    "below the cut, signs in turn": _in_turn,
    "near powers of two": _near_powers,
    "carries": _carries,
    "subnormals": _subnormals,
    "integers": _integers,
    "wide": _wide,
    "patterns": _wide,
}
ADVERSARIES = tuple(_VALUES)

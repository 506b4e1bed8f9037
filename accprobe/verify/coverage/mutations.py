"""Changes to the operands of dot products, for a search that keeps those that reach new events.

Each changes some dot products in place: exponents, last bits, fractions, signs, C, scales; or clears, copies, moves terms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import values_of
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.reference import Evaluation
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.verify.coverage.operand_events import OPERAND_CLASSES, codes_of, scale_codes

Mask = NDArray[np.bool_]

SHIFTS = np.array([-12, -6, -3, -2, -1, 1, 2, 3, 6, 12])  # Powers of two that an operand moves by, half of the time.

MOST_CHANGES = 3  # Of one dot product.

AT_ONCE = 6  # Kinds of changes made to the dot products of one batch.


class Mutations:
    """Random changes to dot products of one instruction and model."""

    def __init__(self, inst: Instruction, model: DotModel, rng: np.random.Generator) -> None:
        self._inst, self._model, self._rng = inst, model, rng
        self._sums = [
            (sorted(k for inner in node.nodes() for k in inner.products), any(inner.has_addend for inner in node.nodes()))
            for node in model.root.nodes()
        ]
        self._changes: list[Callable[[Request], None]] = [
            self._move_exponents,
            self._step_last_bits,
            self._replace_fractions,
            self._flip_signs,
            self._clear_terms,
            self._copy_terms,
            self._rotate_terms,
            self._mix_terms,
            self._keep_one_sum,
            self._put_classes,
            self._change_addend,
            self._change_addend,
            self._derive_addend,
        ]
        if len(self._sums) > 1:
            self._changes += [self._move_to_another_sum] * 2
        if inst.scale is not None:
            self._changes += [self._change_scales] * 3

    def of(self, parents: Request) -> Request:
        """Return dot products with up to `MOST_CHANGES` changes each."""
        made, rng = parents[np.arange(len(parents))], self._rng
        for step in range(MOST_CHANGES):
            changes = rng.permutation(len(self._changes))[:AT_ONCE]
            which = rng.integers(0, AT_ONCE * MOST_CHANGES // (MOST_CHANGES - step), len(made))
            for number, change in enumerate(changes):
                rows = np.flatnonzero(which == number)
                some = made[rows]
                self._changes[change](some)
                for column, changed in zip(made.columns, some.columns, strict=True):
                    column[rows] = changed
        return made

    def _some_terms(self, n: int) -> Mask:
        """One term, a few or all, [n, K]."""
        k = self._inst.k
        found = self._rng.random((n, k)) < self._rng.choice([0.0, 2 / k, 0.3, 1.0], n)[:, None]
        found[np.arange(n), self._rng.integers(0, k, n)] = True
        return found

    def _factor(self, some: Request) -> tuple[Format, Bits]:
        return (self._inst.a, some.a) if self._rng.integers(0, 2) else (self._inst.b, some.b)

    def _move_exponents(self, some: Request) -> None:
        fmt, factor = self._factor(some)
        there = self._some_terms(len(some))
        factor[there] = _moved(fmt, factor, self._shifts(fmt, (len(some), 1)))[there]

    def _shifts(self, fmt: Format, shape: tuple[int, ...]) -> NDArray[np.int64]:
        reach = fmt.max_exponent - fmt.min_exponent
        far = self._rng.integers(-reach, reach + 1, shape)
        return np.where(self._rng.random(shape) < 0.5, self._rng.choice(SHIFTS, shape), far)

    def _step_last_bits(self, some: Request) -> None:
        fmt, factor = self._factor(some)
        there = self._some_terms(len(some))
        factor[there] = _stepped(fmt, factor, self._rng.choice([-2, -1, 1, 2], factor.shape))[there]

    def _replace_fractions(self, some: Request) -> None:
        for fmt, factor in ((self._inst.a, some.a), (self._inst.b, some.b)):
            there = self._some_terms(len(some))
            factor[there] = self._with_fractions(fmt, factor)[there]

    def _with_fractions(self, fmt: Format, patterns: Bits) -> Bits:
        """Fractions of zeros, of ones, of one bit, or any."""
        bits, shape = fmt.mantissa_bits, patterns.shape
        one_bit = np.int64(1) << self._rng.integers(0, max(bits, 1), shape)
        ways = [np.zeros(shape, np.int64), np.full(shape, (1 << bits) - 1), one_bit, self._rng.integers(0, 1 << bits, shape)]
        way = self._rng.integers(0, len(ways), (len(patterns), *(1,) * (patterns.ndim - 1)))
        return _signed_as(fmt, patterns, _magnitudes(fmt, patterns) >> bits << bits | np.choose(way, ways))

    def _flip_signs(self, some: Request) -> None:
        some.a[self._some_terms(len(some))] ^= self._inst.a.dtype.type(self._inst.a.sign_bit)
        if self._rng.integers(0, 2):
            some.c[:] ^= self._inst.c.dtype.type(self._inst.c.sign_bit)

    def _clear_terms(self, some: Request) -> None:
        there = self._some_terms(len(some))
        some.a[there] &= self._inst.a.dtype.type(self._inst.a.sign_bit)
        some.b[there] &= self._inst.b.dtype.type(self._inst.b.sign_bit)

    def _copy_terms(self, some: Request) -> None:
        """One term onto others, with its sign or the opposite one."""
        rows, there = np.arange(len(some)), self._some_terms(len(some))
        source = self._rng.integers(0, self._inst.k, len(some))
        flips = self._rng.integers(0, 2, (len(some), 1)).astype(some.a.dtype) * some.a.dtype.type(self._inst.a.sign_bit)
        some.a[:] = np.where(there, some.a[rows, source][:, None] ^ flips, some.a)
        some.b[:] = np.where(there, some.b[rows, source][:, None], some.b)

    def _rotate_terms(self, some: Request) -> None:
        order = (np.arange(self._inst.k) + self._rng.integers(0, self._inst.k, (len(some), 1))) % self._inst.k
        some.a[:], some.b[:] = (np.take_along_axis(factor, order, 1) for factor in (some.a, some.b))

    def _mix_terms(self, some: Request) -> None:
        """Terms of the next dot product beside its own."""
        there = self._some_terms(len(some))
        some.a[:], some.b[:] = (np.where(there, np.roll(factor, 1, axis=0), factor) for factor in (some.a, some.b))

    def _keep_one_sum(self, some: Request) -> None:
        """All terms outside one sum are zero: its events reach the result."""
        ks, has_addend = self._sums[self._rng.integers(0, len(self._sums))]
        outside = np.delete(np.arange(self._inst.k), ks)
        some.a[:, outside] = 0
        if not has_addend:
            some.c[:] = 0

    def _move_to_another_sum(self, some: Request) -> None:
        """The terms of one sum on those of another, all others zero."""
        (ks, _), (others, has_addend) = (self._sums[self._rng.integers(0, len(self._sums))] for _ in range(2))
        count = min(len(ks), len(others))
        a, b = some.a[:, ks[:count]], some.b[:, ks[:count]]
        some.a[:], some.b[:] = 0, 0
        some.a[:, others[:count]], some.b[:, others[:count]] = a, b
        if not has_addend:
            some.c[:] = 0

    def _put_classes(self, some: Request) -> None:
        """Zeros, subnormals, largest numbers, infinities or NaNs, one of them on A, B and C, or on some of these."""
        kind, there, rng = self._rng.choice(OPERAND_CLASSES), self._some_terms(len(some)), self._rng
        for fmt, column in ((self._inst.a, some.a), (self._inst.b, some.b), (self._inst.c, some.c)):
            codes = codes_of(fmt)[kind]
            if codes and rng.random() < 0.7:
                signs = rng.integers(0, 2, column.shape if rng.integers(0, 2) else column.shape[:1] + (1,) * (column.ndim - 1))
                made = rng.choice(np.array(codes, fmt.dtype)) | signs.astype(fmt.dtype) * fmt.dtype.type(fmt.sign_bit)
                column[:] = np.where(there, made, column) if column.ndim == 2 else made

    def _change_addend(self, some: Request) -> None:
        fmt, way = self._inst.c, self._rng.integers(0, 5, len(some))
        sign = fmt.dtype.type(fmt.sign_bit)
        ways = [
            _moved(fmt, some.c, self._shifts(fmt, some.c.shape)),
            _stepped(fmt, some.c, self._rng.choice([-2, -1, 1, 2], some.c.shape)),
            self._with_fractions(fmt, some.c),
            some.c & sign,
            some.c ^ sign,
        ]
        some.c[:] = np.choose(way, ways)

    def _derive_addend(self, some: Request) -> None:
        """C of the size of a product, or the result taken away from itself; or a little beside that."""
        inst, rows = self._inst, np.arange(len(some))
        if self._rng.integers(0, 2):
            some.c[:] &= inst.c.dtype.type(inst.c.sign_bit)
            size: Floats = inst.d.values(Evaluation(inst, some).of(self._model))
        else:
            k = self._rng.integers(0, inst.k, len(some))
            factors = ((inst.a, some.a), (inst.b, some.b))
            size = np.prod([values_of(x[rows, k], fmt, "kept") for fmt, x in factors], axis=0)
            size = size * 2.0 ** self._rng.integers(-2, 3, len(some))
        assert inst.c.ml_dtype is not None
        c = (size * self._rng.choice([-1.0, 1.0], len(some))).astype(inst.c.ml_dtype).view(inst.c.dtype)
        some.c[:] = np.where(np.isfinite(size), _stepped(inst.c, c, self._rng.choice([-1, 0, 0, 1], len(some))), some.c)

    def _change_scales(self, some: Request) -> None:
        fmt = self._inst.scale
        assert fmt is not None
        codes = [code for known in scale_codes(fmt).values() for code in known]
        for scales in (some.scales_a, some.scales_b):
            assert scales is not None
            there = self._rng.random(scales.shape) < self._rng.choice([0.3, 1.0], (len(some), 1))
            shape = scales.shape if self._rng.integers(0, 2) else (len(some), 1)
            step = self._rng.choice(SHIFTS, shape) << fmt.mantissa_bits * int(self._rng.integers(0, 2))
            moved = np.clip(scales.astype(np.int64) + step, 0, fmt.largest)
            some_code = self._rng.choice(np.array(codes), shape)
            scales[there] = np.where(self._rng.random(shape) < 0.3, some_code, moved).astype(fmt.dtype)[there]


def _magnitudes(fmt: Format, patterns: Bits) -> NDArray[np.int64]:
    """Patterns without signs and ignored bits, as integers."""
    magnitudes = (patterns & fmt.dtype.type(fmt.sign_bit - 1)) >> fmt.dtype.type(fmt.ignored_low_bits)
    return np.asarray(magnitudes.astype(np.int64))


def _signed_as(fmt: Format, patterns: Bits, magnitudes: NDArray[np.int64]) -> Bits:
    """Magnitudes, the largest at most, with the signs of these patterns."""
    clipped = np.clip(magnitudes, 0, fmt.largest >> fmt.ignored_low_bits) << fmt.ignored_low_bits
    return np.asarray(clipped.astype(fmt.dtype) | patterns & fmt.dtype.type(fmt.sign_bit))


def _moved(fmt: Format, patterns: Bits, powers: NDArray[np.int64]) -> Bits:
    """Times powers of two; zeros stay."""
    magnitudes = _magnitudes(fmt, patterns)
    return _signed_as(fmt, patterns, np.where(magnitudes, magnitudes + (powers << fmt.mantissa_bits), 0))


def _stepped(fmt: Format, patterns: Bits, units: NDArray[np.int64]) -> Bits:
    """More or less by units in the last place."""
    return _signed_as(fmt, patterns, _magnitudes(fmt, patterns) + units)

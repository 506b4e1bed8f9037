"""The search for operands that reach all events of a model: it keeps and changes those that reach new events.

A change modifies some dot products in place: patterns of A, B or C, places of terms, classes of operands, or scales.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import values_of
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.reference import Evaluation
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.kinds import draw_every_kind
from accprobe.operands.request import Request, joined
from accprobe.verify.coverage.events import EventNames, Key
from accprobe.verify.coverage.operand_events import OPERAND_CLASSES, codes_of
from accprobe.verify.coverage.trace import Reaching, Trace

Mask = NDArray[np.bool_]

SHIFTS = np.array([-12, -6, -3, -2, -1, 1, 2, 3, 6, 12])  # Powers of two that an operand moves by, half of the time.

MOST_CHANGES = 3  # Changes of one dot product, at most: one in each step.

AT_ONCE = 6  # Entries of `_changes` that one step draws.


class Mutations:
    """Random changes to dot products of one instruction and model."""

    def __init__(self, inst: Instruction, model: DotModel, rng: np.random.Generator) -> None:
        self._inst, self._model, self._rng = inst, model, rng
        self._sums = [(node.ks, node.adds_c) for node in model.root.nodes()]
        several = len(self._sums) > 1
        self._changes: list[Callable[[Request], None]] = [
            *[self._change_factor] * 3,
            *[self._change_addend] * 2,
            *[self._copy_terms] * 2,
            *[self._use_one_sum] * (1 + 2 * several),
            *[self._change_scales] * (3 * (inst.scale is not None)),
            self._put_classes,
            self._derive_addend,
        ]

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
        """Mark one term, a few or all, [n, K]."""
        k = self._inst.k
        found = self._rng.random((n, k)) < self._rng.choice([0.0, 2 / k, 0.3, 1.0], n)[:, None]
        found[np.arange(n), self._rng.integers(0, k, n)] = True
        return found

    def _change_factor(self, some: Request) -> None:
        there = self._some_terms(len(some))
        for fmt, factor in ((self._inst.a, some.a), (self._inst.b, some.b)):
            if self._rng.random() < 0.7:
                factor[there] = self._changed(fmt, factor)[there]

    def _change_addend(self, some: Request) -> None:
        some.c[:] = self._changed(self._inst.c, some.c)

    def _changed(self, fmt: Format, patterns: Bits) -> Bits:
        """Change the exponents, last bits, fractions or signs of each dot product [n] or [n, K], or make them zero."""
        rng, rows = self._rng, (len(patterns), *(1,) * (patterns.ndim - 1))
        bits, reach = fmt.mantissa_bits, fmt.max_exponent - fmt.min_exponent
        sign = fmt.dtype.type(fmt.sign_bit)
        powers = np.where(rng.random(rows) < 0.5, rng.choice(SHIFTS, rows), rng.integers(-reach, reach + 1, rows))
        one_bit = np.int64(1) << rng.integers(0, max(bits, 1), patterns.shape)
        fractions = np.choose(
            rng.integers(0, 4, rows), [0, (1 << bits) - 1, one_bit, rng.integers(0, 1 << bits, patterns.shape)]
        )
        magnitudes = _magnitudes(fmt, patterns)
        ways = [
            _signed_as(fmt, patterns, np.where(magnitudes, magnitudes + (powers << bits), 0)),
            _stepped(fmt, patterns, rng.choice([-2, -1, 1, 2], patterns.shape)),
            _signed_as(fmt, patterns, magnitudes >> bits << bits | fractions),
            patterns ^ sign,
            patterns & sign,
        ]
        return np.choose(rng.integers(0, len(ways), rows), ways)

    def _copy_terms(self, some: Request) -> None:
        """Copy terms of the same dot product or the next: one of them, or those some places further; with either sign."""
        n, k, rng = len(some), self._inst.k, self._rng
        there, source = self._some_terms(n), rng.integers(0, k, (n, 1))
        source = np.where(rng.random((n, 1)) < 0.5, source, (np.arange(k) + source * rng.integers(0, 2, (n, 1))) % k)
        rows = (np.arange(n) + rng.integers(0, 2, n))[:, None] % max(n, 1)
        flips = rng.integers(0, 2, (n, 1)).astype(some.a.dtype) * some.a.dtype.type(self._inst.a.sign_bit)
        some.a[:] = np.where(there, some.a[rows, source] ^ flips, some.a)
        some.b[:] = np.where(there, some.b[rows, source], some.b)

    def _use_one_sum(self, some: Request) -> None:
        """Put the terms of one sum in the places of another or the same, and zero elsewhere: its events reach the result."""
        (ks, _), (others, has_addend) = (self._sums[i] for i in self._rng.integers(0, len(self._sums), 2))
        if self._rng.integers(0, 2):
            ks = others
        count = min(len(ks), len(others))
        a, b = some.a[:, ks[:count]], some.b[:, ks[:count]]
        some.a[:], some.b[:] = 0, 0
        some.a[:, others[:count]], some.b[:, others[:count]] = a, b
        if not has_addend:
            some.c[:] = 0

    def _put_classes(self, some: Request) -> None:
        """Put a number of one of OPERAND_CLASSES on A, B and C, or on some of these."""
        kind, there, rng = self._rng.choice(OPERAND_CLASSES), self._some_terms(len(some)), self._rng
        for fmt, column in ((self._inst.a, some.a), (self._inst.b, some.b), (self._inst.c, some.c)):
            codes = codes_of(fmt)[kind]
            if codes and rng.random() < 0.7:
                signs = rng.integers(0, 2, column.shape if rng.integers(0, 2) else column.shape[:1] + (1,) * (column.ndim - 1))
                made = rng.choice(np.array(codes, fmt.dtype)) | signs.astype(fmt.dtype) * fmt.dtype.type(fmt.sign_bit)
                column[:] = np.where(there, made, column) if column.ndim == 2 else made

    def _derive_addend(self, some: Request) -> None:
        """Make C about as large as a product or as the result without C, of either sign."""
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
        fmt, rng = self._inst.scale, self._rng
        assert fmt is not None
        codes = np.array([code for known in codes_of(fmt).values() for code in known])
        for scales in (some.scales_a, some.scales_b):
            assert scales is not None
            there = rng.random(scales.shape) < rng.choice([0.3, 1.0], (len(some), 1))
            shape = scales.shape if rng.integers(0, 2) else (len(some), 1)
            step = rng.choice(SHIFTS, shape) << fmt.mantissa_bits * int(rng.integers(0, 2))
            moved = np.clip(scales.astype(np.int64) + step, 0, fmt.largest)
            scales[there] = np.where(rng.random(shape) < 0.3, rng.choice(codes, shape), moved).astype(fmt.dtype)[there]


def _magnitudes(fmt: Format, patterns: Bits) -> NDArray[np.int64]:
    """Return patterns without signs and ignored bits, as integers."""
    magnitudes = (patterns & fmt.dtype.type(fmt.sign_bit - 1)) >> fmt.dtype.type(fmt.ignored_low_bits)
    return np.asarray(magnitudes.astype(np.int64))


def _signed_as(fmt: Format, patterns: Bits, magnitudes: NDArray[np.int64]) -> Bits:
    """Return magnitudes, at most the largest, with the signs of these patterns."""
    clipped = np.clip(magnitudes, 0, fmt.largest >> fmt.ignored_low_bits) << fmt.ignored_low_bits
    return np.asarray(clipped.astype(fmt.dtype) | patterns & fmt.dtype.type(fmt.sign_bit))


def _stepped(fmt: Format, patterns: Bits, units: NDArray[np.int64]) -> Bits:
    """Add or subtract units in the last place."""
    return _signed_as(fmt, patterns, _magnitudes(fmt, patterns) + units)


BATCH = 2048  # Dot products that are mutated at once.
RANDOM = 128  # Random dot products of each kind, from which the search starts.
MOST_IN_VAIN = 20  # The search stops after more batches than this without a new event.
MOST_BATCHES = 150
RECENT = 256  # Half of the random parents are drawn from this many kept last.


class Reached:
    """Which events were reached, by family and code."""

    def __init__(self, families: dict[Key, EventNames]) -> None:
        self.hit = {key: np.zeros(len(events), bool) for key, events in families.items()}

    def see(self, reaching: Reaching) -> None:
        for key, _, codes in reaching:
            self.hit[key][codes] = True

    def new_rows(self, reaching: Reaching) -> dict[int, Key]:
        """As `see`; return the first and the last dot product that reach each new event, and its family."""
        found: dict[int, Key] = {}
        for key, rows, codes in reaching:
            hit = self.hit[key]
            new = ~hit[codes]
            for order in (slice(None), slice(None, None, -1)) if new.any() else ():
                _, first = np.unique(codes[new][order], return_index=True)
                found |= dict.fromkeys(rows[new][order][first].tolist(), key)
            hit[codes] = True
        return found


def search(trace: Trace, seed: int, known: Iterable[Request] = ()) -> tuple[Request, int]:
    """Return dot products that reach all events of a model that the search reached, and how many it tried.

    known: where it starts, beside random ones.
    """
    rng = np.random.default_rng([seed, trace.inst.k])
    pool, mutations = _Pool(trace), Mutations(trace.inst, trace.model, rng)
    for request in known:
        pool.take(request)
    pool.take(draw_every_kind(trace.inst, rng, RANDOM))
    since = 0
    for _ in range(MOST_BATCHES):
        with np.errstate(all="ignore"):
            since = 0 if pool.take(mutations.of(pool.parents(rng))) else since + 1
        if since > MOST_IN_VAIN:
            break
    return pool.kept, pool.tries


class _Pool:
    """Dot products that reached new events when they were tried."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._families, self._reached = trace, trace.families, Reached(trace.families)
        self._number = {name: number for number, name in enumerate(dict.fromkeys(name for _, name in trace.families))}
        self.kept, self._of_family, self.tries = Request.zeros(trace.inst, 1), np.zeros(1, np.int64), 0

    def take(self, request: Request) -> bool:
        """Keep those that reach new events; return whether there are any."""
        self.tries += len(request)
        found = self._reached.new_rows(self._trace.of(request))
        if found:
            self.kept = joined([self.kept, request[list(found)]])
            self._of_family = np.concatenate([self._of_family, [self._number[name] for _, name in found.values()]])
        return bool(found)

    def parents(self, rng: np.random.Generator) -> Request:
        """Draw parents to mutate: half from families with events not reached, if there are any; the rest uniform or recent."""
        n, open_ = len(self.kept), [self._number[key[1]] for key in self._families if not self._is_whole(key)]
        chosen = np.where(rng.random(BATCH) < 0.5, rng.integers(0, n, BATCH), n - 1 - rng.integers(0, min(n, RECENT), BATCH))
        family = rng.choice(open_, BATCH // 2) if open_ else np.zeros(0, np.int64)
        for number in np.unique(family):
            rows, there = np.flatnonzero(self._of_family == number), np.flatnonzero(family == number)
            if len(rows):
                chosen[there] = rng.choice(rows, len(there))
        return self.kept[chosen]

    def _is_whole(self, key: Key) -> bool:
        return all(hit or not name for name, hit in zip(self._families[key], self._reached.hit[key].tolist(), strict=True))

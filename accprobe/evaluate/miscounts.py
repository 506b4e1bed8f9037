"""Detection of the k that a result lacks, counts twice or mispairs, from the result alone.

A result that multiplies a[:, k] by b[k', :] W[k, k'] times differs from A·B by the sum of (W - I)[k, k'] · a[:, k] b[k', :].
Least squares over up to LINES rows and columns gives the diagonal of W. If a difference remains, or K is too long, runs of k
are removed one after the other. Each time the run is removed after which the squared difference is least (after matching
pursuit: Mallat and Zhang, 1993). A and B are centred first, so that a mean that all k share does not hide one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accprobe.evaluate.error_free import Floats, Integers
from accprobe.model.tree import number_ranges

# Most rows, and most columns, of the result that are used.
LINES = 128

# Most weights that are solved for at once, and fewest elements of the result per weight.
MOST_WEIGHTS, ELEMENTS_A_WEIGHT = 2048, 4

# Largest K for which every a[k] is paired with every b[k']; this takes K² numbers.
LONGEST_PAIRED = 2048

# Number of standard errors by which a weight must differ from 1. A weight of a run must differ by √2 times as many, because
# there are more.
SURE = 6.0

# A fitted weight is taken as the nearest integer within this distance.
NEAR_INTEGER = 0.25

# Share of the squared difference from which on no mispaired k are sought.
ENOUGH = 0.98

# Largest number of runs, of miscounted and of mispaired k.
MOST_RUNS, MOST_PAIRED_RUNS = 32, 8

# Fewest rows, or columns, from which a mean is subtracted.
SMALLEST_CENTRED = 8

# Runs may begin and end at the nearest multiple of one of these.
ALIGNED = (1, 8, 16, 32, 64)


@dataclass(frozen=True, eq=False)
class Miscounts:
    """Term multiplicity of a result. counts [K]: surplus of a[k] b[k], -1 if it is missing. partner [K]: the k' whose b[k'] is
    multiplied by a[k]. explained: the share of the squared difference from A·B that this removes.
    """

    counts: Integers
    partner: Integers
    explained: float

    def __bool__(self) -> bool:
        return bool(self.counts.any() or self.is_mispaired)

    @property
    def is_mispaired(self) -> bool:
        return bool((self.partner != np.arange(len(self.partner))).any())

    def sentences(self) -> Iterator[str]:
        """Yield "k 496-511 missing", "k 3 counted twice", "a[k] multiplied by b[k + 64] for k 0-63"."""
        if (self.counts == -1).all():
            yield "every k missing: a result of other operands"
            return
        for count in np.unique(self.counts[self.counts != 0]).tolist():
            ks = runs(np.flatnonzero(self.counts == count))
            yield f"k {ks} " + ("missing" if count == -1 else "counted twice" if count == 1 else f"counted {count + 1} times")
        off = self.partner - np.arange(len(self.partner))
        for by in dict.fromkeys(off[off != 0].tolist()):
            yield f"a[k] multiplied by b[k {'+' if by > 0 else '-'} {abs(by)}] for k {runs(np.flatnonzero(off == by))}"


def runs(ks: Integers) -> str:
    """Return "3, 96-127", the first few ranges."""
    ranges = list(number_ranges(ks.tolist()))
    return ", ".join(ranges[:4]) + (f" and {len(ranges) - 4} more ranges" if len(ranges) > 4 else "")


def fit_miscounts(result: Floats, a: Floats, b: Floats) -> Miscounts:
    """Fit the miscounts of result [M, N] to a [M, K] and b [N, K], values; none if a value is not finite."""
    y, x = (np.unique(np.linspace(0, n - 1, min(n, LINES)).astype(np.intp)) for n in result.shape)
    a, b = a[y], b[x]
    k, wrong = a.shape[1], result[np.ix_(y, x)] - a @ b.T
    nothing = Miscounts(np.zeros(k, np.int64), np.arange(k), 0.0)
    if not all(np.isfinite(each).all() for each in (wrong, a, b)):
        return nothing
    wrong, a, b = _centred(wrong, a, b)
    before = _square(wrong)
    found = _Runs(wrong, a, b).fitted(paired=False) if before else nothing
    if found.explained < ENOUGH and before and k <= LONGEST_PAIRED:
        found = max(found, _Runs(wrong, a, b).fitted(paired=True), key=lambda each: each.explained)
    return found


def _square(x: Floats) -> float:
    return float(np.square(x).sum())


def _centred(wrong: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
    if len(a) >= SMALLEST_CENTRED:
        a, wrong = a - a.mean(axis=0), wrong - wrong.mean(axis=0)
    if len(b) >= SMALLEST_CENTRED:
        b, wrong = b - b.mean(axis=0), wrong - wrong.mean(axis=1, keepdims=True)
    return wrong, a, b


class _Runs:
    """Remainder of a difference while terms are subtracted from it."""

    def __init__(self, wrong: Floats, a: Floats, b: Floats) -> None:
        self._left, self._a, self._b, self._before = wrong, a, b, _square(wrong)
        self._k = np.arange(a.shape[1])
        self._counts, self._partner = np.zeros(len(self._k), np.int64), self._k.copy()

    def fitted(self, paired: bool) -> Miscounts:
        """Take the best runs in turn. paired: of mispaired k, too; otherwise least squares come first if possible."""
        k = len(self._k)
        if not paired and k <= MOST_WEIGHTS and self._left.size >= ELEMENTS_A_WEIGHT * k:
            self._counts = self._least_squares()
            self._left = self._left - (self._a * self._counts) @ self._b.T
        for _ in range(MOST_PAIRED_RUNS if paired else MOST_RUNS):
            gains = self._counting()
            if not self._take(np.concatenate([gains, self._pairing()], axis=1) if paired else gains):
                break
        return Miscounts(self._counts, self._partner, 1 - _square(self._left) / self._before)

    def _least_squares(self) -> Integers:
        """Return the weights of all k that are significantly nonzero and near an integer."""
        a, b, wrong = self._a, self._b, self._left
        gram = (a.T @ a) * (b.T @ b)
        ridge = max(float(np.diag(gram).max()) * 1e-10, np.finfo(np.float64).tiny)
        inverse = np.linalg.inv(gram + np.eye(len(gram)) * ridge)
        projected = ((a.T @ wrong) * b.T).sum(axis=1)
        weights = inverse @ projected
        left = max(_square(wrong) - float(weights @ projected), 0.0) / (wrong.size - len(weights))
        sure = np.abs(weights) > SURE * np.sqrt(np.maximum(np.diag(inverse), 0.0) * left)
        near = np.abs(weights - np.rint(weights)) < NEAR_INTEGER
        return np.where(sure & near & (np.diag(gram) > 0), np.rint(weights), 0.0).astype(np.int64)

    def _counting(self) -> Floats:
        """Return the approximate decrease of the squared difference without each k, and with each k twice, [K, 2]."""
        projected = ((self._a.T @ self._left) * self._b.T).sum(axis=1)
        sizes = np.square(self._a).sum(axis=0) * np.square(self._b).sum(axis=0)
        return np.stack([-2 * projected - sizes, 2 * projected - sizes], axis=1)

    def _pairing(self) -> Floats:
        """Return the decrease with b[k + d] in place of b[k], modulo K: [K, d], d from 1."""
        k = len(self._k)
        shifted = (self._k[:, None] + np.arange(1, k)) % k
        every, of_b = self._a.T @ self._left @ self._b, self._b.T @ self._b
        sizes = np.take_along_axis(-2 * of_b, shifted, axis=1)
        sizes += np.diag(of_b)[shifted] + np.diag(of_b)[:, None]
        sizes *= -np.square(self._a).sum(axis=0)[:, None]
        return sizes + 2 * (np.take_along_axis(every, shifted, axis=1) - np.diag(every)[:, None])

    def _take(self, gains: Floats) -> bool:
        """Take the best run, if it is significant."""
        low, high, kind = _best_run(gains)
        edges = {(round(low / of) * of, round(high / of) * of) for of in ALIGNED}
        left = {run: _square(self._left - self._term(*run, kind)) for run in edges if run[0] < run[1] <= len(self._k)}
        best = min(left, key=lambda run: left[run])
        ks, term = self._k[slice(*best)], self._term(*best, kind)
        least = 2 * SURE**2 * left[best] / self._left.size
        if _square(self._left) - left[best] < max(least, _square(term) / 2) or (self._partner[ks] != ks).any():
            return False
        self._left = self._left - term
        if kind < 2:
            self._counts[ks] += 2 * kind - 1
        else:
            self._partner[ks] = (ks + kind - 1) % len(self._k)
        return bool(term.any())

    def _term(self, low: int, high: int, kind: int) -> Floats:
        """Return the contribution of a run to the difference; kind: a column of `_counting` and `_pairing`."""
        ks = self._k[low:high]
        a, b = self._a[:, ks], self._b[:, ks]
        b = self._b[:, (ks + kind - 1) % len(self._k)] - b if kind >= 2 else b * (2 * kind - 1)
        return a @ b.T


def _best_run(gains: Floats) -> tuple[int, int, int]:
    """Return (low, high, kind) of the run along K with the largest sum of gains [K, kinds] (Kadane's algorithm)."""
    sums = np.concatenate([np.zeros((1, gains.shape[1])), np.cumsum(gains, axis=0)])
    least = np.minimum.accumulate(sums[:-1], axis=0)
    last, kind = np.unravel_index(np.argmax(sums[1:] - least), gains.shape)
    return int(np.argmin(sums[: last + 1, kind])), int(last) + 1, int(kind)

"""A matrix product as it is asked: bit patterns in, bit patterns out, whatever computes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits, Format

KEPT_PRODUCTS, LEAST_KEPT = 1 << 18, 16
"""Products of the elements of a call that are kept for the final model to be held against, and elements at least."""

KEPT_WORDS = 1 << 25
"""Operands kept in all."""

WHOLE_WORDS, MOST_WHOLE = 1 << 25, 1 << 10
"""Operands and results of calls that are kept whole, and such calls at most: every n-th call of a run."""


class BlackBox(Protocol):
    """Any callable. a [M, K] and b [N, K], a row of each for an element: D [M, N], all of the spec's formats."""

    @property
    def spec(self) -> Spec: ...

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        """Raises AccprobeError where the callable raises, or gives what is no such product."""
        ...


class TooManyCalls(AccprobeError):
    """An experiment would take longer than anybody waits."""


class WholeCall(NamedTuple):
    """A call with all its operands and its result: it can be repeated identically."""

    a: Bits
    b: Bits
    d: Bits
    scales: ScaleWords | None


@dataclass(frozen=True)
class Call:
    """Some rows and columns of a call, with the elements that came back: d [rows, columns]."""

    a: Bits
    b: Bits
    d: Bits
    scales: ScaleWords | None
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]


@dataclass
class RecordedCallable:
    """A black box whose answers are kept, some of each call. calls, elements: asked so far. whole: every n-th call."""

    box: BlackBox
    calls: int = 0
    elements: int = 0
    kept: list[Call] = field(default_factory=list)
    whole: list[WholeCall] = field(default_factory=list)
    _words: int = 0
    _every: int = 1
    most: int | None = None
    """Calls after which no more are made."""

    @property
    def spec(self) -> Spec:
        return self.box.spec

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None, keep: bool = True) -> Bits:
        if self.most is not None and self.calls >= self.most:
            raise TooManyCalls(f"its order of addition is not found within {self.most} calls")
        d = one_nan(self.box.product(a, b, scales), self.spec.out)
        self.calls += 1
        self.elements += d.size
        if keep:
            self.keep(WholeCall(a, b, d, scales))
        return d

    def keep(self, call: WholeCall) -> None:
        """Keep some rows and columns of a call, and of every n-th call everything."""
        if self._words < KEPT_WORDS:
            self._keep(*call)
        if self.calls % self._every == 0:
            self._keep_whole(*call)

    def repeat(self, call: WholeCall) -> NDArray[np.bool_]:
        """Repeat a call identically and return which elements differ, [M, N]."""
        return np.asarray(self.product(call.a, call.b, call.scales, keep=False) != call.d)

    def _keep_whole(self, a: Bits, b: Bits, d: Bits, scales: ScaleWords | None) -> None:
        """Copies, as some experiments write each call's operands over those of the call before."""
        self.whole.append(WholeCall(a.copy(), b.copy(), d, scales))
        while len(self.whole) > min(MOST_WHOLE, max(1, WHOLE_WORDS // (a.size + b.size + d.size))):
            self._every *= 2
            self.whole = self.whole[1::2]

    def _keep(self, a: Bits, b: Bits, d: Bits, scales: ScaleWords | None) -> None:
        rng = np.random.default_rng(self.calls)
        elements = max(LEAST_KEPT, KEPT_PRODUCTS // a.shape[1])
        height = min(len(a), max(int(elements**0.5), elements // len(b)))
        rows = np.sort(rng.permutation(len(a))[:height])
        columns = np.sort(rng.permutation(len(b))[: max(1, elements // height)])
        if scales is not None:
            scales = ScaleWords(
                scales.a if len(scales.a) == 1 else scales.a[rows], scales.b if scales.b.shape[1] == 1 else scales.b[:, columns]
            )
        self.kept.append(Call(a[rows], b[columns], d[np.ix_(rows, columns)], scales, rows, columns))
        self._words += (len(rows) + len(columns)) * a.shape[1]


def one_nan(d: Bits, fmt: Format) -> Bits:
    """The elements with one pattern for all NaNs, that which models give: libraries differ in it, and nothing rests on it."""
    if fmt.is_integer:
        return d
    last = int(fmt.infinity or fmt.largest)
    signed = d.view(np.dtype(f"i{d.itemsize}"))
    if not d.size or (int(signed.max()) <= last and int(d.max()) <= last | fmt.sign_bit):
        return d
    nan = d & fmt.dtype.type(fmt.sign_bit - 1) > fmt.dtype.type(last)
    return np.where(nan, fmt.dtype.type(fmt.sign_bit - 1), d)

"""The protocol of a probed matrix product, and a log of its results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits, Format

# Products of the elements that are kept of each call for comparison with the final model, and the minimum of elements.
KEPT_PRODUCTS, LEAST_KEPT = 1 << 18, 16

# Limit of operand words kept in all.
KEPT_WORDS = 1 << 25

# Limits of calls that are kept whole: words of operands and results, and calls. Every n-th call of a run is kept.
WHOLE_WORDS, MOST_WHOLE = 1 << 25, 1 << 10


class BlackBox(Protocol):
    """A matmul callable: a [M, K] and b [N, K], one row of each for an element, to D [M, N], as bit patterns."""

    @property
    def spec(self) -> Spec: ...

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        """Raises AccprobeError if the callable raises or does not return such a product."""
        ...


class TooManyCalls(AccprobeError):
    """An experiment exceeds its limit of calls."""


class WholeCall(NamedTuple):
    """A call with all its operands and its result, which can be repeated identically."""

    a: Bits
    b: Bits
    d: Bits
    scales: ScaleWords | None


@dataclass(frozen=True)
class Call:
    """Some rows and columns of a call. d: [rows, columns]."""

    a: Bits
    b: Bits
    d: Bits
    scales: ScaleWords | None
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]


@dataclass
class RecordedCallable:
    """A black box that keeps some results of each call (`kept`) and every n-th call entirely (`whole`).

    calls, elements: number so far. most: limit of calls, if any.
    """

    box: BlackBox
    calls: int = 0
    elements: int = 0
    kept: list[Call] = field(default_factory=list)
    whole: list[WholeCall] = field(default_factory=list)
    most: int | None = None
    _words: int = 0
    _every: int = 1

    @property
    def spec(self) -> Spec:
        return self.box.spec

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None, keep: bool = True) -> Bits:
        if self.most is not None and self.calls >= self.most:
            raise TooManyCalls(f"the accumulation order was not determined within {self.most} calls")
        d = one_nan(self.box.product(a, b, scales), self.spec.out)
        self.calls += 1
        self.elements += d.size
        if keep:
            self.keep(WholeCall(a, b, d, scales))
        return d

    def keep(self, call: WholeCall) -> None:
        """Keep some rows and columns of a call, and everything of every n-th call."""
        if self._words < KEPT_WORDS:
            self._keep(*call)
        if self.calls % self._every == 0:
            self._keep_whole(*call)

    def repeat(self, call: WholeCall) -> NDArray[np.bool_]:
        """Repeat a call identically and return which elements differ, [M, N]."""
        return np.asarray(self.product(call.a, call.b, call.scales, keep=False) != call.d)

    def _keep_whole(self, a: Bits, b: Bits, d: Bits, scales: ScaleWords | None) -> None:
        """Keep copies, because some experiments reuse the operand arrays of the call before."""
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
    """Return the elements with the models' one pattern for all NaNs, because libraries return different ones."""
    if fmt.is_integer:
        return d
    last = int(fmt.infinity or fmt.largest)
    signed = d.view(np.dtype(f"i{d.itemsize}"))
    if not d.size or (int(signed.max()) <= last and int(d.max()) <= last | fmt.sign_bit):
        return d
    nan = d & fmt.dtype.type(fmt.sign_bit - 1) > fmt.dtype.type(last)
    return np.where(nan, fmt.dtype.type(fmt.sign_bit - 1), d)

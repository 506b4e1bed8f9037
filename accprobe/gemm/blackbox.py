"""The callable under test, and a log of its calls and results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.spec import BlackBox, Spec
from accprobe.errors import AccprobeError
from accprobe.evaluate.any_order import Evaluate, on_cpu
from accprobe.evaluate.product import ScaleWords
from accprobe.isa.formats import Bits, Format

Lines = NDArray[np.intp]

# Products of the elements that are kept of a call for comparison with the final model, and the least number of elements.
KEPT_PRODUCTS, LEAST_KEPT = 1 << 18, 16
# Operand words that are sent together.
SENT_WORDS = 1 << 22
# Limit of operand words kept in all.
KEPT_WORDS = 1 << 25
# Limits of calls that are kept whole: words of operands and results, and calls. Every n-th call of a run is kept.
WHOLE_WORDS, MOST_WHOLE = 1 << 25, 1 << 10


class TooManyCalls(AccprobeError):
    """An experiment exceeds its limit of calls."""


class Call(NamedTuple):
    """Operands a [M, K], b [N, K], scales and result d [M, N] of a call, which can be repeated identically."""

    a: Bits
    b: Bits
    scales: ScaleWords | None
    d: Bits

    def part(self, rows: Lines, columns: Lines) -> Call:
        scales = self.scales and scales_of_lines(self.scales, rows, columns)
        return Call(self.a[rows], self.b[columns], scales, self.d[np.ix_(rows, columns)])


def scales_of_lines(scales: ScaleWords, rows: Lines, columns: Lines) -> ScaleWords:
    a, b = scales
    return ScaleWords(a if len(a) == 1 else a[rows], b if b.shape[1] == 1 else b[:, columns])


class KeptPart(NamedTuple):
    """A call of some rows and columns of D."""

    call: Call
    rows: Lines
    columns: Lines


@dataclass
class RecordedCallable:
    """A black box that keeps some results of its calls (`kept`) and every n-th call entirely (`whole`).

    seed: of the experiments. evaluate: computes the results of models. calls, elements: number so far. call_limit: None if
    there is none.
    """

    box: BlackBox
    seed: int = 0
    evaluate: Evaluate = on_cpu
    calls: int = 0
    elements: int = 0
    kept: list[KeptPart] = field(default_factory=list)
    whole: list[Call] = field(default_factory=list)
    call_limit: int | None = None
    _words: int = 0
    _whole_interval: int = 1

    @property
    def spec(self) -> Spec:
        return self.box.spec

    @property
    def name(self) -> str:
        return getattr(self.box, "name", "the callable")

    def rng(self, experiment: int) -> np.random.Generator:
        """Return the random generator of an experiment. Each experiment has its own number."""
        return np.random.default_rng((self.seed, experiment))

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None, keep: bool = True) -> Bits:
        self._check_calls(1)
        d = one_nan(self.box.product(a, b, scales), self.spec.out)
        self.calls += 1
        self.elements += d.size
        if keep:
            self.keep(Call(a, b, scales, d))
        return d

    def of_columns(self, a: Bits, row: int, columns: Lines, queries: int, fill: Callable[[Bits, slice], None]) -> Bits:
        """Return the result of each query in this row of D: a column of B, as many in a call as there are `columns`.

        fill: writes the columns of some queries into zeros [queries, K].
        """
        spec, width = self.spec, len(columns)
        d = np.empty(queries, spec.out.dtype)
        at_once = width * max(1, SENT_WORDS // (spec.n * spec.k))
        for start in range(0, queries, at_once):
            some = slice(start, min(start + at_once, queries))
            count = some.stop - start
            calls = -(-count // width)
            lines = np.zeros((calls * width, spec.k), spec.b.dtype)
            fill(lines[:count], some)
            b = lines.reshape(calls, width, spec.k)
            if width < spec.n:
                b = np.zeros((calls, spec.n, spec.k), spec.b.dtype)
                b[:, columns] = lines.reshape(calls, width, spec.k)
            d[some] = self.batched_products(a, b)[:, row, columns].reshape(-1)[:count]
        return d

    def batched_products(self, a: Bits, b: Bits) -> Bits:
        """Return the results [calls, M, N] of calls with the same A, b [calls, N, K]."""
        if not self.takes_windows:
            return np.stack([self.product(a, each) for each in b])
        self._check_calls(len(b))
        d = self.reduce_windows(b.reshape(-1), np.arange(len(b) * self.spec.n).reshape(len(b), -1) * self.spec.k)
        for each, result in zip(b, d, strict=True):
            self.keep(Call(a, each, None, result))
        return d

    @property
    def takes_windows(self) -> bool:
        return hasattr(self.box, "reduce_windows")

    @property
    def gpu(self) -> str | None:
        """Return the "cuda:N" of a reduction that takes tensors of torch on a GPU, otherwise None."""
        return getattr(self.box, "gpu", None)

    def reduce_windows(self, words: Bits, starts: Lines) -> Bits:
        """Return the results [calls, 1, N] of a reduction; column n is words[start : start + K], starts [calls, N]."""
        d: Bits = one_nan(self.box.reduce_windows(words, starts), self.spec.out)  # type: ignore[attr-defined]  # see `takes_windows`
        self.calls += len(d)
        self.elements += d.size
        return d

    def _check_calls(self, more: int) -> None:
        if self.call_limit is not None and self.calls + more > self.call_limit:
            raise TooManyCalls(f"the accumulation order was not determined within {self.call_limit:,} calls")

    def repeat(self, call: Call) -> NDArray[np.bool_]:
        """Repeat a call identically and return which elements differ, [M, N]."""
        return np.asarray(self.product(call.a, call.b, call.scales, keep=False) != call.d)

    def keep(self, call: Call) -> None:
        """Keep some rows and columns of a call, and everything of every n-th call.

        Operands are copied, because some experiments reuse the arrays of the call before.
        """
        (m, k), n = call.a.shape, len(call.b)
        if self._words < KEPT_WORDS:
            rng = np.random.default_rng(self.calls)
            elements = max(LEAST_KEPT, KEPT_PRODUCTS // k)
            height = min(m, max(int(elements**0.5), elements // n))
            rows = np.sort(rng.permutation(m)[:height])
            columns = np.sort(rng.permutation(n)[: max(1, elements // height)])
            self.kept.append(KeptPart(call.part(rows, columns), rows, columns))
            self._words += (len(rows) + len(columns)) * k
        if self.calls % self._whole_interval == 0:
            self.whole.append(Call(call.a.copy(), call.b.copy(), call.scales, call.d))
            while len(self.whole) > min(MOST_WHOLE, max(1, WHOLE_WORDS // (call.a.size + call.b.size + call.d.size))):
                self._whole_interval *= 2
                self.whole = self.whole[1::2]


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

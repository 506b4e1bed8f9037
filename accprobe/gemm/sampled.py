"""Elements of a product under many plans at once: what plans have in common is computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from accprobe.evaluate.product import SumWords, added, merged, product, rounded_to
from accprobe.gemm.known_plans import KnownPlan, Merge, Sizes, inner_sum, merges, node, promotions, roundings, slices
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits
from accprobe.model.product import Chain, ProductModel, addition
from accprobe.model.tree import DotModel


class Sampled:
    """a, b [E, K]: the row and the column of each element. One arithmetic's plans are gone through at a time."""

    def __init__(self, spec: Spec, a: Bits, b: Bits) -> None:
        self._spec, self._a, self._b = spec, a, b

    def of_step(self, name: str, step: DotModel, sizes: Sequence[Sizes]) -> Iterator[tuple[KnownPlan, Bits]]:
        """The plans with slices of such sizes, each with the elements [E] that it gives."""
        chains = _Chains(self._spec, step, self._a, self._b)
        k, inner = self._spec.k, inner_sum(step)
        for size in sizes:
            every = promotions(size) if inner.name == "f32" else [None]
            parts = chains.slices(slices(k, size), every)
            for merge in merges(len(parts), step):
                total = parts[0] if len(parts) == 1 else _merged(merge, parts)
                for rounding in roundings(self._spec, total.fmt):
                    found = rounded_to(total, self._spec.out, rounding)
                    for promoted, d in zip(every, found, strict=True):
                        yield KnownPlan(name, step, k, size, promoted, merge, rounding), d


def _merged(merge: Merge, parts: Sequence[SumWords]) -> SumWords:
    whole = node(merge, tuple(Chain(i, i + 1, (0,)) for i in range(len(parts))))
    return merged(whole, parts, whole.nested)


class _Chains:
    """Sums of chains, each computed once."""

    def __init__(self, spec: Spec, step: DotModel, a: Bits, b: Bits) -> None:
        self._spec, self._step, self._a, self._b = spec, step, a, b
        self._known: dict[range, Bits] = {}

    def slices(self, parts: Sequence[range], every: Sequence[int | None]) -> list[SumWords]:
        """The sum of each part, [len(every), E], promoted every so many products or never."""
        result = self._step.root.arithmetic.result
        inner = inner_sum(self._step)
        self._compute([chunk for ks in parts for size in every for chunk in _chunks(ks, size)])
        found = []
        for ks in parts:
            sums = []
            for size in every:
                first, *others = (SumWords(self._known[chunk], result) for chunk in _chunks(ks, size))
                total = first
                for other in others:
                    total = added(total, other, addition(inner))
                sums.append(rounded_to(total, inner) if len(every) > 1 else total.patterns)
            found.append(SumWords(np.stack(sums), inner if len(every) > 1 else result))
        return found

    def _compute(self, chunks: Sequence[range]) -> None:
        """Those that are not known, of one length together."""
        new = sorted({chunk for chunk in chunks if chunk not in self._known}, key=lambda ks: (len(ks), ks.start))
        spec, pattern = self._spec, tuple(range(self._step.products))
        for length, some in groupby(new, len):
            alike = list(some)
            ks = np.array([chunk.start for chunk in alike])[:, None] + np.arange(length)
            model = ProductModel(
                spec.a, spec.b, length, self._step, Chain(0, length, pattern), self._step.root.arithmetic.result
            )
            a, b = (np.moveaxis(lines[:, ks], 0, 1)[:, :, None, :] for lines in (self._a, self._b))
            for chunk, d in zip(alike, product(model, a, b)[..., 0, 0], strict=True):
                self._known[chunk] = d


def _chunks(ks: range, size: int | None) -> list[range]:
    every = len(ks) if size is None else size
    return [ks[start : start + every] for start in range(0, len(ks), every)]

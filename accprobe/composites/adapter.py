"""Composites of torch (a sum along each row and steps around it) as callables of x [rows, K]: results as bit patterns."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from accprobe.callables.adapter import CallableAdapter
from accprobe.callables.arrays import open_arrays
from accprobe.callables.opening import Opened, ProductRequest
from accprobe.callables.operands import Ints
from accprobe.callables.options import Options, OptionValue, with_defaults
from accprobe.callables.reductions import check_arrays
from accprobe.callables.spec import Spec
from accprobe.composites.functions import ENOUGH_IN_16_BITS, SINGLE
from accprobe.composites.steps import COMPOSITES, Arguments
from accprobe.errors import AccprobeError
from accprobe.isa.formats import Bits
from accprobe.records.products import CompositeRecord

# Default limit of the elements of x on which a plan is verified.
ELEMENTS_OF_X = {"cpu": 1 << 25, "cuda": 1 << 27}


class CompositeAdapter(CallableAdapter):
    """A composite of x [rows, K], such as softmax along K, with the interface of a product.

    `product` multiplies ones by x: it calls the composite and returns the first result of each row, which is enough to test
    whether calls repeat. given: eps and reduction of the report's row. record: the steps, once they are known.
    """

    def __init__(self, name: str, spec: Spec, given: Arguments, device: str | None) -> None:
        self.composite, self.given = COMPOSITES[name], given
        self.record: CompositeRecord | None = None
        self._whole: Any = None
        self.calls = 0
        super().__init__(spec, self._first_column, open_arrays("torch", device), name, by_columns=True)
        self.library.replays = self.library.device.startswith("cuda")
        self._now = self._by_row(Arguments(given.eps))

    def _first_column(self, a: Any, b: Any) -> Any:
        self._whole = self.composite.call(b.T, self._now)
        return self._whole[:, :1].T

    def _by_row(self, given: Arguments) -> Arguments:
        """Return arguments with which the results of rows are not reduced; targets are an array on the device."""
        if not self.composite.takes_target:
            return given
        targets = np.arange(self.spec.n) % self.spec.k if given.targets is None else given.targets
        return Arguments(given.eps, self._on_device(targets), "none")

    def _on_device(self, targets: Any) -> Any:
        import torch

        return torch.from_numpy(targets).to(self.library.device)

    @property
    def columns(self) -> int:
        """Return the number of results of a row: K or 1. Call the composite first."""
        return int(self._whole.shape[1])

    @cached_property
    def cupy(self) -> Any:
        """Return cupy if results can be predicted on the composite's GPU, otherwise None.

        cupy flushes subnormal numbers. They change results of random rows only if each element has a result, as in softmax.
        """
        if not (self.library.device.startswith("cuda") and self.spec.b is self.spec.out is SINGLE and self.columns == 1):
            return None
        try:
            import cupy
        except ImportError:
            return None
        return cupy

    def on_device(self) -> Any:
        """Return a context in which cupy uses the composite's GPU."""
        return self.cupy.cuda.Device(int(self.library.device.removeprefix("cuda:")))

    def results(self, x: Bits, given: Arguments) -> Bits:
        """Return the result words [rows, K] or [rows, 1] of x [rows, K]."""
        self.calls += 1
        self._now = self._by_row(given)
        self.product(np.full((1, self.spec.k), self.spec.a.whole(1), self.spec.a.dtype), x)
        return self.library.patterns(self._whole, self.spec.out)

    def reduce_windows(self, words: Bits, starts: Ints, targets: Any) -> Bits:
        """Return the result words [calls · rows, columns] of calls with row r = words[start : start + K].

        starts: [calls, rows]; targets: of the rows of each call, or None.
        """
        self.calls += len(starts)
        given = self._by_row(Arguments(self.given.eps, targets))
        with self._one_sentence("raises"):
            found = self.library.reduced(
                lambda x: self.composite.call(x.T, given), words, starts, self.spec.k, self.spec.b, True
            )
        return self.library.patterns(found, self.spec.out).reshape(starts.size, -1)

    def reduced(self, x: Bits, targets: Any) -> Bits:
        """Return the result word [1, 1] of all rows, reduced by mean or sum as given."""
        self.calls += 1
        operand = self.library.operand("x", x, self.spec.b)
        found = self.composite.call(operand, Arguments(None, self._on_device(targets), self.given.reduction))
        return self.library.patterns(found.reshape(1, 1), self.spec.out)

    def limit_elements(self, elements: int) -> int:
        """Return the default number of fresh results: fewer if a long row has one result, more for 16 bits with K results."""
        terms = self.spec.k // self.columns  # elements of x for each result
        if self.cupy is not None:
            return elements
        limit = ELEMENTS_OF_X["cuda" if self.library.device.startswith("cuda") else "cpu"]
        wanted = elements if self.spec.out is SINGLE or terms > 1 else ENOUGH_IN_16_BITS
        return min(wanted, max(1, limit // terms))


def open_composite(
    name: str, request: ProductRequest, options: Options, device: str | None, arrays: str | None = None
) -> Opened:
    """Open a composite of the last dimension of x [rows, K]. Raises AccprobeError."""
    check_arrays(name, arrays)
    composite = COMPOSITES[name]
    if request.reduced != "last":
        raise AccprobeError(f"{name} is measured along the last dimension only: give --dim last")
    fmt = request.a or SINGLE
    if fmt.name not in composite.formats or request.out not in (None, fmt):
        raise AccprobeError(f"{name} is measured from and to {', '.join(composite.formats)}: give --dtype, and no other --out")
    defaults: dict[str, OptionValue] = {} if composite.eps is None else {"eps": composite.eps}
    if composite.reductions:
        defaults["reduction"] = composite.reductions[0]
        options = {option: "none" if value is None else value for option, value in options.items()}
    chosen = with_defaults(options, defaults, name)
    eps, reduction = chosen.get("eps"), chosen.get("reduction")
    if reduction not in (None, *composite.reductions):
        raise AccprobeError(f"{name} has no reduction '{reduction}': give {', '.join(composite.reductions)}")
    given = Arguments(None if eps is None else float(eps), reduction=None if reduction is None else str(reduction))
    adapter = CompositeAdapter(name, Spec(*request.shape, fmt, fmt, fmt, a_exponent=0), given, device)
    return Opened(adapter, {"dim": "last", **chosen})

"""Reductions as products: the sum over K of x is the product of a row of ones with x.

accprobe therefore infers a sum's properties as a product's: order, format and rounding of partial sums, regions of D with
different plans, repeatability. A mean over a power of two is a product with a row of 1/K.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from accprobe.callables.adapter import CallableAdapter, Multiply
from accprobe.callables.arrays import ArrayLibrary, open_arrays
from accprobe.callables.opening import Opened, ProductRequest, UserFunction, find_callable
from accprobe.callables.operands import Ints
from accprobe.callables.options import FLAGS, Options, under_flags, with_defaults
from accprobe.callables.spec import Spec
from accprobe.errors import AccprobeError
from accprobe.evaluate.product import ScaleWords
from accprobe.isa.formats import FORMATS, Bits, Format

COLLECTIVES = ("torch.distributed:all_reduce", "torch.distributed:reduce_scatter")
# Sums and means to suggest for an unknown name.
SUMS_AND_MEANS = ("torch:sum", "torch:mean", "numpy:sum", "numpy:mean")
COMPOSITE_NAMES = (
    *("torch:rms_norm", "torch:softmax", "torch:norm", "torch:logsumexp"),
    *("torch:cross_entropy", "torch:layer_norm", "torch:var", "torch:std"),
)
_KNOWN_COMPOSITES = f"known composites are {', '.join(COMPOSITE_NAMES)}"
# The name of the argument that selects a dimension, by library.
AXIS = {"torch": "dim", "numpy": "axis", "jax": "axis"}


def open_reduction(
    name: str, request: ProductRequest, options: Options, device: str | None = None, arrays: str | None = None
) -> Opened:
    """Open a reduction of x [rows, K], or [K, rows] for the first dimension, as a black box of products with a fixed A.

    request: its shape is (1, rows, K); for collectives see `open_collective`. Raises AccprobeError, also for no sum or mean.
    """
    if name in COLLECTIVES:
        from accprobe.callables.collectives import open_collective

        check_arrays(name, arrays)
        return open_collective(name, request, options, device)
    own = find_callable(name, (*SUMS_AND_MEANS, *IN_PART, *COMPOSITE_NAMES, *COLLECTIVES))
    part = ""
    if isinstance(own, UserFunction) and name in IN_PART:
        function, part = IN_PART[name]
        own = replace(own, function=function)
    if not isinstance(own, UserFunction):
        raise AccprobeError(f"{name} is a matrix product: use `accprobe gemm {name}`")
    library = open_arrays(arrays or own.arrays, device)
    library.replays = name.startswith("torch:") and library.device.startswith("cuda")
    return Opened(reduction_of(own, request, options, library), {"dim": request.reduced or "last", **options}, part)


def reduction_of(own: UserFunction, request: ProductRequest, options: Options, library: ArrayLibrary) -> ReductionAdapter:
    """Return a function of x as a black box. Raises AccprobeError if it is no sum or mean of one dimension."""
    fmt = request.a or FORMATS["f32"]
    if fmt.is_integer:
        raise AccprobeError(f"sums of {fmt} are exact in any order: give a float format with --dtype")
    if request.reduced == "all" and request.shape[1] != 1:
        raise AccprobeError("--dim all adds every element: give --shape 1xK, or a shape with 1 row")
    spec = Spec(*request.shape, fmt, fmt, request.out or fmt, a_exponent=0)
    function = _product(own, request.reduced or "last", options, library)
    adapter = ReductionAdapter(spec, function, library, own.name, by_columns=request.reduced != "first", file=own.file)
    if request.out is None:
        adapter.take_result_format()
    adapter.spec = replace(adapter.spec, a_exponent=factor_exponent(adapter))
    adapter.before.clear()
    return adapter


def check_arrays(name: str, arrays: str | None) -> None:
    """Raise AccprobeError for arrays that are not torch's."""
    if arrays not in (None, "torch"):
        raise AccprobeError(f"{name} takes arrays of torch only, not of {arrays}: leave out --arrays")


def check_ranks(name: str, ranks: int | None) -> None:
    """Raise AccprobeError unless a collective, and nothing else, has several ranks."""
    if ranks is None and name in COLLECTIVES:
        raise AccprobeError(
            f"{name} is a collective: give --ranks N, its number of processes; --shape is the number of elements"
        )
    if ranks is not None and name not in COLLECTIVES:
        raise AccprobeError(f"{name} is not a collective such as {COLLECTIVES[0]}: leave --ranks out, and give --shape ROWSxK")
    if ranks is not None and ranks < 2:
        raise AccprobeError("one rank adds nothing: give --ranks 2 or more")


class ReductionAdapter(CallableAdapter):
    """A reduction as a product [1, rows] with a fixed A: the function takes x alone."""

    def set_operands(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> None:
        with self._one_sentence("could not receive its operands:"):
            self._operands = (self.library.operand("b", b.T, self.spec.b, self._by_columns),)

    def _sent(self, a: Bits, b: Bits, scales: ScaleWords | None) -> list[tuple[str, Format, Bits]]:
        return [("x", self.spec.b, b.T)]

    @property
    def gpu(self) -> str | None:
        """Return "cuda:N" if x is a tensor of torch on a GPU, otherwise None."""
        return self.library.device if self.library.name == "torch" and self.library.device.startswith("cuda") else None

    def reduce_windows(self, words: Bits, starts: Ints) -> Bits:
        """Return the results [calls, 1, rows] of calls with row r = words[start : start + K], starts [calls, rows].

        Words and results are copied to and from the device once.
        """
        with self._one_sentence("raises"), np.errstate(all="ignore"):
            found = self.library.reduced(self._function, words, starts, self.spec.k, self.spec.b, self._by_columns)
        return self._patterns(found, (len(starts),))


class RowsOfX:
    """A reduction as a product with A = x, for comparisons of different numbers of rows."""

    def __init__(self, adapter: CallableAdapter) -> None:
        self._adapter = adapter
        self.spec = replace(adapter.spec, m=adapter.spec.n, n=1, a_exponent=None)

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        """Return the reductions of the rows of a, [M, 1]; b is ignored."""
        spec = self._adapter.spec
        return self._adapter.product(np.full((1, spec.k), spec.a.whole(1), spec.a.dtype), a).T


def _add_at_one_index(name: str, x: Any, dim: int) -> Any:
    """Return zeros plus all elements of x along dim, added at index 0."""
    import torch

    shape = [1 if i == dim % x.ndim else size for i, size in enumerate(x.shape)]
    index = torch.zeros(x.shape[dim] if name == "index_add" else x.shape, dtype=torch.int64, device=x.device)
    return getattr(torch, name)(x.new_zeros(shape), dim, index, x).squeeze(dim)


# Torch functions that return several sums: the function that returns the probed sum, and the name of that sum.
IN_PART: dict[str, tuple[Callable[..., Any], str]] = {
    "torch:cumsum": (lambda x, dim: x.cumsum(dim).select(dim, -1), "the last element of each cumulative sum"),
    **{
        f"torch:{name}": (partial(_add_at_one_index, name), "the sum of zeros and K elements with the same index")
        for name in ("index_add", "scatter_add")
    },
}


def _product(own: UserFunction, reduced: str, options: Options, library: ArrayLibrary) -> Multiply:
    """Return the function of b [K, rows] that reduces it, with its result as [1, rows]."""
    flags = {option: options[option] for option in FLAGS if option in options and not own.takes(option)}
    with_defaults(flags, dict.fromkeys(FLAGS), own.name)
    chosen = {name: value for name, value in options.items() if name not in flags}
    axis = AXIS[library.name]
    in_package = not own.name.partition(":")[0].endswith(".py")
    if reduced != "all" and (in_package or own.takes(axis)):
        chosen[axis] = 0 if reduced == "first" else -1
    function: Any = partial(own.function, **chosen)

    def reduce(b: Any) -> Any:
        x = b if reduced == "first" else b.T
        try:
            result = function(x[0] if reduced == "all" else x)
        except TypeError as e:
            if axis in chosen and re.search(f"'{axis}'|missing .* argument", str(e)):
                raise AccprobeError(f"{own.name} is not a reduction of x along {axis}: {' '.join(str(e).split())}") from e
            raise
        if getattr(result, "shape", None) is None or math.prod(result.shape) != b.shape[1]:
            found = f"shape {tuple(result.shape)}" if hasattr(result, "shape") else f"type {type(result).__name__}"
            each = f"x has {b.shape[1]} {'columns' if reduced == 'first' else 'rows'}: return an array with a result for each"
            each = f"accprobe needs one array; {_KNOWN_COMPOSITES}" if in_package else each
            raise AccprobeError(f"{own.name} returns a result of {found}; {each}")
        return result.reshape(1, -1)

    return under_flags(reduce, flags) if library.name == "torch" else reduce


# Maximum number of elements that are not 0 in the test for a sum: f16 and bf16 hold sums of so few small numbers exactly.
TESTED = 16


def factor_exponent(adapter: CallableAdapter, size: str = "elements: give a K that is a power of two") -> int:
    """Return 0 for a sum and -log2 K for a mean of a power of two. Raises AccprobeError for other reductions.

    size: the noun of what is added, and the advice where a mean has an unsuitable number of them.
    """
    spec = adapter.spec
    ones = np.zeros((spec.n, spec.k), spec.b.dtype)
    places = np.arange(0, spec.k, -(-spec.k // TESTED))
    ones[:, places] = spec.b.whole(1)
    with_threes = ones.copy()
    with_threes[:, places[::2]] = spec.b.whole(3)
    found = np.array([_value(adapter, ones), _value(adapter, with_threes)])
    # Each 3 in place of a 1 adds 2 to a sum. A sum may drop or double an element, which is found later.
    expected = np.array([len(places), len(places) + 2 * -(-len(places) // 2)])
    if np.all(abs(found * spec.k - expected) < 0.01 * expected):
        if spec.k & (spec.k - 1):
            raise AccprobeError(f"{adapter.name} is a mean of {spec.k} {size}")
        return 1 - spec.k.bit_length()
    if not np.all(abs(found - expected) < 0.3 * expected):
        raise AccprobeError(
            f"{adapter.name} is not a sum or mean: {len(places)} ones among zeros give {found[0]:g}, and {found[1]:g} if"
            f" every other one is replaced by 3; {_KNOWN_COMPOSITES}"
        )
    return 0


def _value(adapter: CallableAdapter, x: Bits) -> float:
    """Return the result for the first row of x."""
    spec = adapter.spec
    found = adapter.product(np.full((1, spec.k), spec.a.whole(1), spec.a.dtype), x)
    return float(found[0, 0] if spec.out.is_integer else spec.out.values(found)[0, 0])

"""Assertions on matrix products and reductions, which probe the function, and on torch programs.

f: any function of a [M, K] and b [K, N] that returns d [M, N], or of x [rows, K] that returns a sum for each row. The
AssertionError has the finding, its place, and for an f at the top level of a file the command for a closer look. An f that
raises, or returns no array of numbers of that shape, is an AccprobeError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypedDict, TypeVar, Unpack

import numpy as np

from accprobe.callables.adapter import CallableAdapter, Multiply
from accprobe.callables.arrays import open_arrays
from accprobe.callables.opening import ProductRequest, UserFunction
from accprobe.callables.operands import Ints, draw_operands, layout_of, product_exponents
from accprobe.callables.reductions import ReductionAdapter, RowsOfX, reduction_of
from accprobe.callables.spec import BlackBox, Spec, usual_result
from accprobe.compare.pairs import versus
from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.evaluate.product import ScaleWords
from accprobe.gemm import dots
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.characterise import characterise
from accprobe.gemm.checks import contract
from accprobe.gemm.checks.regions import Region, ranges, same_rows
from accprobe.gemm.dots import SparseDots
from accprobe.gemm.findings import miscounts, row
from accprobe.gemm.tree.decomposition import decompose, products_per_sum
from accprobe.gemm.tree.pairs import make_tree_builder
from accprobe.infer.tree_builder import NoTree
from accprobe.isa import formats
from accprobe.isa.formats import Bits
from accprobe.model.product import Node, chains_of
from accprobe.operands.distributions import DISTRIBUTIONS
from accprobe.records.products import ProductRow

_Found = TypeVar("_Found")

SMALL_SHAPE = (64, 64, 512)

ROWS_OF_X = (64, 1024)
"""The shape of x in a comparison of two reductions."""

MS = (1, 2, 4, 8, 16, 17, 32, 64)

TRIPLES = 256
"""Number of probed triples: the k of X, y and -X."""

LADDERS = 16
"""Maximum number of triples that lose y at which the number of kept bits is measured."""

DRAWS_OF_A_KIND = 2
"""Products of fresh operands of each kind on which two functions are compared."""

FRESH = 1 << 12
"""Elements of D, of fresh operands, that a plan is verified on."""


class How(TypedDict, total=False):
    """Options of the assertions.

    shape: M, N, K, by default (64, 64, 512); or rows and K of the x that f adds along K, a reduction. dtype: "f32" (default),
    "bf16", "e4m3", …, or "e4m3:e5m2" for another format of B. out: format of the result, by default what the function returns.
    arrays: "numpy" (default), "torch" or "jax". device: "cpu" (default) or "cuda:N".
    """

    shape: tuple[int, int, int] | tuple[int, int]
    dtype: str
    out: str
    arrays: str
    device: str


def assert_every_k_once(f: Multiply, **how: Unpack[How]) -> None:
    """Assert that element i, j counts every a[i, k]·b[k, j] once, and no other product."""
    __tracebackhide__ = True
    probed = RecordedCallable(_open_callable(f, how))
    whole = Region(*_lines(probed.spec), probed.spec.m * probed.spec.n)
    counted = _probed(f, probed, how, lambda: contract.count_products(probed, [whole]))
    wrong = [(x.mispaired or _miscounted(x.once), "" if x.region is whole else f", at {x.region}") for x in counted]
    wrong = [(which, at) for which, at in wrong if which]
    if wrong:
        _fail(f, how, probed.spec, f"each_product_once: no, {'; '.join(which + at for which, at in wrong)}")


def _miscounted(found: Ints) -> str:
    return "; ".join(f"k = {ranges(ks)} {what}, {len(ks)} of {len(found)}" for what, ks in miscounts(found))


def assert_promotes(f: Multiply, at_most: int = 128, **how: Unpack[How]) -> None:
    """Assert that no accumulator takes more than `at_most` products before its sum is added to another."""
    __tracebackhide__ = True
    probed = RecordedCallable(_open_callable(f, how))
    leaves = np.flatnonzero(_counts(f, probed, how) == 1)
    try:
        tree = _tree(probed, leaves)
    except NoTree as e:
        _fail(f, how, probed.spec, f"promote_every: no order of its sums was found, {e}")
    ks = np.sort(max((chain.taken for chain in chains_of(tree)), key=len))
    if len(ks) > at_most:
        found = f"one accumulator takes {len(ks)} products, k = {ranges(ks)}; expected at most {at_most}"
        _fail(f, how, probed.spec, f"promote_every: {found}")


def assert_accumulates(f: Multiply, bits: int = 23, **how: Unpack[How]) -> None:
    """Assert that sums keep `bits` fraction bits: X + y - X is y for y = X · 2^-bits, at 256 triples of k."""
    __tracebackhide__ = True
    if type(bits) is not int or bits < 1:
        raise AccprobeError(f"bits={bits!r:.40} is not a positive integer")
    probed = RecordedCallable(_open_callable(f, how))
    spec = probed.spec
    low, high = product_exponents(spec)
    if spec.k < 3:
        raise AccprobeError(f"K is {spec.k}: give at least 3, for X, y and -X")
    if high - low < bits:
        raise AccprobeError(f"products of {spec.a} and {spec.b} into {spec.out} show no {bits} bits: at most {high - low}")
    top = min(max(0, low + bits), high)
    leaves = np.flatnonzero(_counts(f, probed, how) == 1)
    if len(leaves) < 3:
        _fail(f, how, spec, f"effective_bits: unknown, because only {len(leaves)} of {spec.k} k are counted once")
    ks = leaves[_places(len(leaves))]
    lost = ks[~_kept(probed, ks, top, np.full(len(ks), bits))]
    if not len(lost):
        return
    some = lost[:LADDERS]
    steps = np.arange(1, bits + 1)
    kept = _kept(probed, np.repeat(some, bits, axis=0), top, np.tile(steps, len(some)))
    some = some[: len(kept) // bits]  # `dots.probe` limits the number of calls
    kept = kept[: some.shape[0] * bits].reshape(-1, bits)
    least = np.where(kept.all(axis=1), bits, kept.argmin(axis=1))
    k = ", ".join(map(str, some[least.argmin()]))
    found = int(least.min())
    where = f"X + X·2^-{found + 1} - X is not X·2^-{found + 1} with the three at k = {k}"
    _fail(f, how, spec, f"effective_bits: {found}, expected {bits}: {where}; the same at {len(lost)} of {len(ks)} places")


def assert_batch_invariant(f: Multiply, ms: Sequence[int] = MS, **how: Unpack[How]) -> None:
    """Assert that row i of A, or of a reduction's x, gives the same bits for each number of rows `ms`."""
    __tracebackhide__ = True
    if not len(ms):
        raise AccprobeError("ms is empty: give at least one number of rows")

    def box(m: int) -> BlackBox:
        called = _open_callable(f, how, m)
        return RowsOfX(called) if isinstance(called, ReductionAdapter) else called

    groups = same_rows(box, ms, of="m" if len(how.get("shape", SMALL_SHAPE)) > 2 else "rows")
    if len(groups) > 1 or any(group.changing for group in groups):
        results = f", the same rows have {len(groups)} results" if len(groups) > 1 else ""
        _fail(f, how, _open_callable(f, how).spec, f"not batch invariant{results}: {'; '.join(map(str, groups))}")


def assert_same_plan(f: Multiply, g: Multiply, **how: Unpack[How]) -> None:
    """Assert that both return the same bits for fresh operands and for every probe that finds the plan of `f`."""
    __tracebackhide__ = True
    both = _Pair(_open_callable(f, how), _open_callable(g, how))
    if both.spec.out is not both.other.spec.out:
        _fail(f, how, both.spec, f"it gives {both.spec.out}, {_name(g)} {both.other.spec.out}")
    rng = np.random.default_rng(0)
    try:
        for kind in DISTRIBUTIONS * DRAWS_OF_A_KIND:
            both.product(*draw_operands(both.spec, kind, rng))
        characterise(both, FRESH)
    except _Differ as e:
        place = str(e)
    else:
        return
    try:
        _, changes = versus(*(_row(_open_callable(each, how), name) for name, each in (("f", f), ("g", g))))
    except AccprobeError as e:
        changes = f"no plan was found for both, {e}"
    _fail(f, how, both.spec, f"another plan than {_name(g)}: {changes} ({place})")


def assert_same_reduction(f: Callable[[Any], Any], g: Callable[[Any], Any], **how: Unpack[How]) -> None:
    """Assert that both add the rows of x, 64 of 1024 elements by default, with the same bits."""
    __tracebackhide__ = True
    how.setdefault("shape", ROWS_OF_X)
    assert_same_plan(f, g, **how)


def assert_same_bits(
    f: Callable[..., Any],
    g: Callable[..., Any] | None = None,
    *,
    inputs: Sequence[Any] = (),
    batch: tuple[int, int] | None = None,
) -> None:
    """Check that two torch programs give the same bits; the AssertionError names the first operation that does not, and why.

    g: the other program, which is f itself by default. inputs: arguments of both. batch: how many of the first rows of each
    tensor of `inputs` the two runs take; the first row of both is compared.

        assert_same_bits(model, torch.compile(model), inputs=[x])
        assert_same_bits(model, inputs=[x], batch=(1, 8))
    """
    __tracebackhide__ = True
    from accprobe.trace.both import ProgramRun, run_both
    from accprobe.trace.summary import count_operations, trace_headline

    sizes = batch or (None, None)
    one, other = (
        ProgramRun(function=partial(each, *_first_rows(inputs, size))) for each, size in zip((f, g or f), sizes, strict=True)
    )
    found = run_both(one, other, mapping=f"batch={batch[0]}:{batch[1]}" if batch else "")
    if not found.equal:
        raise AssertionError(f"{trace_headline(found)}\n{count_operations(found)}")


def _first_rows(inputs: Sequence[Any], size: int | None) -> list[Any]:
    """Return the inputs with the first `size` rows of each tensor (None: all). Raises AccprobeError if a tensor has fewer."""
    if size is None:
        return list(inputs)
    short = [tuple(x.shape) for x in inputs if hasattr(x, "shape") and (not x.shape or len(x) < size)]
    if short:
        raise AccprobeError(f"an input has shape {list(short[0])}: a batch of {size} takes {size} rows of each tensor")
    return [x[:size] if hasattr(x, "shape") else x for x in inputs]


def _row(called: CallableAdapter, name: str) -> ProductRow:
    """Return the record of the plan, by this name. Raises NoTree where none is found."""
    outcome = characterise(called, FRESH, before=called.before)
    if outcome.main.plan is None:
        raise NoTree(outcome.main.reason)
    return row(outcome, name)


def _tree(probed: RecordedCallable, leaves: Ints) -> Node:
    """Return the chains and sums that add the products at these k. Raises NoTree."""
    tree = make_tree_builder(probed, *_lines(probed.spec), leaves).tree(leaves)
    return decompose(tree, products_per_sum([tree]))


class _Differ(Exception):
    """Two functions gave different bits: where, and which."""


class _Pair:
    """A black box that sends every probe to a second function too. Raises _Differ."""

    def __init__(self, one: CallableAdapter, other: CallableAdapter) -> None:
        self.spec, self._one, self.other = one.spec, one, other

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        d, other = self._one.product(a, b, scales), self.other.product(a, b, scales)
        differ = np.argwhere(d != other)
        if len(differ):
            y, x = differ[0]
            digits = self.spec.out.storage_bits // 4
            raise _Differ(f"first seen at row {y}, column {x}: {d[y, x]:0{digits}x} and {other[y, x]:0{digits}x}")
        return d


def _open_callable(f: Callable[..., Any], how: How, m: int | None = None) -> CallableAdapter:
    for option in how:
        if option not in How.__annotations__:
            raise UnknownName(f"there is no option '{option}'; {nearest(option, How.__annotations__)}")
    if len(how.get("shape", SMALL_SHAPE)) not in (2, 3):
        raise AccprobeError(f"shape={how['shape']} is not a shape: give M, N and K, or rows and K of a reduction")
    *rows, n, k = how.get("shape", SMALL_SHAPE)
    a, _, b = how.get("dtype", "f32").partition(":")
    of_a = formats.get(a)
    out = formats.get(how["out"]) if "out" in how else None
    handover = open_arrays(how.get("arrays", "numpy"), how.get("device", "cpu"))
    if not rows:
        file = _file(f)
        own = UserFunction(f"{Path(file).name or handover.name}:{_name(f)}", f, file, handover.name)
        return reduction_of(own, ProductRequest((1, n if m is None else m, k), of_a, of_a, out, reduced="last"), {}, handover)
    spec = Spec(rows[0] if m is None else m, n, k, of_a, formats.get(b or a), out or usual_result(of_a))
    called = CallableAdapter(spec, f, handover, _name(f), file=_file(f))
    if out is None:
        called.take_result_format()
    called.check()
    return called


def _lines(spec: Spec) -> tuple[Ints, Ints]:
    return np.arange(spec.m), np.arange(spec.n)


def _counts(f: Multiply, probed: RecordedCallable, how: How) -> Ints:
    __tracebackhide__ = True
    return _probed(f, probed, how, lambda: contract.term_multiplicity(probed, *_lines(probed.spec)))


def _probed(f: Multiply, probed: RecordedCallable, how: How, experiment: Callable[[], _Found]) -> _Found:
    """Run an experiment. f fails the assertion if it is not a product of two matrices; its exceptions are raised again."""
    __tracebackhide__ = True
    try:
        contract.refuse_non_products(probed)
        return experiment()
    except AccprobeError as e:
        if e.__cause__ is not None:  # f raised an exception
            raise
        _fail(f, how, probed.spec, str(e))


def _places(k: int) -> Ints:
    """Return k of X, y and -X [n, 3]: adjacent, distant, in ascending and in random order."""
    rng = np.random.default_rng(0)
    quarter = TRIPLES // 4
    starts = np.linspace(0, k - 3, quarter).astype(np.int64)
    near = starts[:, None] + np.arange(3)
    ends = np.stack([np.zeros(quarter, np.int64), starts + 1, np.full(quarter, k - 1)], axis=1)
    some = np.stack([rng.permutation(k)[:3] for _ in range(2 * quarter)])
    return np.concatenate([near, ends, np.sort(some[:quarter], axis=1), some[quarter:]])


def _kept(probed: RecordedCallable, ks: Ints, top: int, below: Ints) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return where the products X + Y - X sum to Y, for X = 2^top and Y = 2^(top - below); `dots.probe` may drop the last."""
    spec = probed.spec
    powers = {exponent: layout_of(spec).power(exponent) for exponent in {top, *(top - below).tolist()}}
    small = np.array([powers[int(exponent)] for exponent in top - below])
    x, y = powers[top]
    a = np.stack([np.full(len(ks), x), small[:, 0], np.full(len(ks), x)], axis=1).astype(spec.a.dtype)
    b = np.stack([np.full(len(ks), y), small[:, 1], np.full(len(ks), y | spec.b.sign_bit)], axis=1).astype(spec.b.dtype)
    results = dots.probe(probed, SparseDots(ks, a, b), *_lines(spec))
    return np.asarray(spec.out.values(results.d) == np.exp2((top - below[: len(results)]).astype(np.float64)))


def _fail(f: Multiply, how: How, spec: Spec, sentence: str) -> NoReturn:
    __tracebackhide__ = True
    file, name = _file(f), getattr(f, "__qualname__", "<")
    command = f"\n{_command(file, name, how, spec)}" if file and "<" not in name else ""
    raise AssertionError(f"{_name(f)}: {sentence}{command}")


def _command(file: str, name: str, how: How, spec: Spec) -> str:
    dtype = spec.a.name if spec.a is spec.b else f"{spec.a}:{spec.b}"
    others = " ".join(f"--{key} {how[key]}" for key in ("out", "arrays", "device") if key in how)
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    command, shape = ("gemm", spec.shape) if spec.a_exponent is None else ("reduce", f"{spec.n}x{spec.k}")
    return f"look closer: accprobe {command} {shown}:{name} --shape {shape} --dtype {dtype} {others}".rstrip()


def _name(f: Multiply) -> str:
    return getattr(f, "__qualname__", None) or getattr(f, "__name__", None) or type(f).__name__


def _file(f: Multiply) -> str:
    try:
        return inspect.getsourcefile(f) or ""
    except TypeError:  # of functions that are not written in Python
        return ""

"""Random operands of whole products, of several kinds, and what the plan makes of them held against what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from accprobe.evaluate.any_order import Evaluate, given_by_some_order, on_cpu
from accprobe.evaluate.product import ScaleWords, product
from accprobe.gemm.blackbox import RecordedCallable, WholeCall
from accprobe.gemm.distributions import KINDS, LARGE_KINDS, random_lines
from accprobe.gemm.failures import one_sentence
from accprobe.gemm.layout import Layout, layout_of
from accprobe.gemm.pairs import Ints
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import ProductModel

MOST_SHOWN = 4
_NEAR = 230
"""Of 256 pairs of products of which one takes the other away, those that do so wholly."""

TOGETHER = 1 << 12
"""Elements that are predicted at once: several calls of a small product."""

MANY = 16
"""Calls of a product so small that they are predicted sooner all at once on the CPU than one by one on a GPU."""


OWN = "own data"
"""The kind of operands that the user gives."""

DrawOwn = Callable[[np.random.Generator], tuple[Bits, Bits]]
"""Draws patterns of A [M, K] and B [N, K]."""


@dataclass(frozen=True)
class Wrong:
    """An element that is not as predicted."""

    kind: str
    row: int
    column: int
    got: int
    expected: int


@dataclass
class Proof:
    """Fresh elements compared, those that differ, the first of them, and the calls among which they were.

    subnormal: those that differ and of which both words are subnormal.
    """

    elements: int = 0
    wrong: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    wrong_kinds: dict[str, int] = field(default_factory=dict)
    subnormal: int = 0
    first: list[Wrong] = field(default_factory=list)
    disputed: list[WholeCall] = field(default_factory=list)

    def count(self, kind: str, elements: int, wrong: int) -> None:
        self.elements += elements
        self.kinds[kind] = self.kinds.get(kind, 0) + elements
        self.wrong += wrong
        self.wrong_kinds[kind] = self.wrong_kinds.get(kind, 0) + wrong


@dataclass(frozen=True)
class Predicted:
    """A model for some rows and columns of D."""

    model: ProductModel
    rows: Ints
    columns: Ints


def evaluator_of(device: str) -> Evaluate:
    """What predicts elements fastest where a callable computes."""
    if not device.startswith("cuda"):
        return on_cpu
    from accprobe.evaluate.cuda.whole import on_gpu

    gpu = on_gpu(device)
    if gpu is None:
        return on_cpu

    def evaluate(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None) -> Bits:
        with one_sentence(f"the plan's own results cannot be computed on {device}:", device):
            return gpu(model, a, b, scales)

    return evaluate


def prove(
    asked: RecordedCallable,
    parts: Sequence[Predicted],
    elements: int,
    seed: int,
    evaluate: Evaluate = on_cpu,
    tell: Callable[[int], None] = lambda done: None,
    proof: Proof | None = None,
    own: DrawOwn | None = None,
) -> Proof:
    """Products of fresh operands of every kind until so many elements are compared. proof: what is counted in, as it grows.

    own: draws the user's own operands, which are a kind more.
    """
    proof, layout, rng = proof or Proof(), layout_of(asked.spec), np.random.default_rng((seed, 0xF5E5))
    kinds = KINDS if own is None else (*KINDS, OWN)
    share, area = -(-elements // len(kinds)), sum(len(part.rows) * len(part.columns) for part in parts)
    several = max(1, min(TOGETHER // area, -(-share // area)))
    at_once = several > 1 if evaluate is on_cpu else several >= MANY
    for number, kind in enumerate(cycle(kinds), 1):
        calls = []
        for _ in range(several):
            a, b, scales = drawn(asked.spec, kind, rng, own=own)
            calls.append(WholeCall(a, b, asked.product(a, b, scales, keep=False), scales))
        for part in parts:
            left = max(1, (share if number <= len(kinds) else min(share, elements - proof.elements)) // several)
            rows = part.rows
            if len(rows) * len(part.columns) > left:
                rows = np.sort(rng.permutation(rows)[: max(1, left // len(part.columns))])
            if at_once and asked.spec.scale is None and part.model.is_ordered:
                _compare_together(layout, proof, kind, part, rows, calls)
            else:
                for call in calls:
                    _compare(layout, proof, kind, part, rows, call, evaluate)
        if proof.wrong and not proof.disputed:
            proof.disputed = calls
        tell(proof.elements)
        enough = proof.elements >= elements and number >= len(kinds)
        if enough or (proof.wrong and not all(part.model.is_ordered for part in parts)):
            return proof
    return proof


def _compare_together(layout: Layout, proof: Proof, kind: str, part: Predicted, rows: Ints, calls: Sequence[WholeCall]) -> None:
    """Several small calls at once."""
    a, b = np.stack([call.a[layout.distinct_rows(rows)] for call in calls]), np.stack([call.b[part.columns] for call in calls])
    got = np.stack([call.d[np.ix_(rows, part.columns)] for call in calls])
    _count(proof, kind, part.model.result, got, product(part.model, a, b), rows, part.columns)


def of_lines(scales: ScaleWords, rows: Ints, columns: Ints) -> ScaleWords:
    """The scales of some rows and columns."""
    a, b = scales
    return ScaleWords(a if len(a) == 1 else a[rows], b if b.shape[1] == 1 else b[:, columns])


def count_wrong(evaluate: Evaluate, model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None, got: Bits) -> int:
    """Count the elements that the model does not give, of sums that are added in any order in no order."""
    if model.is_ordered:
        return int(np.count_nonzero(evaluate(model, a, b, scales) != got))
    return int(np.count_nonzero(~given_by_some_order(model, a, b, got, scales, evaluate)))


def _compare(layout: Layout, proof: Proof, kind: str, part: Predicted, rows: Ints, call: WholeCall, evaluate: Evaluate) -> None:
    a, b, d, columns = call.a, call.b, call.d, part.columns
    unlike = layout.distinct_rows(rows)
    if not part.model.is_ordered:
        rows = unlike
    got = d if len(rows) == len(a) and len(columns) == len(b) else d[np.ix_(rows, columns)]
    of_rows, of_columns = a if len(unlike) == len(a) else a[unlike], b if len(columns) == len(b) else b[columns]
    scales = call.scales and of_lines(call.scales, unlike, columns)
    if part.model.is_ordered:
        _count(proof, kind, part.model.result, got, evaluate(part.model, of_rows, of_columns, scales), rows, columns)
        return
    found = given_by_some_order(part.model, of_rows, of_columns, got, scales, evaluate, stop=True)
    proof.count(kind, len(found), int(np.count_nonzero(~found)))
    for place in np.flatnonzero(~found)[: MOST_SHOWN - len(proof.first)]:
        y, x = divmod(int(place), len(columns))
        of_one = scales and of_lines(scales, np.array([y]), np.array([x]))
        expected = product(part.model, of_rows[[y]], of_columns[[x]], scales=of_one)
        proof.first.append(Wrong(kind, int(rows[y]), int(columns[x]), int(got[y, x]), int(expected[0, 0])))


def _count(proof: Proof, kind: str, fmt: Format, got: Bits, expected: Bits, rows: Ints, columns: Ints) -> None:
    expected = np.broadcast_to(expected, got.shape)
    differ = got != expected
    count = int(np.count_nonzero(differ))
    proof.count(kind, got.size, count)
    if count:
        proof.subnormal += int(np.count_nonzero(differ & fmt.is_subnormal(got) & fmt.is_subnormal(expected)))
    for place in map(tuple, np.argwhere(differ)[: MOST_SHOWN - len(proof.first)] if count else ()):
        y, x = place[-2:]
        proof.first.append(Wrong(kind, int(rows[y]), int(columns[x]), int(got[place]), int(expected[place])))


def drawn(
    spec: Spec,
    kind: str,
    rng: np.random.Generator,
    rows: Ints | None = None,
    columns: Ints | None = None,
    own: DrawOwn | None = None,
) -> tuple[Bits, Bits, ScaleWords | None]:
    """A [M, K], B [N, K] and scales of a kind. rows, columns: those that are drawn, the others are zero; None: all."""
    if kind == OWN and own is not None:
        a, b = own(rng)
        return layout_of(spec).a(a), b, scale_words(spec, rng)
    shapes = ((spec.m if rows is None else len(rows), spec.k), (spec.n if columns is None else len(columns), spec.k))
    of = zip((spec.a, spec.b), shapes, _exponents(spec, kind) if kind in LARGE_KINDS else (0, 0), strict=True)
    a, b = (random_lines(fmt, shape, kind, rng, exponent) for fmt, shape, exponent in of)
    if kind == "cancelling" and spec.a.is_float:
        a, b = _cancelling(spec, a, b, rng)
    a = layout_of(spec).a(_among_zeros(a, rows, spec.m))
    return a, _among_zeros(b, columns, spec.n), scale_words(spec, rng)


def _exponents(spec: Spec, kind: str) -> tuple[int, int]:
    """Exponents of the operands of one of `LARGE_KINDS`: sums of K products stay in the range of D, and of f32 but for f64."""
    if spec.a.is_integer:
        return 0, 0
    sums = spec.out if spec.out.name == "f64" else min(spec.out, FORMATS["f32"], key=lambda fmt: fmt.max_exponent)
    most = sums.max_exponent - spec.k.bit_length() - (2 if spec.scale is None else 4)  # significands and scales are below 2
    if spec.a_exponent is not None:  # kernels of attention divide by K at the end
        return 0, min(most, spec.b.max_exponent)
    first = {"large": most // 2, "large A": spec.a.max_exponent, "large B": most - spec.b.max_exponent}[kind]
    of_a = min(max(first, spec.a.min_exponent), spec.a.max_exponent)
    of_b = min(max(most - of_a, spec.b.min_exponent), spec.b.max_exponent)
    return min(of_a, max(most - of_b, spec.a.min_exponent)), of_b


def _cancelling(spec: Spec, a: Bits, b: Bits, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Half of the products are others with the other sign, of most elements; which, is drawn too."""
    half = spec.k // 2
    a[:, half : 2 * half] = a[:, :half]
    near = rng.integers(0, 256, (len(b), half), np.uint8) < _NEAR
    b[:, half : 2 * half] = np.where(near, b[:, :half] ^ spec.b.dtype.type(spec.b.sign_bit), b[:, half : 2 * half])
    places = rng.permutation(spec.k)
    return a.take(places, axis=1), b.take(places, axis=1)


def _among_zeros(some: Bits, places: Ints | None, count: int) -> Bits:
    if places is None:
        return some
    whole = np.zeros((count, some.shape[1]), some.dtype)
    whole[places] = some
    return whole


def scale_words(spec: Spec, rng: np.random.Generator) -> ScaleWords | None:
    """Scales that are no powers of two."""
    if spec.scale is None:
        return None
    blocks = -(-spec.k // 128)
    shapes = {
        "tensor": ((1, 1), (1, 1)),
        "row": ((spec.m, 1), (1, spec.n)),
        "1x128": ((spec.m, blocks), (blocks, spec.n)),
        "128x128": ((spec.m, blocks), (blocks, -(-spec.n // 128))),
    }
    a, b = (rng.uniform(0.5, 2.0, shape).astype(np.float32) for shape in shapes[spec.scale])
    if spec.scale == "128x128":
        b = np.repeat(b, 128, axis=1)[:, : spec.n]
    return ScaleWords(a, b)

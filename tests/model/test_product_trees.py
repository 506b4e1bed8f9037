"""Trees of K: the order of k, and invalid trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from planted_models import model_of
from planted_plans import NAMED, drawn
from product_rows import step

from accprobe.evaluate.product import product
from accprobe.isa.instructions import parse
from accprobe.model.product import NO_K, Chain, Merged, ProductModel, addition, chained, folded, nested, restricted, same_order
from accprobe.model.tree import IntegerArithmetic

EIGHT = tuple(range(8))


def test_orders_are_compared_at_any_depth() -> None:
    """Terms of a sum of two change places; a chain may be deeper than Python's limit of recursion."""
    chain = nested("forward", 5000)
    swapped: Any = 0
    for part in range(1, 5000):
        swapped = (part, swapped)
    assert same_order(chain, swapped)
    assert not same_order(chain, nested("backward", 5000))
    assert same_order(((0, 1), (2, 3)), ((3, 2), (0, 1)))
    assert not same_order((0, 1, 2), (1, 0, 2))


def test_k_of_a_chain_in_order() -> None:
    assert Chain(0, 10, EIGHT).ks().tolist() == [*range(10), *[NO_K] * 6]
    assert Chain(4, 20, EIGHT).ks().tolist() == list(range(4, 20))
    assert Chain(0, 16, (0, 2, 1, 3), period=8).ks().tolist() == [0, 2, 1, 3, 8, 10, 9, 11]
    assert Chain(0, 6, (0, 1, 2, 3), shift=-2).ks().tolist() == [NO_K, NO_K, 0, 1, 2, 3, 4, 5]


def test_parts_are_added_in_their_order_however_many() -> None:
    parts = [str(i) for i in range(5)]
    assert folded(nested("tree", 5), parts, "({}+{})".format) == "(((0+1)+(2+3))+4)"
    assert folded(nested("backward", 3), parts, "({}+{})".format) == "((2+1)+0)"
    assert folded(nested("unordered", 3), parts, "({}+{})".format) == "((0+1)+2)"
    assert folded((0, (1, 2), 3), parts, "({}+{})".format) == "((0+(1+2))+3)"
    assert folded(nested("forward", 10**5), range(10**5), max) == 10**5 - 1


def test_chains_of_an_instruction() -> None:
    inst = parse("mma.sync.m16n8k16.f32.bf16.bf16.f32")
    plain, promoted = chained(inst, step(16), 64), chained(inst, step(16), 64, promote_every=32)
    assert [chain.ks().tolist() for chain in plain.chains()] == [list(range(64))]
    assert [chain.ks().tolist() for chain in promoted.chains()] == [list(range(32)), list(range(32, 64))]
    whole = chained(inst, step(16), 64, promote_every=128)
    assert whole.tree == Merged((Chain(0, 64, tuple(range(16))),), "forward", addition())
    swapped = chained(inst, step(16), 32, groups=[range(8, 24), [*range(8), *range(24, 32)]])
    (chain,) = swapped.chains()
    assert chain.ks().tolist() == [*range(8, 24), *range(8), *range(24, 32)]


UNSCALED = {name: model_of(plan) for name, plan in NAMED.items() if plan.scales is None}
DRAWN = {f"drawn: {seed}": model_of(plan) for seed in range(12) if (plan := drawn(seed)).scales is None}


@pytest.mark.parametrize("name", [*UNSCALED, *DRAWN])
def test_restricted_to_the_operands_that_are_not_zero(name: str) -> None:
    """The restricted model gives the same results."""
    model = (UNSCALED | DRAWN)[name]
    rng = np.random.default_rng(5)
    for few in (1, 2, 7):
        used = np.sort(rng.choice(model.k, few, replace=False))
        a, b = np.zeros((6, model.k), model.a.dtype), np.zeros((5, model.k), model.b.dtype)
        a[:, used], b[:, used] = _words(model, rng, (6, few)), _words(model, rng, (5, few))
        smaller, ks = restricted(model, used)
        assert smaller.k == len(ks) <= few * max(2, model.step.products * 2)
        joining = {int(k) for chain in model.chains() for k in chain.ks()}
        assert set(used.tolist()) & joining <= set(ks.tolist())
        assert set(ks.tolist()) <= joining
        d, found = product(model, a, b), product(smaller, a[:, ks], b[:, ks])
        np.testing.assert_array_equal(_without_sign_of_zero(model, found), _without_sign_of_zero(model, d))


def _words(model: ProductModel, rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[Any]:
    if isinstance(model.step.root.arithmetic, IntegerArithmetic):
        return rng.integers(0, 256, shape).astype(model.a.dtype)
    ml_dtype = model.a.ml_dtype if shape[0] == 6 else model.b.ml_dtype
    return rng.standard_normal(shape, np.float32).astype(ml_dtype).view(model.a.dtype)


def _without_sign_of_zero(model: ProductModel, d: NDArray[Any]) -> NDArray[Any]:
    return d if model.result.is_integer else np.where(model.result.values(d) == 0, 0, d)

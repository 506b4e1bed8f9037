"""What the error of a whole product grows with, as the shares of its bound say."""

from __future__ import annotations

from typing import NamedTuple

from accprobe.budget.worst_error import ErrorShare, Loss, error_shares, unit_roundoff
from accprobe.model.product import Chain, Merged, ProductModel, folded
from accprobe.model.tree import FloatArithmetic
from accprobe.report.product_words import FindingsByName

LEAST_SHARE = 0.01
"""Of the bound: smaller shares are not told."""


class _Parts(NamedTuple):
    """What the findings call the parts of a tree. chain: what the products of one are; chunked: whether it is one of the chunks
    of a slice; slice: what the products of all are; split: whether there are several slices.
    """

    chain: str
    chunked: bool
    slice: str
    split: bool


def error_growth(model: ProductModel, found: FindingsByName) -> str:
    """Of a model that has a bound: "the error grows with K", "of the error 94 % grows with 64; 6 % grows with K, …"."""
    shares = error_shares(model)
    bound = sum(share.error for share in shares)
    told = sorted((share for share in shares if share.error >= LEAST_SHARE * bound), key=lambda share: -share.error)
    parts = _parts(found, _of(shares, "additions") < LEAST_SHARE * _of(shares, "sums"))
    words = [_words(share, model, parts) for share in told]
    if len(told) == 1:
        return f"the error {words[0]}"
    several = (f"{100 * share.error / bound:.0f} % {each}" for share, each in zip(told, words, strict=True))
    return f"of the error {'; '.join(several)}"


def _of(shares: list[ErrorShare], loss: Loss) -> float:
    return sum(share.error for share in shares if share.loss == loss)


def _parts(found: FindingsByName, alone: bool) -> _Parts:
    """alone: whether additions of chains err little beside the chains."""
    every, sizes = (found[name].value if name in found else None for name in ("promote_every", "slice_sizes"))
    whole = f"the longest slice, {max(map(int, str(sizes).split(', '))):,} products" if sizes else "K"
    chain = whole if every is None else f"{every}, not with K" if alone else f"{every}"
    return _Parts(chain, every is not None, whole, sizes is not None)


def _words(share: ErrorShare, model: ProductModel, parts: _Parts) -> str:
    node = share.node
    if share.loss == "result":
        return f"is that of one rounding to {model.result}"
    if share.loss == "scales":
        return "is that of applying the scales"
    if isinstance(node, Chain):
        return f"grows with {parts.chain}" if len(node.ks()) > model.step.products else _of_one_sum(share, model)
    if share.loss == "partial sums":
        return f"is that of rounding each slice to {node.kept}"
    if parts.split and node is model.tree:
        return f"grows with {_levels(node)} slices"
    if parts.chunked:
        return f"grows with {parts.slice}, by its {len(node.parts)} chunks"
    return f"grows with {_levels(node)} chains"


def _of_one_sum(share: ErrorShare, model: ProductModel) -> str:
    """Of a chain that is no longer."""
    arithmetic, products = model.step.root.arithmetic, model.step.products
    assert isinstance(arithmetic, FloatArithmetic)
    if share.error <= unit_roundoff(arithmetic.result_bits, arithmetic.result_rounding):
        return "is that of one rounding"
    return f"is that of a sum of {products} products" if products > 1 else "is that of each product"


def _levels(node: Merged) -> str:
    """ "the sum of 15", "the 5 levels of a tree of 32"."""
    count = len(node.parts)
    levels = folded(node.nested, [0] * count, lambda x, y: max(x, y) + 1)
    return f"the sum of {count}" if levels == count - 1 else f"the {levels} levels of a tree of {count}"

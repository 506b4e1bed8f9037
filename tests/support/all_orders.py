"""Every result that a product can have whose outermost sum is unordered."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np

from accprobe.evaluate.product import ScaleWords, product
from accprobe.isa.formats import Bits
from accprobe.model.product import Merged, Nested, ProductModel


def outcomes(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
    """The results [orders, M, N], one for each order of the parts; of two orders that only swap the first two, one."""
    tree = model.tree
    assert isinstance(tree, Merged)
    found = []
    for first, *others in permutations(range(len(tree.parts))):
        order: Nested = first
        for other in others:
            order = (order, other)
        if not others or first < others[0]:
            found.append(product(replace(model, tree=replace(tree, order=order)), a, b, scales=scales))
    return np.stack(found)

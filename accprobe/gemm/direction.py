"""How chains take K, in words: which k each has, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from accprobe.gemm.decomposition import FusedGroups
from accprobe.gemm.pairs import Ints
from accprobe.report.product_words import BACKWARD, BLOCKS_BACKWARD, IN_DISORDER, SHARE


def direction(chains: Sequence[FusedGroups]) -> str:
    """How each of a product's chains takes K; "" where its k are neighbours and come as they are."""
    every = np.unique([k for chain in chains for group in chain for k in group])
    found = {_words(chain, every) for chain in chains if len(chain) > 1}
    return found.pop() if len(found) == 1 else IN_DISORDER if found else ""


def _words(chain: FusedGroups, every: Ints) -> str:
    return ", ".join(dict.fromkeys(filter(None, (_share(chain, every), _order(chain)))))


def _share(chain: FusedGroups, every: Ints) -> str:
    """Which k it has, where others lie between them."""
    ks = np.unique([k for group in chain for k in group])
    if len(ks) == np.count_nonzero((every >= ks[0]) & (every <= ks[-1])):
        return ""
    starts = np.flatnonzero(np.diff(ks, prepend=ks[0] - 2) != 1)
    lengths, steps = np.diff(starts, append=len(ks)), np.unique(np.diff(ks[starts]))
    even = len(steps) == 1 and (lengths[:-1] == lengths[0]).all() and lengths[-1] <= lengths[0]
    return SHARE.format(lengths[0], steps[0]) if even else IN_DISORDER


def _order(chain: FusedGroups) -> str:
    if all(max(after) < min(before) for before, after in pairwise(chain)):
        return BACKWARD
    blocks: list[list[int]] = []
    before = -1
    for group in chain:
        if not blocks or min(group) < before:
            blocks.append([])
        blocks[-1] += group
        before = max(group)
    if len(blocks) == 1:
        return ""
    last, *others = map(len, blocks)
    even = set(others) == {max(last, *others)} and all(max(after) < min(before) for before, after in pairwise(blocks))
    return BLOCKS_BACKWARD.format(others[0]) if even else IN_DISORDER

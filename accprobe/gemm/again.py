"""Questions that are asked again where answers contradict the plan: what answers otherwise then has none."""

from __future__ import annotations

import numpy as np

from accprobe.gemm.blackbox import Asked, Call
from accprobe.gemm.fresh import FreshCall
from accprobe.gemm.layout import layout_of

MOST = 64
"""Calls that are asked again, at most: the last of them."""


def answered_otherwise(asked: Asked, disputed: list[FreshCall]) -> int:
    """Elements that come back otherwise: of the fresh calls of which some contradict the plan, and of those that were kept."""
    count = sum(int(np.count_nonzero(asked.product(x.a, x.b, x.scales, keep=False) != x.d)) for x in disputed)
    return count or sum(_changed(asked, call) for call in asked.kept[-MOST:] if call.scales is None)


def _changed(asked: Asked, call: Call) -> int:
    a, b = layout_of(asked.spec).blank()
    a[call.rows], b[call.columns] = call.a, call.b
    return int(np.count_nonzero(asked.product(a, b, keep=False)[np.ix_(call.rows, call.columns)] != call.d))

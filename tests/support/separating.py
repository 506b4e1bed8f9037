"""Dot products on which a rival is not the model."""

from __future__ import annotations

from collections.abc import Sequence

from accprobe.infer.distinguishing import Results, Search
from accprobe.model.tree import DotModel


def separating(search: Search, alternative: DotModel, fields: Sequence[str], n: int = 1024) -> Results | None:
    """Some of n made for each of the fields in which they differ, and the model's answers; None where none is among them."""
    for answers in search.made_for(alternative, fields, n).values():
        differ = answers.mismatches(alternative)
        if len(differ):
            return answers.subset(differ)
    return None

"""The absolute tolerance that a test of a product may ask: the number that `accprobe tolerance` tells of the same plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from shlex import quote
from typing import get_args

from accprobe.budget.account import AccountEntry
from accprobe.budget.accumulation import Accumulation
from accprobe.budget.closeness import Tolerance
from accprobe.budget.data import Data
from accprobe.budget.tolerance import BLOCK_OF_SCALE, USUAL_SIDE, Inquiry
from accprobe.isa.formats import FORMATS
from accprobe.model.product import ScaleOf

MOST_K = 1 << 16
"""Of longer products bounds take long."""


@dataclass(frozen=True)
class Allowance:
    """Of the plan of one entry. atol: None where it is not computed here; command: what tells it then, if anything does."""

    entry: AccountEntry
    atol: float | None
    command: str

    def sentence(self) -> str:
        entry, errors = self.entry, self.entry.errors
        promoted = f"Promoted every {entry.promote_every}" if entry.promote_every else "Never promoted"
        plan = f"{promoted}, {entry.out} out"
        scaled = "" if entry.scale == "none" or entry.is_scaled else " of the scaled operands"
        seen = f"the largest error{scaled} of {errors.outputs:,} outputs was {errors.max_error:.3g}"
        if self.atol is not None:
            return (
                f"{plan}, a test may have atol = {self.atol:.3g} (the largest bound of {USUAL_SIDE} x {USUAL_SIDE} outputs, as"
                f" `accprobe tolerance` tells it); {seen}."
            )
        return f"{plan}, the atol is what `{self.command}` tells; {seen}." if self.command else ""


def allowance(accumulation: Accumulation, data: Data, seed: int, entries: Sequence[AccountEntry]) -> Allowance | None:
    """Of the entry with the tightest bound; None where none has one."""
    bounded = [entry for entry in entries if entry.errors.bound_over_sum is not None and entry.errors.max_error is not None]
    if not bounded:
        return None
    best = min(bounded, key=lambda entry: entry.errors.bound_over_sum or 0.0)
    if best.scale != "none" or best.k > MOST_K:
        return Allowance(best, None, _command(accumulation, best, seed))
    out = FORMATS[best.out]
    asked = Inquiry(accumulation, best.k, USUAL_SIDE, USUAL_SIDE, best.promote_every, best.split_k, out, data, None, seed)
    atol = float(Tolerance.of(asked.operation(data, USUAL_SIDE, USUAL_SIDE)).bound.max())
    return Allowance(best, atol, "") if isfinite(atol) else None


def _command(accumulation: Accumulation, entry: AccountEntry, seed: int) -> str:
    """Empty where `accprobe tolerance` has no such scales."""
    blocks = "x" in entry.scale
    if entry.scale not in ("none", *get_args(ScaleOf)) or (
        blocks and (entry.promote_every, entry.split_k) != (BLOCK_OF_SCALE, 1)
    ):
        return ""
    name = f"{'--like' if accumulation.measured is None else '--product'} {quote(accumulation.name)}"
    plan = f"--promote-every {entry.promote_every or 'none'} --split-k {entry.split_k} --out {entry.out}"
    return f"accprobe tolerance {name} --k {entry.k} {plan} --data {quote(entry.data)} --scale {entry.scale} --seed {seed}"

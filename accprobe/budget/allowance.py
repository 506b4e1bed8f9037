"""The tolerance that a test of a planned product may have, by one emulated product; `accprobe tolerance` judges it on many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import get_args

from accprobe.budget.accumulation import Accumulation
from accprobe.budget.data import Data
from accprobe.budget.error_report import AccountEntry
from accprobe.budget.tail import FALSE_ALARMS
from accprobe.budget.tolerance import BLOCK_OF_SCALE, USUAL_SIDE, Inquiry, OwnTest, usual_test
from accprobe.isa.formats import FORMATS
from accprobe.model.product import ScaleOf

MOST_K = 1 << 16
"""Of longer products bounds take long."""


@dataclass(frozen=True)
class Allowance:
    """Of the plan of one entry. test: None where it is not computed here; command: what prints it then, if anything does."""

    entry: AccountEntry
    test: OwnTest | None
    command: str

    def sentence(self) -> str:
        entry, errors = self.entry, self.entry.errors
        promoted = f"Promoted every {entry.promote_every}" if entry.promote_every else "Never promoted"
        plan = f"{promoted}, {entry.out} out"
        scaled = "" if entry.scale == "none" or entry.is_scaled else " of the scaled operands"
        seen = f"the largest error{scaled} of {errors.outputs:,} outputs was {errors.max_error:.3g}"
        if self.test is not None:
            rtol = f"rtol = {self.test.rtol:.3g} and " if self.test.rtol else ""
            return (
                f"{plan}: a test against f64 sums may have {rtol}atol = {self.test.atol:.3g} ({FALSE_ALARMS:g} false alarms an"
                f" element, by {USUAL_SIDE} x {USUAL_SIDE} emulated ones); {seen}."
            )
        return f"{plan}: `{self.command}` recommends a test; {seen}." if self.command else ""


def allowance(accumulation: Accumulation, data: Data, seed: int, entries: Sequence[AccountEntry]) -> Allowance | None:
    """Of the entry with the tightest bound; None where none has one."""
    bounded = [entry for entry in entries if entry.errors.bound_over_sum is not None and entry.errors.max_error is not None]
    if not bounded:
        return None
    best = min(bounded, key=lambda entry: entry.errors.bound_over_sum or 0.0)
    if best.scale != "none" or best.k > MOST_K:
        return Allowance(best, None, _command(accumulation, best, seed))
    out = FORMATS[best.out]
    test = usual_test(Inquiry(accumulation, best.k, None, None, best.promote_every, best.split_k, out, data, None, seed))
    return Allowance(best, test, "") if test else None


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

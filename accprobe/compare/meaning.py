"""What a difference means for a kernel, in a sentence."""

from __future__ import annotations

from accprobe.model.features import parsed
from accprobe.model.fields import FEATURES
from accprobe.report.rows import Row

PROMOTION = 128
"""Products after which kernels add a partial sum to a register of its own: N_C of DeepSeek-V3 (arXiv 2412.19437), §3.3.2."""

UNKNOWN = "The two sides differ in it."


def meaning(field: str, a: Row, b: Row) -> str:
    """The sentence for a field in which B is not as A. Shapes and formats are those of the rows."""
    if field == "effective_bits":
        return _effective(a, b)
    if field == "result_rounding":
        return _rounding(a, b)
    what = parsed(field)
    sentence = what.record.differs if what.record else UNKNOWN
    return f"In the separate add: {sentence[:1].lower()}{sentence[1:]}" if what.role == "add" else sentence


def _effective(a: Row, b: Row) -> str:
    before, after = (row.findings["effective_bits"].value for row in (a, b))
    d = b.instruction.d
    if not isinstance(before, int) or not isinstance(after, int):
        return FEATURES["effective_bits"].differs
    if before < after >= d.mantissa_bits:
        return (
            f"The running sum keeps every fraction bit of {d}: promoting partial sums to another {d} register, every"
            f" {PROMOTION} products or so, no longer buys bits{_still_cut(b)}."
        )
    if before < after:
        return f"The running sum keeps {after - before} bits more, not yet all {d.mantissa_bits} of {d}: promote more seldom."
    return (
        f"The running sum loses {before - after} bits: add partial sums to an {d} register of their own, every {PROMOTION}"
        " products or so, or long sums drift."
    )


def _still_cut(row: Row) -> str:
    rounding = row.findings.get("result_rounding")
    return ", though each sum is still cut toward zero" if rounding and rounding.value == "RZ" else ""


def _rounding(a: Row, b: Row) -> str:
    before, after = (row.findings["result_rounding"].value for row in (a, b))
    if (before, after) == ("RZ", "RNE"):
        return "Results are no longer biased toward zero: the error of a long sum grows with its square root, not its length."
    if (before, after) == ("RNE", "RZ"):
        return "Results are biased toward zero: the error of a long sum grows with its length, not with its square root."
    return FEATURES["result_rounding"].differs

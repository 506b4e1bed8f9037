"""What was found of the stored products of a sparse A, told as it was asked: with metadata, and with what is left out."""

from __future__ import annotations

from dataclasses import replace

from accprobe.devices.stored import StoredProducts
from accprobe.infer.findings import Characterisation, Finding
from accprobe.infer.left_out import LEFT_OUT
from accprobe.verify.coverage.left_out import with_layouts
from accprobe.verify.outcome import Verification

AsAsked = tuple[Characterisation, Verification | None]


def as_asked(asked: StoredProducts, beside: Finding, result: Characterisation, done: Verification | None) -> AsAsked:
    """Findings, with that of what is left out, and the verification, with what the layouts did."""
    findings = {
        name: replace(finding, evidence=tuple(map(asked.asked, finding.evidence))) for name, finding in result.findings.items()
    }
    findings[LEFT_OUT] = beside
    if done is not None:
        wrong = done.counterexample
        shown = replace(wrong, exchange=asked.asked(wrong.exchange)) if wrong else None
        done = with_layouts(replace(done, counterexample=shown), asked.inst, asked.used)
    return replace(result, findings=findings), done

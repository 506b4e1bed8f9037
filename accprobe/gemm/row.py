"""What was found of a callable, as the report has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accprobe.gemm.counterexample import of_fresh
from accprobe.gemm.findings import findings, status
from accprobe.gemm.outcome import ProductOutcome, RegionOutcome
from accprobe.report.products import KernelRecord, ProductAlternatives, ProductRow, ProductVerification, RegionRecord


def row(
    outcome: ProductOutcome,
    callable_: str,
    options: Mapping[str, Any] | None = None,
    kernels: tuple[KernelRecord, ...] = (),
    libraries: Mapping[str, str] | None = None,
    seconds: float | None = None,
    asks: str = "",
    device: str = "",
) -> ProductRow:
    """The record of one characterisation. callable_, options: as the command line names them; others: see `ProductRow`."""
    spec, (state, reason) = outcome.spec, status(outcome)
    return ProductRow(
        callable=callable_,
        options=dict(options or {}),
        probed_part=asks,
        m=spec.m,
        n=spec.n,
        k=spec.k,
        a=spec.a.name,
        b=spec.b.name,
        out=spec.out.name,
        scale=spec.scale,
        status=state,
        reason=reason,
        regions=tuple(_region(outcome, found) for found in outcome.found),
        verification=_proved(outcome),
        kernels=kernels,
        libraries=dict(libraries or {}),
        calls=outcome.calls,
        seconds=seconds,
        device=device,
    )


def _region(outcome: ProductOutcome, found: RegionOutcome) -> RegionRecord:
    open_ = [f"{alternative.respect}: {alternative.how}" for alternative in found.surviving]
    return RegionRecord(
        where=str(found.region),
        elements=found.region.elements,
        findings=findings(outcome, found),
        model=None if found.is_far_off else found.model,
        alternatives=ProductAlternatives(tested=found.tried, surviving=tuple(open_))
        if found.plan and not found.is_far_off
        else None,
        chains=found.coverage.chains if found.coverage else 0,
        chains_probed=found.coverage.probed if found.coverage else 0,
    )


def _proved(outcome: ProductOutcome) -> ProductVerification:
    proof = outcome.proof
    few = (found.counterexample for found in outcome.found if found.counterexample)
    first = next(few, "") or (of_fresh(proof.first[0], outcome.spec.out) if proof.first else "")
    return ProductVerification(
        elements=proof.elements,
        mismatches=proof.wrong,
        seed=outcome.seed,
        kinds=proof.kinds,
        results=outcome.checked,
        contradicting=outcome.contradicting,
        counterexample=first,
    )

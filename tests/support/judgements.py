"""What every judgement of a planted thing says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A judgement of accprobe's result for a seed.

    parameters: of the plant. status, reason: accprobe's. seconds: of CPU time. fresh: results of the plant after
    the run; contradicted: those of them that differ from the model found. false_exact: "finding: value, truth".
    """

    seed: int
    parameters: dict[str, Any]
    verdict: str
    status: str = ""
    reason: str = ""
    seconds: float = 0.0
    fresh: int = 0
    contradicted: int = 0
    false_exact: list[str] = field(default_factory=list)

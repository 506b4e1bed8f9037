"""What all parts of a report have in common."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

Bound = Literal["exact", "at_least", "undetermined"]

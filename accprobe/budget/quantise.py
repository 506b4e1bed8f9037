"""Quantisation of both operands of a product, and how a kernel applies the scales."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accprobe.budget.data import DrawnPatterns, DrawnValues
from accprobe.evaluate.product import ScaleWords
from accprobe.evaluate.quantised import SHARINGS, Quantised, quantised_operand
from accprobe.isa.formats import Format
from accprobe.model.product import ProductModel, ScaleOf, Scales

# Blocks whose scales a kernel can apply where it promotes, and their layout.
_INSIDE: dict[str, ScaleOf] = {"1x128": "1x128", "128x128": "128x128", "mx32": "1x128"}

_AFTER: dict[str, ScaleOf] = {"tensor": "tensor", "row": "row"}


@dataclass(frozen=True)
class QuantisedPair:
    """Both operands. scale: its name among SHARINGS."""

    scale: str
    a: Quantised
    b: Quantised

    @property
    def patterns(self) -> DrawnPatterns:
        return DrawnPatterns(self.a.codes, self.b.codes)

    def applied(self, model: ProductModel) -> tuple[Scales, ScaleWords] | None:
        """Return how a kernel of that plan applies the scales; None if a block along K has no promotion at its end.

        Tensor and row scales are applied once after the sum, block scales by the multiply-add that promotes.
        """
        a, b = self.a.scales, self.b.scales
        if self.scale in _AFTER:
            return self._as_measured(model) or Scales(_AFTER[self.scale]), ScaleWords(a, b.T.copy())
        if self.scale not in _INSIDE:
            return None
        chains = list(model.chains())
        if any(chain.start // self.a.ks != (chain.stop - 1) // self.a.ks for chain in chains):
            return None
        of_chain = np.array([chain.start // self.a.ks for chain in chains])
        how = self._as_measured(model) or Scales(_INSIDE[self.scale], fused=True)
        return how, ScaleWords(a[:, of_chain], b[:, of_chain].T.copy())

    def _as_measured(self, model: ProductModel) -> Scales | None:
        """Return how a measured product applies these scales."""
        return model.scales if model.scales is not None and model.scales.of == self.scale else None


def quantised(scale: str, fmt_a: Format, fmt_b: Format, values: DrawnValues) -> QuantisedPair:
    """Quantise both operands with the scales of that name."""
    of_a, of_b = SHARINGS[scale] or (None, None)
    return QuantisedPair(scale, quantised_operand(of_a, fmt_a, values.a), quantised_operand(of_b, fmt_b, values.b))

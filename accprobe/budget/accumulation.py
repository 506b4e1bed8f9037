"""The accumulation that a name means, and its products for any K, promotion interval and split-K.

A name is an instruction of a report or published chip ("h200:wgmma.m64n8k32.f32.e4m3.e4m3"), an opcode of one ("QGMMA"), or a
measured product ("products-h200:torch:mm 4096x4096x4096 bf16").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from accprobe.errors import AccprobeError, UnknownName
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import Chain, Merged, Node, ProductModel, Scales, addition, in_chunks
from accprobe.model.tree import DotModel
from accprobe.records.products import ProductRow
from accprobe.report.names import named_claims, named_model, split_row


@dataclass(frozen=True)
class Accumulation:
    """A chain of fused sums. `pattern` is its smallest part: slices and promotion intervals are whole numbers of patterns.

    name: REPORT:INSTRUCTION, or REPORT:TITLE of a product. a, b: operand formats; step: one or more fused sums, which take the
    k of `pattern` in turn; result: format of the chain's sum. measured, promote_every, split_k: of a measured product. remark:
    the instruction that is used if the user's name means several, or one that was not measured.
    """

    name: str
    a: Format
    b: Format
    step: DotModel
    pattern: tuple[int, ...]
    result: Format
    measured: ProductModel | None = None
    remark: str = ""
    promote_every: int | None = None
    split_k: int = 1

    def product(self, k: int, promote_every: int | None = None, split_k: int = 1, out: Format | None = None) -> ProductModel:
        """Return a product in slices along K, as even as whole patterns allow, the first ones longer.

        Each slice is a chain that is promoted into f32 every so many products (None: never). The slices' sums are added in f32,
        from the first to the last. out: result format, rounded to nearest even; None: the format of the sums.

        Raises AccprobeError if an interval ends within a pattern, there are fewer patterns than slices, or a chain that sums in
        f64 has promotion or slices.
        """
        if self.result is FORMATS["f64"] and (promote_every is not None or split_k > 1):
            raise AccprobeError(f"{self.name} sums in f64: promotion and split-K need sums of at most f32")
        width = len(self.pattern)
        groups = -(-k // width)
        if promote_every is not None and (promote_every <= 0 or promote_every % width):
            below = promote_every // width * width
            near = f"the nearest are {below} and {below + width}" if below > 0 else f"the nearest is {width}"
            raise AccprobeError(f"promotion interval {promote_every}: products are added in groups of {width}; {near}")
        if not 1 <= split_k <= groups:
            raise AccprobeError(f"K = {k} in {split_k} slices: there are only {groups} groups of {width} products")
        starts = [int(group[0]) for group in np.array_split(np.arange(0, k, width), split_k)]
        slices = [range(*borders) for borders in pairwise([*starts, k])]
        parts = tuple(in_chunks(ks, promote_every or len(ks), self.pattern, addition()) for ks in slices)
        tree: Node = parts[0] if len(parts) == 1 else Merged(parts, "forward", addition())
        summed = self.result if isinstance(tree, Chain) else FORMATS["f32"]
        return ProductModel(self.a, self.b, k, self.step, tree, out or summed)

    def model(self, k: int, promote_every: int | None, split_k: int, out: Format, scales: Scales | None = None) -> ProductModel:
        """Return the measured plan if it has this K, promotion and split, otherwise the plan of `product`.

        An `out` that is wider than f32 counts as f32, unless the chain sums in it. Block scales: one a chain.
        """
        narrow = out if out.mantissa_bits <= FORMATS["f32"].mantissa_bits or self.result is out else FORMATS["f32"]
        if self.measured is not None and (self.measured.k, self.promote_every, self.split_k) == (k, promote_every, split_k):
            return replace(self.measured, result=narrow, scales=scales)
        return replace(self.product(k, promote_every, split_k, narrow), scales=scales)


def of_named(name: str, dtype: str = "") -> Accumulation:
    """Return the accumulation of an instruction ("QGMMA", "h200:wgmma.m64n8k32.f32.e4m3.e4m3", "sim:b200:UTCQMMA"), or of a
    measured product ("products-h200:torch:mm 4096x4096x4096 bf16").

    dtype: operands, where the name leaves them open. Raises UnknownName and ReportError. Raises AccprobeError for an
    instruction that is sparse, has scales, integers, or C in another format than D, and for a product of integers, of other
    operands than `dtype`, or without a model.
    """
    if products := named_claims(name, ProductRow):
        fitting = [row for row in products if dtype in ("", str(row.a), f"{row.a}:{row.b}")]
        if not fitting:
            raise AccprobeError(f"{name} has no product of operands {dtype}: leave out --dtype")
        return _of_product(name, fitting)
    found = named_model(name, dtype)
    inst, model, _, remark = found
    if inst.c is not inst.d or inst.sparse or inst.scale is not None or inst.is_integer:
        raise AccprobeError(
            f"{inst.name} is not supported: give a dense float instruction without scales, and with C in the format of D"
        )
    return Accumulation(found.name, inst.a, inst.b, model, tuple(range(inst.k)), inst.d, remark=remark)


def _of_product(name: str, meant: Sequence[ProductRow]) -> Accumulation:
    if len(meant) > 1:
        titles = "; ".join(row.title for row in meant[:5])
        raise UnknownName(f"{name} means {len(meant)} products: add words of one of them, such as {titles}")
    (row,) = meant
    model = row.regions[0].model if row.regions else None
    if model is None or model.a.is_integer:
        raise AccprobeError(f"{row.title}: {'it has no model' if model is None else 'integers have no rounding errors'}")
    pattern, step = next(model.chains()).pattern, model.step
    of_chain = step.root.arithmetic.result
    found = {key: row.findings[key].value for key in ("promote_every", "split_k") if key in row.findings}
    every, slices = (value if isinstance(value, int) else None for value in (found.get("promote_every"), found.get("split_k")))
    name = f"{split_row(name)[0]}:{row.title}"
    return Accumulation(name, model.a, model.b, step, pattern, of_chain, model, promote_every=every, split_k=slices or 1)

"""An atlas: which opcode the kernel becomes on each architecture, and the accumulator that is published of it. No GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from accprobe.isa import architectures
from accprobe.model.tree import DotModel, IntegerArithmetic
from accprobe.report.rows import STRICT
from accprobe.sweep import prediction
from accprobe.sweep.compilation import compile_configurations
from accprobe.sweep.configurations import Configuration


class Entry(BaseModel):
    """The machine code of a configuration.

    opcodes: (matrix opcode, how many are in the cubin). accumulator: "13 (e8m13)", "" where no model is published; source:
    where it is. reason: why there is no opcode.
    """

    model_config = STRICT

    architecture: str
    dtype: str
    block_k: int
    num_warps: int
    opcodes: tuple[tuple[str, int], ...] = ()
    accumulator: str = ""
    source: str = ""
    reason: str = ""


def compile_targets(names: Sequence[str]) -> list[str]:
    """The compile targets that Triton uses for architectures: "sm_90a" for "sm_90". Raises UnknownName."""
    return list(dict.fromkeys(architectures.get(name).target for name in names))


def atlas(names: Sequence[str], configurations: Sequence[Configuration]) -> Iterator[Entry]:
    """Each configuration on each architecture, in order. Raises UnknownName, and ToolMissing without Triton."""
    for target in compile_targets(names):
        for compiled in compile_configurations(configurations, target):
            config, lowering = compiled.configuration, compiled.lowering
            lowered = prediction.published_chain(target, config.dtype, lowering) if lowering else None
            counts = dict(lowering.sequence) if lowering else {}
            yield Entry(
                architecture=architectures.get(target).name,
                dtype=config.dtype.name,
                block_k=config.block_k,
                num_warps=config.num_warps,
                opcodes=tuple((opcode, counts[opcode]) for opcode in lowering.matrix) if lowering else (),
                accumulator=accumulator_text(lowered.model) if lowered else "",
                source=lowered.source if lowered else "",
                reason=compiled.reason or ("" if lowering and lowering.matrix else "no matrix instruction"),
            )


def accumulator_text(model: DotModel) -> str:
    """ "13 (e8m13)": the fraction bits that a chain of such sums keeps; "32 wrap" for integers."""
    root = model.root.arithmetic
    if isinstance(root, IntegerArithmetic):
        return f"{root.result.bits} {root.overflow}"
    aligned = root.result.mantissa_bits if root.alignment_bits is None else root.alignment_bits
    bits = min(aligned, root.result_bits)
    return f"{bits} ({root.result if bits == root.result.mantissa_bits else f'e{root.result.exponent_bits}m{bits}'})"

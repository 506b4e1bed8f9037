"""Results of a sweep by published models, with the blocks chained as on the hardware.

Each `tl.dot` starts from zero. Its instructions follow one another along k, each with the previous result as addend; then the
block's sum is added to the accumulator in f32. Triton 3.6 and 3.9 compile the kernel in this way for sm_80 to sm_120.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.build.lowerings import Lowering
from accprobe.evaluate.error_free import plain_product
from accprobe.evaluate.product import product
from accprobe.isa import opcodes
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model import published
from accprobe.model.product import chained
from accprobe.model.tree import DotModel
from accprobe.sweep import masks
from accprobe.sweep.configurations import Configuration, Dtype
from accprobe.sweep.masks import Measured, Operands, Totals

_K = re.compile(r"\.(?:\d+x\d+x|168)(\d+)\b")
"""K in the modifiers of an opcode: 32 of QGMMA.64x64x32, 16 of HMMA.16816."""


@dataclass(frozen=True)
class PublishedChain:
    """The chain of a unit's sums over a block. groups: the k of each instruction in turn, which repeat along K. converted:
    operands are converted to the instruction's format first. source: where the model is published.
    """

    instruction: Instruction
    model: DotModel
    groups: tuple[tuple[int, ...], ...]
    converted: bool
    source: str

    @property
    def period(self) -> int:
        """Return the number of products after which the groups repeat."""
        return sum(map(len, self.groups))


@cache
def published_chain(target: str, dtype: Dtype, lowering: Lowering) -> PublishedChain | None:
    """Return the chain of the opcode of a kernel; None if it has several, or no model of it is published."""
    chip = next((name for name, each in published.CHIPS.items() if each.architecture == target), None)
    if chip is None or len(lowering.matrix) != 1:
        return None
    opcode = lowering.matrix[0]
    for operand in dict.fromkeys((dtype.format.name, "f16")):
        for inst, known in published.known_models(chip).items():
            if _is(inst, opcode, operand):
                converted = operand != dtype.format.name
                return PublishedChain(inst, known.model, _groups(inst, converted), converted, known.source)
    return None


def _is(inst: Instruction, opcode: str, operand: str) -> bool:
    shown = _K.search(opcode)
    return (
        inst.a.name == inst.b.name == operand
        and inst.d.name == "f32"
        and opcodes.relation(inst, opcode) == "native"
        and (shown is None or inst.k == int(shown[1]))
    )


def _groups(inst: Instruction, converted: bool) -> tuple[tuple[int, ...], ...]:
    """Return the k of each instruction. 8-bit operands are loaded four per register and converted two at a time: the even pairs
    of k, then the odd ones.
    """
    if not converted:
        return (tuple(range(inst.k)),)
    return tuple(tuple(k for k in range(2 * inst.k) if k // 2 % 2 == odd) for odd in (0, 1))


def predict_masks(config: Configuration, found: PublishedChain, operands: Operands) -> Measured:
    """Return the kernel's results for these operands, all elements sampled."""
    of_cuts = masks.totals(partials(config, found, operands))
    a, b = (config.dtype.format.values(x) for x in operands)
    wanted = plain_product(a, b)
    errors = [float(np.linalg.norm(each - wanted) / np.linalg.norm(wanted)) for each in of_cuts]
    return Measured(masks.changed(of_cuts), errors, np.stack([each.view(np.uint32) for each in of_cuts]))


def exact_partials(config: Configuration, operands: Operands) -> Iterator[Totals]:
    """Return the exact sum of each block, rounded to f32 once, computed in f64, which represents every sum of fp8 operands
    exactly.
    """
    a, b = (_blocks(config.dtype.format.values(x), config.block_k) for x in operands)
    for rows, columns in zip(a, b, strict=True):
        yield plain_product(rows, columns).astype(np.float32)


def partials(config: Configuration, found: PublishedChain, operands: Operands) -> Iterator[Totals]:
    """Return the sum of each block, [M, N] in f32, for every row of A with each row of B.

    Blocks start from zero and are independent, so one evaluation computes an instruction of all blocks.
    """
    a, b = (_blocks(_converted(x, config.dtype.format, found), config.block_k) for x in operands)
    block = chained(found.instruction, found.model, config.block_k, _promotion(config, found), found.groups)
    zeros = np.zeros((len(a), a.shape[1], b.shape[1]), block.result.dtype)
    yield from product(block, a, b, zeros).view(np.float32)


def _blocks(rows: NDArray[Any], block_k: int) -> NDArray[Any]:
    """Reshape [rows, K] to [blocks, rows, block-K]."""
    return rows.reshape(len(rows), -1, block_k).swapaxes(0, 1)


def _converted(patterns: Bits, fmt: Format, found: PublishedChain) -> Bits:
    if not found.converted:
        return patterns
    return fmt.values(patterns).astype(np.float16).view(np.uint16)


def _promotion(config: Configuration, found: PublishedChain) -> int | None:
    """Return the number of products after which `tl.dot` promotes: only for 8-bit floats of some families, in whole
    instructions.
    """
    if config.promote_every is None or not found.instruction.family.promoted_by_triton or config.dtype.format.storage_bits != 8:
        return None
    return -(-config.promote_every // found.period) * found.period

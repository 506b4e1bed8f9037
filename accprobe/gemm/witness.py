"""What ran: the kernels of one call, their matrix opcodes, and whether these go with what was found.

Names come from torch's profiler (CUPTI), opcodes from the cubin of accprobe's own kernel, or counted by Nsight Compute, which
launches the call again in a child. A name is a hint at most: no opcode is read from it.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accprobe.errors import AccprobeError
from accprobe.gemm.adapter import CallableAdapter
from accprobe.gemm.builtin import Ready
from accprobe.gemm.candidates import known
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.report.products import KernelRecord, ProductRow
from accprobe.sass.opcodes import MATRIX, kind_of, stem

NO_KERNEL = re.compile(r"Memcpy|Memset|\[CUDA")
"""What the profiler calls that is no kernel."""

HINTS = (
    (re.compile(r"nvjet_sm90|sm90_xmma_gemm|gmma|cutlass3x_sm90", re.IGNORECASE), "GMMA"),
    (re.compile(r"sm80|sm89|ampere|ada_|turing|1688|s16816|i16832", re.IGNORECASE), "MMA"),
)
"""What kernels' names suggest of their matrix opcodes: a warpgroup's on Hopper, or a warp's."""


NOTHING_TO_COUNT = "opcodes: there is nothing for --ncu to count, as the product was computed on the CPU"


class Ran(NamedTuple):
    """kernels: of one call; why_not: what could not be seen, and why, in words."""

    kernels: tuple[KernelRecord, ...] = ()
    why_not: tuple[str, ...] = ()


def kernels_of(called: CallableAdapter, made: Ready, command: Sequence[str] | None = None) -> Ran:
    """The kernels of one call with the operands that were handed over last; of a CPU's there are no names.

    command: arguments of `python -m accprobe.gemm` that launch the same call, for Nsight Compute; None: it is not asked.
    """
    if called.handover.device == "cpu":
        return Ran(why_not=() if command is None else (NOTHING_TO_COUNT,))
    names, why_not = _profiled(called)
    of_own = made.lowering.matrix if made.lowering else ()
    kernels = tuple(
        KernelRecord(name=name, opcodes=of_own if name == made.kernel else (), launches=n) for name, n in names.items()
    )
    if any(kernel.opcodes for kernel in kernels):
        return Ran(kernels, why_not)
    if command is None:
        return Ran(kernels, (*why_not, "opcodes: not read, as the kernels are a library's; --ncu counts them"))
    try:
        return Ran(_counted(command) or kernels, why_not)
    except AccprobeError as e:
        return Ran(kernels, (*why_not, f"opcodes: {e}"))


def _profiled(called: CallableAdapter) -> tuple[Counter[str], tuple[str, ...]]:
    """Names of the kernels of one call, and how often each is launched. The call before is for what is done but once."""
    try:
        import torch
        from torch.autograd.profiler import profile  # torch.profiler takes seconds to import what compiles graphs
    except ImportError:
        return Counter(), ("kernels: torch, whose profiler names them, is not installed",)
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # else it tells of every start and stop
    called.call()
    torch.cuda.synchronize()
    try:
        # acc_events: else torch 2.10 and 2.11 warn of cycles that there are none of (pytorch/pytorch issue 180348)
        with profile(use_device="cuda", use_kineto=True, acc_events=True) as run:
            called.call()
            torch.cuda.synchronize()
    except RuntimeError as e:
        return Counter(), (f"kernels: torch's profiler failed: {' '.join(str(e).split())}",)
    events = [event for event in run.function_events or () if str(event.device_type) == "DeviceType.CUDA"]
    names = Counter(event.name for event in events if not NO_KERNEL.match(event.name))
    return names, () if names else ("kernels: torch's profiler saw none: CUPTI may be missing, or in use",)


def _counted(command: Sequence[str]) -> tuple[KernelRecord, ...]:
    """Kernels that executed a matrix opcode, as Nsight Compute counts. Raises AccprobeError."""
    from accprobe.audit import ncu

    found: dict[tuple[str, tuple[str, ...]], int] = {}
    for launch in ncu.launches([sys.executable, "-m", "accprobe.gemm", *command]):
        if opcodes := tuple(launch.count()):
            key = (launch.function.name, opcodes)
            found[key] = found.get(key, 0) + 1
    return tuple(KernelRecord(name=name, opcodes=opcodes, launches=n) for (name, opcodes), n in found.items())


def contradictions(row: ProductRow) -> tuple[str, ...]:
    """What a reader must not miss: opcodes that do not go with what was found."""
    return tuple(_contradictions(row))


def _contradictions(row: ProductRow) -> Iterator[str]:
    a, b = FORMATS[row.a], FORMATS[row.b]
    step = row.regions[0].model.step if row.regions and row.regions[0].model else None
    ran = {stem(opcode) for kernel in row.kernels for opcode in kernel.opcodes if MATRIX.match(opcode)}
    for unit in sorted(ran):
        if not _takes(unit, a, b):
            yield f"CONVERTED: {unit} ran, which takes no {_both(a, b)}: its operands are converted ones"
        elif step is not None and (why := _contradiction(unit, a, b, step)):
            yield f"CONTRADICTION: {unit} ran, and {why}"
    if not ran and step is not None:
        for kernel in row.kernels:
            unit = suggested(kernel.name, a, b)
            if unit and (why := _contradiction(unit, a, b, step)):
                yield f"DOUBTFUL: the name of {kernel.name} suggests {unit}, and {why}"


def suggested(name: str, a: Format, b: Format) -> str:
    """The stem of the opcode that a kernel's name suggests for operands of such formats; "" where it suggests none."""
    group = next((ending for pattern, ending in HINTS if pattern.search(name)), "")
    letter = _letter(a, b)
    return letter + group if group and letter else ""


def _contradiction(unit: str, a: Format, b: Format, step: DotModel) -> str:
    """Why a sum is none of a unit's, as the report of the H200 has them; "" where it may be, or the unit is not known."""
    arithmetic = step.root.arithmetic
    if not isinstance(arithmetic, FloatArithmetic):
        return ""
    measured = {
        _bits(node.arithmetic)
        for inst, model in known("h200").items()
        if (inst.a, inst.b) == (a, b) and inst.scale is None and kind_of(inst)[0] == unit
        for node in model.root.nodes()
        if node.products and isinstance(node.arithmetic, FloatArithmetic) and node.arithmetic.result is arithmetic.result
    }
    if not measured or _bits(arithmetic) in measured:
        return ""
    has = " or ".join(map(str, sorted(measured)))
    return f"sums of {_bits(arithmetic)} fraction bits were found: those of an H200 keep {has} of {_both(a, b)}"


def _bits(arithmetic: FloatArithmetic) -> int:
    """Fraction bits that are left of a sum."""
    bits = arithmetic.alignment_bits
    return arithmetic.result_bits if bits is None else min(bits, arithmetic.result_bits)


def _takes(unit: str, a: Format, b: Format) -> bool:
    return unit.removeprefix("UTC")[0] == _letter(a, b)


def _letter(a: Format, b: Format) -> str:
    """Of the unit that takes these formats as they are, "" where there is none."""
    from accprobe.sass.opcodes import letter

    try:
        return letter({a.name, b.name})
    except StopIteration:
        return ""


def _both(a: Format, b: Format) -> str:
    return a.name if a is b else f"{a} and {b}"

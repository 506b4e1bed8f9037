"""The kernels of one call, their matrix opcodes, and contradictions between these and the inferred plan.

torch's profiler (CUPTI) gives the names. Opcodes come from the cubin of accprobe's own kernel, or from Nsight Compute, which
launches the call again in a child process. No opcode is derived from the name of a kernel.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accprobe.errors import AccprobeError
from accprobe.gemm.callables.adapter import CallableAdapter
from accprobe.gemm.callables.builtin import Ready
from accprobe.gemm.steps import known
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.report.products import KernelRecord, ProductRow
from accprobe.sass.opcodes import MATRIX, kind_of, stem

# Names of profiler events that are not kernels.
NO_KERNEL = re.compile(r"Memcpy|Memset|\[CUDA")

NOTHING_TO_COUNT = "opcodes: --ncu has nothing to count, because the CPU computed the product"


class Kernels(NamedTuple):
    """The kernels of one call. why_not: what could not be read and why, in words."""

    kernels: tuple[KernelRecord, ...] = ()
    why_not: tuple[str, ...] = ()


def kernels_of(adapter: CallableAdapter, ready: Ready, command: Sequence[str] | None = None) -> Kernels:
    """Return the kernels of one call with the current operands. A CPU's kernels have no names.

    command: arguments of `python -m accprobe.gemm` that launch the same call under Nsight Compute; None: do not use it.
    """
    if adapter.library.device == "cpu":
        return Kernels(why_not=() if command is None else (NOTHING_TO_COUNT,))
    names, why_not = _profiled(adapter)
    of_own = ready.lowering.matrix if ready.lowering else ()
    kernels = tuple(
        KernelRecord(name=name, opcodes=of_own if name == ready.kernel else (), launches=n) for name, n in names.items()
    )
    if any(kernel.opcodes for kernel in kernels):
        return Kernels(kernels, why_not)
    if command is None:
        return Kernels(kernels, (*why_not, "opcodes: not read, because the kernels belong to a library; --ncu counts them"))
    try:
        return Kernels(_counted(command) or kernels, why_not)
    except AccprobeError as e:
        return Kernels(kernels, (*why_not, f"opcodes: {e}"))


def _profiled(adapter: CallableAdapter) -> tuple[Counter[str], tuple[str, ...]]:
    """Count the kernels of one call by name. An earlier call does what is done only once."""
    try:
        import torch
        from torch.autograd.profiler import profile  # torch.profiler takes seconds to import graph compilers
    except ImportError:
        return Counter(), ("kernels: torch, whose profiler reads their names, is not installed",)
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # otherwise it reports every start and stop
    adapter.call()
    torch.cuda.synchronize()
    try:
        # acc_events: otherwise torch 2.10 and 2.11 warn about cycles that do not exist (pytorch/pytorch issue 180348)
        with profile(use_device="cuda", use_kineto=True, acc_events=True) as run:
            adapter.call()
            torch.cuda.synchronize()
    except RuntimeError as e:
        return Counter(), (f"kernels: torch's profiler failed: {' '.join(str(e).split())}",)
    events = [event for event in run.function_events or () if str(event.device_type) == "DeviceType.CUDA"]
    names = Counter(event.name for event in events if not NO_KERNEL.match(event.name))
    return names, () if names else ("kernels: torch's profiler recorded none: CUPTI may be missing, or in use",)


def _counted(command: Sequence[str]) -> tuple[KernelRecord, ...]:
    """Return the kernels that executed a matrix opcode, counted by Nsight Compute. Raises AccprobeError."""
    from accprobe.audit import ncu

    found: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for launch in ncu.launches([sys.executable, "-m", "accprobe.gemm", *command]):
        if opcodes := tuple(launch.count()):
            found[launch.function.name, opcodes] += 1
    return tuple(KernelRecord(name=name, opcodes=opcodes, launches=n) for (name, opcodes), n in found.items())


def contradictions(row: ProductRow) -> tuple[str, ...]:
    """Return remarks about opcodes that do not match the inferred plan."""
    return tuple(_contradictions(row))


def _contradictions(row: ProductRow) -> Iterator[str]:
    a, b = FORMATS[row.a], FORMATS[row.b]
    step = row.regions[0].model.step if row.regions and row.regions[0].model else None
    executed = {stem(opcode) for kernel in row.kernels for opcode in kernel.opcodes if MATRIX.match(opcode)}
    for unit in sorted(executed):
        if unit.removeprefix("UTC")[0] != _letter(a, b):
            yield f"CONVERTED: {unit} ran, which does not take {_both(a, b)}: the kernel converts its operands"
        elif step is not None and (why := _contradiction(unit, a, b, step)):
            yield f"CONTRADICTION: {unit} ran, and {why}"


def _contradiction(unit: str, a: Format, b: Format, step: DotModel) -> str:
    """Return why a fused sum is not one of this unit on the H200; "" if it may be, or the unit is unknown."""
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
    return f"the sums have {_bits(arithmetic)} fraction bits; on an H200 it keeps {has} for {_both(a, b)}"


def _bits(arithmetic: FloatArithmetic) -> int:
    """Return the fraction bits that remain of a sum."""
    bits = arithmetic.alignment_bits
    return arithmetic.result_bits if bits is None else min(bits, arithmetic.result_bits)


def _letter(a: Format, b: Format) -> str:
    """Return the letter of the unit that takes these formats, "" if there is none."""
    from accprobe.sass.opcodes import letter

    try:
        return letter({a.name, b.name})
    except StopIteration:
        return ""


def _both(a: Format, b: Format) -> str:
    return a.name if a is b else f"{a} and {b}"

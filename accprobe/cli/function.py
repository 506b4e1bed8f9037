"""`accprobe function`: what a scalar instruction or an elementwise callable computes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from accprobe.cli.output import DIFFERS, Output, list_names, print_message
from accprobe.cli.reports import OnReport, measure_report, report_options
from accprobe.errors import AccprobeError, DeviceError, UnknownName, defect, nearest

if TYPE_CHECKING:
    from accprobe.function.arithmetic import ArithmeticUnit
    from accprobe.function.quantisers import ScaleLayout
    from accprobe.function.units import ScalarUnit
    from accprobe.function.versus import ResultDifference
    from accprobe.records.claims import Status
    from accprobe.records.functions import FunctionRow
    from accprobe.render.document import Element
    from accprobe.render.progress import Show
    from accprobe.report.report import Report


@click.command("function")
@click.argument("callable_", metavar="[CALLABLE]", required=False)
@click.option("--versus", metavar="CALLABLE", help="Second callable, compared operand by operand.")
@click.option("--dtype", metavar="FORMAT", help="Operand format of CALLABLE.  [default: f32]")
@click.option(
    "--scale",
    type=click.Choice(("tensor", "row", "block")),
    help="Scales of a quantiser f(x, scale), x [rows, K]: one, [rows, 1], or [rows, K / 128] for blocks.",
)
@click.option("--device", metavar="cuda:N|cpu", help="Device.  [default: the first usable GPU, else the CPU]")
@click.option("--arrays", type=click.Choice(("torch", "numpy", "jax")), help="Arrays that your function takes.")
@click.option("--exhaustive", is_flag=True, help="Compare all 2^32 operands of a 32-bit format on a CPU too.")
@click.option("--select", multiple=True, metavar="GLOB", help="PTX instructions: a name or a glob. Repeatable.")
@report_options()
@click.option("--list", "listing", is_flag=True, help="List the PTX instructions.")
def function_command(
    callable_: str | None,
    versus: str | None,
    dtype: str | None,
    scale: ScaleLayout | None,
    device: str | None,
    arrays: str | None,
    exhaustive: bool,
    select: tuple[str, ...],
    to: Output,
    listing: bool,
) -> None:
    """Find what a scalar function computes, on every operand.

    CALLABLE is FILE.py:FUNCTION or package:function (torch:silu, numpy:exp). It takes one array and returns an array of the
    same shape. accprobe finds the function that it computes, such as one rounding of a reference function, and its largest
    error. All operands of at most 16 bits are compared. For 32 bits, 2^26 operands are compared; all of them on a GPU or with
    --exhaustive.

    With --scale, CALLABLE is a quantiser f(x, scale). It returns an array of x's shape in a narrow format. accprobe determines
    whether it divides by the scale or multiplies, and how it rounds and saturates.

    Without CALLABLE, accprobe measures scalar PTX instructions of a GPU. The special function unit (ex2, lg2, rcp, rsqrt, sqrt,
    sin, cos, tanh) and conversions (cvt) are measured on every operand. Additions, multiplications, fused multiply-adds and
    additions to memory (red) are measured on directed and random operands.

    Needs: nothing for numpy; torch for its functions; extra cuda13 or cuda12 for a GPU.

    Exit status 0: every function that the device has is confirmed; with --versus, no difference is found. 1: a function is not
    confirmed; with --versus, two differ. 2: it could not be measured. 130: interrupted.

    \b
    Examples:
      accprobe function numpy:sqrt --dtype f16
      accprobe function torch:silu --dtype bf16 --versus kernels.py:silu
      accprobe function quantise.py:quantise --dtype bf16 --scale row --versus kernels.py:quantise
      accprobe function --device cuda:0 --select 'ex2.*' -o functions.json
    """
    if listing:
        if select or callable_ or to.form != "terminal":
            raise click.UsageError("--list prints the names of all PTX instructions: leave out the rest")
        from accprobe.function.arithmetic import ARITHMETIC_UNITS
        from accprobe.function.units import SCALAR_UNITS

        names = [
            (unit.name, f"{unit.kind}: {unit.operand} -> {unit.result}{f'; {NEVER_RAN}' * bool(unit.since)}")
            for unit in SCALAR_UNITS
        ]
        list_names([*names, *((unit.name, f"arithmetic: {unit.fmt}") for unit in ARITHMETIC_UNITS)])
        return
    if callable_ is None:
        if versus or scale or dtype or arrays or exhaustive:
            raise click.UsageError("--versus, --dtype, --scale, --arrays and --exhaustive need a CALLABLE")
        _units(device, select, to)
    elif select:
        raise click.UsageError("--select chooses PTX instructions: leave CALLABLE out, or --select")
    elif scale and exhaustive:
        raise click.UsageError("--exhaustive has no effect with --scale: leave it out")
    else:
        _callables([each for each in (callable_, versus) if each], dtype or "f32", scale, device, arrays, exhaustive, to)


def _units(device: str | None, select: tuple[str, ...], to: Output) -> None:
    """Measure instructions, row by row; Ctrl-C and the time limit keep the rows."""
    from accprobe.build import driver
    from accprobe.devices import open_device
    from accprobe.function.arithmetic import ARITHMETIC_UNITS
    from accprobe.function.units import SCALAR_UNITS
    from accprobe.render.subjects.functions import function_blocks
    from accprobe.report.report import Report

    count, why = driver.gpus()
    if not (device or "cuda:0").startswith("cuda"):
        raise AccprobeError("PTX instructions run on a GPU: give --device cuda:N, or a CALLABLE such as numpy:exp")
    if not count:
        raise driver.no_gpu(why, "a CALLABLE such as numpy:exp needs none")
    every: tuple[ScalarUnit | ArithmeticUnit, ...] = (*SCALAR_UNITS, *ARITHMETIC_UNITS)
    chosen = [unit for unit in every if not select or any(fnmatchcase(unit.name, glob) for glob in select)]
    if not chosen:
        raise UnknownName(f"no PTX instruction matches '{select[0]}'; {nearest(select[0], [unit.name for unit in every])}")
    gpu = open_device(device or "gpu")
    _compile(chosen, gpu.architecture)
    index = int((device or "cuda:0").partition(":")[2] or 0)
    empty = Report.empty(gpu, device, 0)

    def measure(on_report: OnReport, _: object) -> None:
        rows: list[FunctionRow] = []
        for row in measure_at_once(chosen, gpu.architecture, index):
            rows.append(row)
            on_report(empty.with_claims(rows), len(rows), len(chosen))

    report = measure_report(measure, to, lambda found: function_blocks(found.functions))
    if any(row.status != "confirmed" and row.reason != NEVER_RAN for row in report.functions):
        sys.exit(DIFFERS)


MOST_AT_ONCE = 8
ELSEWHERE = "sm_100a"  # The target for which units that the GPU lacks are compiled.
NEVER_RAN = f"exists on {ELSEWHERE} and later: compiled and disassembled, never run on hardware"


def _compile(units: list[ScalarUnit | ArithmeticUnit], target: str) -> None:
    """Compile the kernels of all units at once; whatever fails is reported where a kernel is used."""
    from accprobe.build.compiler import fill_cache

    for there, name in ((True, target), (False, ELSEWHERE)):
        fill_cache([(unit.source, unit.name) for unit in units if unit.exists_on(target) is there], name)


def measure_at_once(units: list[ScalarUnit | ArithmeticUnit], target: str, index: int) -> Iterator[FunctionRow]:
    """Yield the row of each unit, in order; the inference of some runs while the GPU verifies another."""
    with ThreadPoolExecutor(min(MOST_AT_ONCE, len(os.sched_getaffinity(0)))) as pool:
        yield from pool.map(lambda unit: _measured(unit, target, index), units)


def _measured(unit: ScalarUnit | ArithmeticUnit, target: str, index: int) -> FunctionRow:
    """Return the row of a unit: skipped after an AccprobeError or if the GPU lacks it, unverified after a defect.

    Raises DeviceError.
    """
    from accprobe.function.arithmetic import ArithmeticUnit, GpuArithmetic
    from accprobe.function.measure import FunctionRequest, measure
    from accprobe.function.rules import measure_arithmetic
    from accprobe.function.units import GpuUnit, opcodes_of

    try:
        if not unit.exists_on(target):
            return _without_results(unit, "skipped", NEVER_RAN, opcodes_of(unit.compile(ELSEWHERE)))
        if isinstance(unit, ArithmeticUnit):
            return measure_arithmetic(GpuArithmetic(unit, index))
        subject = GpuUnit(unit, index)
        # Special functions of f32, such as ex2.approx, may be tables of quadratics: look for such a model.
        tables = unit.kind == "special function" and unit.operand.name == "f32"
        request = FunctionRequest(unit.function, tables=tables, opcodes=opcodes_of(subject.cubin))
        return measure(subject, request)
    except DeviceError:
        raise
    except AccprobeError as e:
        return _without_results(unit, "skipped", str(e))
    except Exception as e:  # a defect in one instruction must not cost the others their rows
        return _without_results(unit, "unverified", defect(e))


def _without_results(
    unit: ScalarUnit | ArithmeticUnit, status: Status, reason: str, opcodes: tuple[str, ...] = ()
) -> FunctionRow:
    from accprobe.function.units import ScalarUnit
    from accprobe.records.functions import FunctionRow

    operand, result = (unit.operand, unit.result) if isinstance(unit, ScalarUnit) else (unit.fmt, unit.fmt)
    return FunctionRow(name=unit.name, operand=operand.name, result=result.name, status=status, reason=reason, opcodes=opcodes)


def _callables(
    names: list[str],
    dtype: str,
    layout: ScaleLayout | None,
    device: str | None,
    arrays: str | None,
    exhaustive: bool,
    to: Output,
) -> None:
    """Measure one or two functions, or quantisers where there is a layout of scales, and compare them."""
    from accprobe.function import measure, quantisers, subjects, versus
    from accprobe.gemm.machine import empty_report
    from accprobe.render.document import paragraphs
    from accprobe.render.progress import PERCENT
    from accprobe.render.subjects.functions import function_blocks

    fmt = subjects.format_named(dtype)
    differences: list[ResultDifference] = []

    def measured(on_report: OnReport, show: Show) -> None:
        def shares(title: str) -> Callable[[str, float], None]:
            return lambda name, share: show(int(PERCENT * share), PERCENT, f"{title}: {name}")

        rows: list[FunctionRow] = []
        if layout:
            scaled = [quantisers.QuantiserSubject(name, fmt, layout, device, arrays) for name in names]
            empty = empty_report(scaled[0].library, 0)
            for quantiser in scaled:
                rows.append(quantisers.measure_quantiser(quantiser))
                on_report(empty.with_claims(rows))
            differences.extend([quantisers.compare_quantisers(scaled[0], scaled[1])] if len(scaled) > 1 else [])
        else:
            plain = [subjects.CallableSubject(name, fmt, device, arrays) for name in names]
            request = measure.FunctionRequest(exhaustive=exhaustive or plain[0].device != "cpu")
            empty = empty_report(plain[0].library, 0)
            for each in plain:
                row = measure.measure(
                    each, request, shares(each.name), lambda stopped: on_report(empty.with_claims([*rows, stopped]))
                )
                rows.append(each.with_repetition(row))
                on_report(empty.with_claims(rows))
            differences.extend([versus.compare_functions(plain[0], plain[1], request.exhaustive)] if len(plain) > 1 else [])

    def blocks(report: Report) -> Iterator[Element]:
        yield from paragraphs(map(str, differences), "strong")
        yield from function_blocks(report.functions)

    report = measure_report(measured, to, blocks)
    if to.form == "json":
        for each in differences:
            print_message(str(each))
    if differences[0].differing if differences else report.functions[0].status != "confirmed":
        sys.exit(DIFFERS)

"""Subnormals: whether those of A, B and C are read, and whether the result may be one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

from accprobe.experiments.draft import Draft
from accprobe.experiments.elimination import eliminate
from accprobe.experiments.findings import Finding, Value
from accprobe.experiments.workbench import Dyadic, Row, Workbench, encode, power
from accprobe.formats import Format
from accprobe.model import DotModel, Subnormals
from accprobe.operands import Operands

FEATURES = ("subnormal_operands", "subnormal_addend", "subnormal_results")


def subnormals(bench: Workbench, draft: Draft) -> tuple[Draft, list[Finding]]:
    """All three features at once: each alone is ambiguous where an input can only be seen through the result."""
    drafts = {}
    for combination in product(get_args(Subnormals), repeat=3):
        drafts[combination] = _with(draft, combination)
    candidates: dict[Value, DotModel] = {"/".join(c): d.model() for c, d in drafts.items()}
    joint = eliminate(bench, "subnormals", candidates, _operands(bench))
    left = [tuple(str(value).split("/")) for value in joint.left or (joint.value,)]
    findings = []
    for i, feature in enumerate(FEATURES):
        values = tuple(sorted({combination[i] for combination in left}, reverse=True))
        bound = "exact" if len(values) == 1 and joint.value is not None else "undetermined"
        note = "" if bound == "exact" else "a lost input and a lost result look the same here"
        findings.append(Finding(feature, values[0], bound, values if len(values) > 1 else (), note, joint.evidence))
    return _with(draft, left[0]), findings


def _with(draft: Draft, combination: tuple[str, ...]) -> Draft:
    operands, addend, results = combination
    changed = replace(draft, subnormal_operands=operands, subnormal_addend=addend)
    return changed.change("sum", subnormal_results=results).change("add", subnormal_results=results)


def _operands(bench: Workbench) -> Operands:
    """Lone values: a subnormal of A, of B, of C; and normal terms whose sum is a subnormal result."""
    inst, d = bench.inst, bench.inst.d
    below = power(d.min_exponent - 1)
    normal: list[Row] = [{0: below}, {0: power(d.min_exponent), bench.addend: Dyadic(-3, d.min_exponent - 1)}]
    normal += [{0: Dyadic(3, d.min_exponent - 1), 1: -power(d.min_exponent)}] if inst.k > 1 else []
    operands = bench.rows([{}] * 3 + [row for row in normal if bench.fits(row)])
    operands.a[0, 0], operands.b[0, 0] = _largest_subnormal(inst.a), _large(inst.b, d)
    operands.a[1, 0], operands.b[1, 0] = _large(inst.a, d), _largest_subnormal(inst.b)
    operands.c[2] = _largest_subnormal(inst.c)
    return operands


def _largest_subnormal(fmt: Format) -> int:
    return encode(fmt, power(fmt.min_exponent - 1)) or 0


def _large(fmt: Format, d: Format) -> int:
    return encode(fmt, power(min(fmt.max_exponent, d.max_exponent))) or 0

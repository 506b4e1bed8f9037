"""Subnormals: whether those of A, B and C are read, and whether the result may be one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product, takewhile
from typing import get_args

from accprobe.infer.draft import Draft, roles
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import Dyadic, Reach, Row, Workbench, eliminate, encode, two_to
from accprobe.isa.formats import Format
from accprobe.model.features import Name
from accprobe.model.tree import Subnormals
from accprobe.operands.request import Request


def subnormals(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """All of it at once: each alone is ambiguous where an input can only be seen through the result."""
    present = roles(draft)
    features = ["subnormal_operands", "subnormal_addend", *(str(Name("subnormal_results", role)) for role in present)]
    choices: tuple[Subnormals, ...] = get_args(Subnormals)
    drafts: dict[str, tuple[Draft, tuple[Subnormals, ...]]] = {}
    for of_operands, of_addend, *results in product(choices, repeat=len(features)):
        changed = replace(draft, subnormal_operands=of_operands, subnormal_addend=of_addend)
        for role, value in zip(present, results, strict=True):
            changed = changed.change(role, subnormal_results=value)
        combination = (of_operands, of_addend, *results)
        drafts["/".join(combination)] = changed, combination
    joint = eliminate(bench, {name: d.model() for name, (d, _) in drafts.items()}, _operands(bench))
    explained = bool(joint.candidates) or joint.bound == "exact"
    left = [drafts[str(name)][1] for name in joint.candidates or (joint.value,)]
    findings: Findings = {}
    for i, feature in enumerate(features):
        values = tuple(dict.fromkeys(combination[i] for combination in left))
        if len(values) == 1 and explained:
            findings[feature] = Finding(values[0], evidence=joint.evidence)
        else:
            note = "no such subnormal can be made, or a lost input and a lost result look the same" if explained else joint.note
            findings[feature] = Finding(values[0], "undetermined", values, note, joint.evidence)
    operands, addend = (findings[name].value == "kept" and findings[name].bound == "exact" for name in features[:2])
    reach = Reach(operands, addend)
    reach = replace(reach, smallest_result=_smallest_result(bench.within(reach)))
    return replace(drafts[str(joint.value)][0], reach=reach), findings


def _smallest_result(bench: Workbench) -> int:
    """Exponent of the smallest power of two that comes back exactly, as C alone and as a product alone.

    Where one of them is lost earlier, by a sum that the other does not pass through, that one counts.
    """
    d = bench.inst.d
    exponents = range(d.min_exponent, d.min_exponent - d.mantissa_bits - 1, -1)
    reached: list[int] = [d.min_exponent]
    lost: list[int] = []
    for leaf in (bench.addend, 0):
        rows = [(e, {leaf: two_to(e)}) for e in exponents if bench.holds(leaf, two_to(e))]
        answers = bench.query(bench.rows([row for _, row in rows]))
        came_back = list(
            takewhile(lambda pair: int(pair[1]) == bench.result(two_to(pair[0][0])), zip(rows, answers, strict=True))
        )
        smallest = min((e for (e, _), _ in came_back), default=d.min_exponent)
        (lost if len(came_back) < len(rows) else reached).append(smallest)
    return max(lost) if lost else min(reached)


def _operands(bench: Workbench) -> Request:
    """Lone values: a subnormal of A, of B, of C; and normal terms whose sum is a subnormal result."""
    inst, d = bench.inst, bench.inst.d
    below = two_to(d.min_exponent - 1)
    normal: list[Row] = [{0: below}, {0: two_to(d.min_exponent), bench.addend: Dyadic(-3, d.min_exponent - 1)}]
    lowest = max(bench.product_exponents()[0], d.min_exponent)
    for e, sign in product(range(lowest, lowest + inst.a.mantissa_bits + inst.b.mantissa_bits), (1, -1)):
        left = Dyadic(sign * ((1 << (e - d.min_exponent + 1)) + 1), d.min_exponent - 1)
        normal += [{0: left, leaf: Dyadic(-sign, e)} for leaf in (1, inst.k - 1, bench.addend) if leaf]
    operands = bench.rows([{}] * 3 + [row for row in normal if bench.fits(row)])
    operands.a[0, 0], operands.b[0, 0] = _largest_subnormal(inst.a), _large(inst.b, d)
    operands.a[1, 0], operands.b[1, 0] = _large(inst.a, d), _largest_subnormal(inst.b)
    operands.c[2] = _largest_subnormal(inst.c)
    return operands


def _largest_subnormal(fmt: Format) -> int:
    return encode(fmt, two_to(fmt.min_exponent - 1)) or 0


def _large(fmt: Format, d: Format) -> int:
    return encode(fmt, two_to(min(fmt.max_exponent, d.max_exponent))) or 0

"""Specials: the NaN pattern, overflow, underflow, and the sign of zero. Carries: many terms of one sign."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import get_args

import numpy as np

from accprobe.experiments.draft import Draft, Role, roles
from accprobe.experiments.elimination import EVIDENCE, eliminate, fitting
from accprobe.experiments.findings import Finding, Value
from accprobe.experiments.workbench import Dyadic, Row, Workbench, encode, power
from accprobe.formats import Format
from accprobe.model import DotModel, Overflow, UnderflowSign, ZeroSign
from accprobe.operands import Operands


def specials(bench: Workbench, draft: Draft) -> tuple[Draft, list[Finding]]:
    """NaN pattern, overflow, and the sign of zero, of both roles."""
    findings = []
    for step in (nan, overflow, zero_sign, underflow_sign):
        draft, found = step(bench, draft)
        findings += found
    return draft, findings


def nan(bench: Workbench, draft: Draft) -> tuple[Draft, list[Finding]]:
    """What NaN operands of any sign and payload, Inf - Inf and 0 * Inf become."""
    operands = _invalid(bench)
    d = bench.ask(operands)
    seen = tuple(dict.fromkeys(int(x) for x in d))
    evidence = bench.exchanges(operands, d, range(min(EVIDENCE, len(d))))
    digits = bench.inst.d.storage_bits // 4
    shown = tuple(f"0x{x:0{digits}X}" for x in seen)
    draft = draft.change("sum", nan=seen[0]).change("add", nan=seen[0])
    if len(seen) == 1:
        return draft, [Finding("nan", shown[0], evidence=evidence)]
    return draft, [Finding("nan", shown[0], "undetermined", shown, "depends on the operands", evidence)]


def _invalid(bench: Workbench) -> Operands:
    inst = bench.inst
    one_a, one_b = (encode(f, power(0)) or 0 for f in (inst.a, inst.b))
    rows: list[tuple[tuple[int, int], tuple[int, int], int]] = []
    rows += [((x, one_b), (0, 0), 0) for x in _nans(inst.a)]
    rows += [((one_a, x), (0, 0), 0) for x in _nans(inst.b)]
    rows += [((0, 0), (0, 0), x) for x in _nans(inst.c)]
    if inst.a.infinity is not None:
        rows += [((inst.a.infinity, 0), (0, 0), 0), ((inst.a.infinity, one_b), (inst.a.infinity | inst.a.sign_bit, one_b), 0)]
        if inst.c.infinity is not None:
            rows += [((inst.a.infinity, one_b), (0, 0), inst.c.infinity | inst.c.sign_bit)]
    operands = bench.rows([{}] * len(rows))
    last = inst.k - 1
    for i, ((a0, b0), (a1, b1), c) in enumerate(rows):
        operands.a[i, last], operands.b[i, last] = a1, b1
        operands.a[i, 0], operands.b[i, 0] = (a0, b0) if last or a0 or b0 else (a1, b1)
        operands.c[i] = c
    return operands


def _nans(fmt: Format) -> Iterator[int]:
    if fmt.specials == "nan only":
        yield from (fmt.largest + 1, fmt.largest + 1 | fmt.sign_bit)
    elif fmt.infinity is not None:
        low = fmt.ignored_low_bits
        for payload in (1, 1 << (fmt.mantissa_bits - 1), (1 << fmt.mantissa_bits) - 1):
            yield from (fmt.infinity | payload << low, fmt.infinity | payload << low | fmt.sign_bit)


def overflow(bench: Workbench, draft: Draft) -> tuple[Draft, list[Finding]]:
    """What a finite sum above the largest result becomes."""
    findings = []
    for role, prefix in roles(draft):
        candidates: dict[Value, DotModel] = {o: draft.change(role, overflow=o).model() for o in get_args(Overflow)}
        note = "no sum of these operands exceeds the largest result"
        finding = eliminate(bench, f"{prefix}overflow", candidates, fitting(bench, list(_large(bench, role))), note)
        draft = draft.change(role, overflow=finding.value)
        findings.append(finding)
    return draft, findings


def _large(bench: Workbench, role: Role) -> Iterator[Row]:
    inst = bench.inst
    top = min(inst.d.max_exponent, bench.product_exponents()[-1])
    k = inst.k - 1
    for sign in (1, -1):
        if role == "sum":
            yield {0: Dyadic(sign, top), k: Dyadic(sign, top)}
            yield {0: Dyadic(sign, top + 1)}
            yield {leaf: Dyadic(sign, top) for leaf in range(inst.k)}
            yield {0: Dyadic(sign, top), k: Dyadic(sign, top - 1), bench.addend: Dyadic(sign, top)}
        yield {bench.addend: Dyadic(sign, inst.c.max_exponent), 0: Dyadic(sign, top)}
        yield {bench.addend: Dyadic(sign, inst.c.max_exponent), k: Dyadic(sign, top)}
        largest = Dyadic(sign * ((2 << inst.c.mantissa_bits) - 1), inst.c.max_exponent - inst.c.mantissa_bits)
        yield {bench.addend: largest, 0: Dyadic(sign, top)}


def zero_sign(bench: Workbench, draft: Draft) -> tuple[Draft, list[Finding]]:
    """The sign of a zero: from zeros of both signs, and from terms that cancel."""
    present = roles(draft)
    candidates: dict[Value, DotModel] = {}
    drafts = {}
    for combination in product(get_args(ZeroSign), repeat=len(present)):
        changed = draft
        for (role, _), sign in zip(present, combination, strict=True):
            changed = changed.change(role, zero_sign=sign)
        drafts[combination] = changed
        candidates["/".join(combination)] = changed.model()
    joint = eliminate(bench, "zero_sign", candidates, _zeros(bench))
    left = [tuple(str(value).split("/")) for value in joint.left or (joint.value,)]
    findings = []
    for i, (_, prefix) in enumerate(present):
        values = tuple(dict.fromkeys(combination[i] for combination in left))
        known = len(values) == 1 and not (joint.bound == "undetermined" and not joint.left)
        note = "" if known else joint.note
        findings.append(
            Finding(
                f"{prefix}zero_sign",
                values[0],
                "exact" if known else "undetermined",
                () if known else values,
                note,
                joint.evidence,
            )
        )
    return drafts[left[0]], findings


def _zeros(bench: Workbench) -> Operands:
    inst = bench.inst
    minus = [inst.a.sign_bit, inst.b.sign_bit, inst.c.sign_bit]
    one = encode(inst.b, power(0)) or 0
    operands = bench.rows([{}] * 8 + [{0: power(0), inst.k - 1: -power(0)} if inst.k > 1 else {}] * 2)
    for i in range(8):
        operands.a[i] = minus[0] if i & 1 else 0
        operands.b[i] = one if i & 4 else 0
        operands.c[i] = minus[2] if i & 2 else 0
    operands.c[9] = minus[2]
    return operands


def underflow_sign(bench: Workbench, draft: Draft) -> tuple[Draft, list[Finding]]:
    """The sign of a sum below the smallest result: lone products and C, of both signs, down to the smallest there are."""
    lowest = bench.result_exponents()[0]
    last = next(slot.leaf for node in draft.nodes() for slot in node.slots if slot.kind == "product")
    rows: list[Row] = []
    for leaf, exponents in ((last, bench.product_exponents()), (bench.addend, bench.addend_exponents())):
        for e in range(max(exponents[0], lowest - 40), min(exponents[-1], lowest) + 1):
            rows += [{leaf: Dyadic(sign * t, e)} for sign in (1, -1) for t in (1, 3)]
    findings = []
    for role, prefix in roles(draft):
        candidates = {sign: draft.change(role, underflow_sign=sign).model() for sign in get_args(UnderflowSign)}
        note = "no sum of these operands is too small for the result"
        finding = eliminate(bench, f"{prefix}underflow_sign", candidates, fitting(bench, rows), note)
        draft = draft.change(role, underflow_sign=finding.value)
        findings.append(finding)
    return draft, findings


def carries(bench: Workbench, model: DotModel) -> Finding:
    """Many terms of one sign: the sum must grow without wrapping, and without losing low bits."""
    inst = bench.inst
    full_a, full_b = ((2 << f.mantissa_bits) - 1 for f in (inst.a, inst.b))
    rows = [{leaf: Dyadic(sign, 0) for leaf in range(n)} for n in range(1, inst.k + 1) for sign in (1, -1)]
    operands = bench.rows(rows + rows)
    a, b = (encode(f, Dyadic(full, -f.mantissa_bits)) for f, full in ((inst.a, full_a), (inst.b, full_b)))
    if a is not None and b is not None:
        used = operands.a[: len(rows)] != 0
        operands.a[: len(rows)][used] = a | (operands.a[: len(rows)][used] & inst.a.dtype.type(inst.a.sign_bit))
        operands.b[: len(rows)][used] = b
    operands.c[len(rows) :] = encode(inst.c, power(0)) or 0
    d = bench.ask(operands)
    wrong = np.flatnonzero(d != model.evaluate(inst, *operands))
    if not len(wrong):
        return Finding("carries", "kept", evidence=bench.exchanges(operands, d, [2 * inst.k - 2, 4 * inst.k - 2]))
    return Finding(
        "carries",
        "lost",
        "undetermined",
        note="sums of one sign differ from the model",
        evidence=bench.exchanges(operands, d, wrong[:EVIDENCE]),
    )

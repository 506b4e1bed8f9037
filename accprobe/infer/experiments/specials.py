"""Specials: the NaN pattern, overflow, underflow, and the sign of zero. Carries: many terms of one sign."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.draft import Draft, roles
from accprobe.infer.experiments.scales import tiny_blocks
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import EVIDENCE, Dyadic, Row, Workbench, eliminate, encode, fitting, two_to
from accprobe.isa.formats import Format
from accprobe.model.features import Name
from accprobe.model.record import Value
from accprobe.model.tree import DotModel, FloatArithmetic, NanPayload, Overflow, Role, Subnormals, UnderflowSign, ZeroSign
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined


def nan(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """What an invalid operation gives, and what becomes of NaN operands of any sign and payload."""
    inst = bench.inst
    operands = _invalid(bench)
    d = bench.query(operands)
    seen = tuple(dict.fromkeys(int(x) for x in d))
    shown = tuple(f"0x{x:0{inst.d.storage_bits // 4}X}" for x in seen)
    draft = draft.change("sum", nan=seen[0]).change("add", nan=seen[0])
    pattern = Finding(shown[0], evidence=bench.exchanges(operands, d, range(min(EVIDENCE, len(d)))))
    if len(seen) == 1:
        return draft, {"nan": pattern, "nan_payload": Finding("dropped", evidence=pattern.evidence)}
    if not all(fmt.widens_to(inst.d) for fmt in (inst.a, inst.b, inst.c)):
        return draft, {"nan": replace(pattern, bound="undetermined", candidates=shown, note="depends on the operands")}
    drafts = {rule: draft.change("sum", nan_payload=rule).change("add", nan_payload=rule) for rule in get_args(NanPayload)}
    candidates = {rule: changed.model() for rule, changed in drafts.items()}
    payload = eliminate(bench, candidates, joined([operands, _rival_nans(bench)]))
    return drafts[str(payload.value)], {"nan": pattern, "nan_payload": payload}


def _invalid(bench: Workbench) -> Request:
    """Invalid operations first (Inf * 0, Inf - Inf), then NaN operands."""
    inst = bench.inst
    one_a, one_b = (encode(f, two_to(0)) or 0 for f in (inst.a, inst.b))
    rows: list[tuple[tuple[int, int], tuple[int, int], int]] = []
    if inst.a.infinity is not None:
        rows += [((inst.a.infinity, 0), (0, 0), 0), ((inst.a.infinity, one_b), (inst.a.infinity | inst.a.sign_bit, one_b), 0)]
        if inst.c.infinity is not None:
            rows += [((inst.a.infinity, one_b), (0, 0), inst.c.infinity | inst.c.sign_bit)]
    rows += [((x, one_b), (0, 0), 0) for x in _nans(inst.a)]
    rows += [((one_a, x), (0, 0), 0) for x in _nans(inst.b)]
    rows += [((0, 0), (0, 0), x) for x in _nans(inst.c)]
    operands = bench.rows([{}] * len(rows))
    last = inst.k - 1
    for i, ((a0, b0), (a1, b1), c) in enumerate(rows):
        operands.a[i, last], operands.b[i, last] = a1, b1
        operands.a[i, 0], operands.b[i, 0] = (a0, b0) if last or a0 or b0 else (a1, b1)
        operands.c[i] = c
    return operands


def _rival_nans(bench: Workbench) -> Request:
    """NaNs of different payloads on two or three of a product's factors and C."""
    inst = bench.inst
    operands = bench.rows([{}] * (7 * inst.k))
    for k in range(inst.k):
        for which in range(1, 8):
            row = 7 * k + which - 1
            for bit, (column, fmt) in enumerate(
                ((operands.a[row], inst.a), (operands.b[row], inst.b), (operands.c[row : row + 1], inst.c))
            ):
                value = (fmt.infinity or 0) | (3 + bit) if which >> bit & 1 else encode(fmt, two_to(0))
                column[k if len(column) > 1 else 0] = value
    return operands


def _nans(fmt: Format) -> Iterator[int]:
    if fmt.specials == "nan only":
        yield from (fmt.largest + 1, fmt.largest + 1 | fmt.sign_bit)
    elif fmt.infinity is not None:
        low = fmt.ignored_low_bits
        for payload in (1, 1 << (fmt.mantissa_bits - 1), (1 << fmt.mantissa_bits) - 1):
            yield from (fmt.infinity | payload << low, fmt.infinity | payload << low | fmt.sign_bit)


def overflow(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """What a finite sum above the largest result becomes."""
    findings: Findings = {}
    for role in roles(draft):
        candidates: dict[Value, DotModel] = {o: draft.change(role, overflow=o).model() for o in get_args(Overflow)}
        note = "no sum of these operands exceeds the largest result"
        finding = eliminate(bench, candidates, fitting(bench, list(_large(bench, role))), note)
        draft = draft.change(role, overflow=finding.value)
        findings[str(Name("overflow", role))] = finding
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


def zero_signs(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """The sign of a sum that is zero, and of one that rounds to zero, of both roles at once: one shows through the other.

    Where it is not known yet whether subnormals of C are read: that too, which the sign of the zero that C becomes may tell.
    """
    fields = [(role, field) for role in roles(draft) for field in ("zero_sign", "underflow_sign")]
    choices: list[tuple[str, ...]] = [get_args(ZeroSign), get_args(UnderflowSign)] * (len(fields) // 2)
    addends: tuple[Subnormals, ...] = (draft.subnormal_addend,) if bench.reach.subnormal_addend else get_args(Subnormals)
    drafts: dict[str, tuple[Draft, tuple[str, ...]]] = {}
    for addend, combination in product(addends, product(*choices)):
        changed = replace(draft, subnormal_addend=addend)
        for (role, field), value in zip(fields, combination, strict=True):
            changed = changed.change(role, **{field: value})
        drafts["/".join((*combination, addend))] = changed, (*combination, addend)
    tiny = tiny_blocks(bench.inst, bench.result_exponents()[0])
    operands = joined([_zeros(bench), _underflowing(bench, draft), _subnormal_addends(bench), tiny])
    note = "no sum of these operands shows it: none is too small for the result, or the next sum hides a zero's sign"
    joint = eliminate(bench, {name: d.model() for name, (d, _) in drafts.items()}, operands, note)
    explained = bool(joint.candidates) or joint.bound == "exact"
    left = [drafts[str(name)][1] for name in joint.candidates or (joint.value,)]
    findings: Findings = {}
    features = [str(Name(field, role)) for role, field in fields] + ["subnormal_addend"] * (len(addends) > 1)
    for i, feature in enumerate(features):
        values = tuple(dict.fromkeys(combination[i] for combination in left))
        if len(values) == 1 and explained:
            findings[feature] = Finding(values[0], evidence=joint.evidence)
        else:
            findings[feature] = Finding(values[0], "undetermined", values, joint.note, joint.evidence)
    return drafts[str(joint.value)][0], findings


def _zeros(bench: Workbench) -> Request:
    """Zeros of both signs on every leaf, and terms that cancel."""
    inst = bench.inst
    one = encode(inst.b, two_to(0)) or 0
    operands = bench.rows([{}] * 8 + [{0: two_to(0), inst.k - 1: -two_to(0)} if inst.k > 1 else {}] * 2)
    for i in range(8):
        operands.a[i] = inst.a.sign_bit if i & 1 else 0
        operands.b[i] = one if i & 4 else 0
        operands.c[i] = inst.c.sign_bit if i & 2 else 0
    operands.c[9] = inst.c.sign_bit
    return operands


def _underflowing(bench: Workbench, draft: Draft) -> Request:
    """Products and C of both signs around the smallest result and below, alone and all at once, beside zeros of both signs."""
    lowest = bench.result_exponents()[0]
    last = next(slot.leaf for node in draft.nodes() for slot in node.slots if slot.kind == "product")
    rows: list[Row] = []
    for leaf, exponents in ((last, bench.product_exponents()), (bench.addend, bench.addend_exponents())):
        for e in range(max(exponents[0], lowest - 40), min(exponents[-1], lowest) + 1):
            rows += [{leaf: Dyadic(sign * t, e)} for sign in (1, -1) for t in (1, 3)]
    for e in range(max(bench.product_exponents()[0], lowest - 40), lowest):
        rows.append({leaf: Dyadic(-1, e) for leaf in range(bench.inst.k)})
    operands = fitting(bench, rows)
    c = np.where(operands.c == 0, bench.inst.c.sign_bit, operands.c).astype(bench.inst.c.dtype)
    return joined([operands, replace(operands, c=c)])


def _subnormal_addends(bench: Workbench) -> Request:
    """The smallest and the largest subnormal C, of both signs, beside products that are all zeros of one sign."""
    fmt = bench.inst.c
    operands = bench.rows([{}] * 8)
    operands.a[4:] = bench.inst.a.sign_bit
    largest = encode(fmt, Dyadic((1 << fmt.mantissa_bits) - 1, fmt.min_exponent - fmt.mantissa_bits)) or 0
    smallest = encode(fmt, two_to(fmt.min_exponent - fmt.mantissa_bits)) or 0
    operands.c[:] = (smallest, largest, smallest | fmt.sign_bit, largest | fmt.sign_bit) * 2
    return operands


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
    operands.c[len(rows) :] = encode(inst.c, two_to(0)) or 0
    d = bench.query(operands)
    wrong = np.flatnonzero(d != evaluate(model, inst, operands))
    narrow = any(isinstance(x, FloatArithmetic) and x.accumulator_bits is not None for x in model.arithmetics)
    if not len(wrong):
        return Finding("lost" if narrow else "kept", evidence=bench.exchanges(operands, d, [2 * inst.k - 2, 4 * inst.k - 2]))
    return Finding(
        "lost",
        "undetermined",
        note="sums of one sign differ from the model",
        evidence=bench.exchanges(operands, d, wrong[:EVIDENCE]),
    )


# Dot products of each kind of operands that are asked under each setting.
OF_A_KIND = 256


def control(bench: Workbench) -> Findings:
    """Nothing of a device that has no such register."""
    inst, settings = bench.inst, bench.log.settings(bench.inst)
    if not settings:
        return {}
    rng = np.random.default_rng(OF_A_KIND)
    operands = joined([draw(kind, inst, rng, OF_A_KIND) for kind in kinds(inst)])
    d = bench.query(operands)
    changed = {name: np.flatnonzero(bench.log.dot_under(name, inst, operands) != d) for name in settings}
    obeyed = [name for name, rows in changed.items() if len(rows)]
    note = f"{len(d):,} dot products asked under each of {len(settings)} others: {', '.join(settings)}"
    return {"control": Finding(", ".join(obeyed) or "ignored", note=note)}

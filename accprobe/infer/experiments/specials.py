"""NaN patterns, overflow, sums of many terms of one sign, and the control register of a processor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import numpy as np

from accprobe.infer.draft import Draft, choose, choose_word
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import EVIDENCE, Dyadic, Row, Workbench, encode, two_to
from accprobe.isa.formats import Format
from accprobe.model.fields import Name
from accprobe.model.tree import DotModel, FloatArithmetic, NanPayload, Role
from accprobe.operands.kinds import draw_every_kind
from accprobe.operands.request import Request, joined

OF_A_KIND = 256  # Random dot products of each kind under each setting of a control register.


def nan(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find the result of an invalid operation and of NaN operands of any sign and payload."""
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
    rules = [dict.fromkeys(("nan_payload", "add_nan_payload"), rule) for rule in get_args(NanPayload)]
    draft, found = choose(bench, draft, rules, joined([operands, _competing_nans(bench)]))
    return draft, {"nan": pattern, "nan_payload": found["nan_payload"]}


def _invalid(bench: Workbench) -> Request:
    """Return rows with invalid operations (Inf * 0, Inf - Inf), then NaN operands."""
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
    operands = bench.request([{}] * len(rows))
    last = inst.k - 1
    for i, ((a0, b0), (a1, b1), c) in enumerate(rows):
        operands.a[i, last], operands.b[i, last] = a1, b1
        operands.a[i, 0], operands.b[i, 0] = (a0, b0) if last or a0 or b0 else (a1, b1)
        operands.c[i] = c
    return operands


def _competing_nans(bench: Workbench) -> Request:
    """Return rows with NaNs of different payloads on two or three of a product's factors and C."""
    inst = bench.inst
    operands = bench.request([{}] * (7 * inst.k))
    rows = np.arange(7 * inst.k)
    k, which = rows // 7, rows % 7 + 1
    for bit, (column, fmt, places) in enumerate(
        ((operands.a, inst.a, (rows, k)), (operands.b, inst.b, (rows, k)), (operands.c, inst.c, (rows,)))
    ):
        column[places] = np.where(which >> bit & 1, (fmt.infinity or 0) | (3 + bit), encode(fmt, two_to(0)) or 0)
    return operands


def _nans(fmt: Format) -> Iterator[int]:
    if fmt.specials == "nan only":
        yield from (fmt.largest + 1, fmt.largest + 1 | fmt.sign_bit)
    elif fmt.infinity is not None:
        low = fmt.ignored_low_bits
        for payload in (1, 1 << (fmt.mantissa_bits - 1), (1 << fmt.mantissa_bits) - 1):
            yield from (fmt.infinity | payload << low, fmt.infinity | payload << low | fmt.sign_bit)


def overflow(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find the result of a finite sum above the largest result."""
    findings: Findings = {}
    note = "no sum of these operands exceeds the largest result"
    for role in draft.roles():
        draft, found = choose_word(bench, draft, "overflow", role, bench.fitting(_large(bench, role)), note)
        findings[str(Name("overflow", role))] = found
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


def carries(bench: Workbench, model: DotModel) -> Finding:
    """Find whether sums of many terms of one sign grow without wrapping and without losing low bits."""
    inst = bench.inst
    full_a, full_b = ((2 << f.mantissa_bits) - 1 for f in (inst.a, inst.b))
    rows = [{leaf: Dyadic(sign, 0) for leaf in range(n)} for n in range(1, inst.k + 1) for sign in (1, -1)]
    operands = bench.request(rows + rows)
    a, b = (encode(f, Dyadic(full, -f.mantissa_bits)) for f, full in ((inst.a, full_a), (inst.b, full_b)))
    if a is not None and b is not None:
        used = operands.a[: len(rows)] != 0
        operands.a[: len(rows)][used] = a | (operands.a[: len(rows)][used] & inst.a.dtype.type(inst.a.sign_bit))
        operands.b[: len(rows)][used] = b
    operands.c[len(rows) :] = encode(inst.c, two_to(0)) or 0
    d, wrong = bench.mismatches(operands, model)
    narrow = any(isinstance(x, FloatArithmetic) and x.accumulator_bits is not None for x in model.arithmetics)
    if not len(wrong):
        return Finding("lost" if narrow else "kept", evidence=bench.exchanges(operands, d, [2 * inst.k - 2, 4 * inst.k - 2]))
    evidence = bench.exchanges(operands, d, wrong[:EVIDENCE])
    return Finding("lost", "undetermined", note="sums of one sign differ from the model", evidence=evidence)


def control(bench: Workbench) -> Findings:
    """Find the settings of the control register that change results, if the device has such a register."""
    inst, device = bench.inst, bench.log.device
    settings = device.settings(inst)
    if not settings:
        return {}
    rng = np.random.default_rng(OF_A_KIND)
    operands = draw_every_kind(inst, rng, OF_A_KIND)
    d = bench.query(operands)
    obeyed = [name for name in settings if (device.dot_under(name, inst, operands) != d).any()]
    note = f"{len(d):,} dot products asked under each of {len(settings)} others: {', '.join(settings)}"
    return {"control": Finding(", ".join(obeyed) or "ignored", note=note)}

"""Numbers at the ends of a format (subnormals, signed zeros, overflow, NaN), sums of many same-sign terms, and a processor's
control register.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product, takewhile
from typing import get_args

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.alternative import combinations_of
from accprobe.infer.draft import Draft, choose, choose_word
from accprobe.infer.workbench import EVIDENCE, Dyadic, LeafValues, Reach, Workbench, pattern_of, two_to
from accprobe.isa.formats import Format
from accprobe.model.fields import Name
from accprobe.model.tree import DotModel, NanPayload, Role, Subnormals, Tininess, UnderflowSign, ZeroSign
from accprobe.operands.kinds import draw_every_kind
from accprobe.operands.request import Request, joined
from accprobe.records.findings import Finding, Findings

SUMS = 3  # Kinds of sums in which many terms of one sign are added beside C and inner sums.
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
    one_a, one_b = (pattern_of(f, two_to(0)) or 0 for f in (inst.a, inst.b))
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
    """Return rows with NaNs of different payloads on one, two or three of a product's factors and C."""
    inst = bench.inst
    operands = bench.request([{}] * (7 * inst.k))
    rows = np.arange(7 * inst.k)
    k, which = rows // 7, rows % 7 + 1
    for bit, (column, fmt, places) in enumerate(
        ((operands.a, inst.a, (rows, k)), (operands.b, inst.b, (rows, k)), (operands.c, inst.c, (rows,)))
    ):
        column[places] = np.where(which >> bit & 1, (fmt.infinity or 0) | (3 + bit), pattern_of(fmt, two_to(0)) or 0)
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
        draft, found = choose_word(bench, draft, "overflow", role, bench.fitting(_overflowing(bench, role)), note)
        findings[str(Name("overflow", role))] = found
    return draft, findings


def _overflowing(bench: Workbench, role: Role) -> Iterator[LeafValues]:
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


def tininess(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find whether too small sums are detected before rounding, or after it to full precision, if results are not subnormal."""
    findings: Findings = {}
    for role in draft.roles():
        operands = _about_smallest(bench, draft, role)
        d, wrong = bench.mismatches(operands, draft.model())
        flushed = draft.arithmetic(role).subnormal_results == "flushed"
        ways = [draft.change(role, tininess_detected=word) for word in get_args(Tininess)[1:] if flushed and len(wrong)]
        explaining = [way for way in ways if np.array_equal(evaluate(way.model(), bench.inst, operands), d)]
        if explaining:
            words, shown = (way.arithmetic(role).tininess_detected for way in explaining), wrong[:EVIDENCE]
            findings[str(Name("tininess_detected", role))] = Finding.among(words, bench.exchanges(operands, d, shown))
            draft = explaining[0]
    return draft, findings


def _about_smallest(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Return rows with the smallest normal number minus quarters of its last place, and C that is that far below it."""
    bits = draft.arithmetic(role).result_bits
    leaf = next(leaf for node in draft.nodes() for leaf in node.products)
    smallest, last = bench.inst.c.min_exponent, bench.inst.c.min_exponent - bits
    rows: list[LeafValues] = []
    for t, sign in product((-1, 1, 2, 3, 4, 6), (1, -1)):
        rows.append({bench.addend: Dyadic(sign, smallest), leaf: Dyadic(-sign * t, last - 2)})
        rows.append({bench.addend: Dyadic(sign * ((4 << bits) - t), last - 2)})
    return bench.fitting(rows)


def carries(bench: Workbench, model: DotModel) -> Finding:
    """Find whether sums of many terms of one sign grow without wrapping and without losing low bits."""
    inst = bench.inst
    rows: list[LeafValues] = [{leaf: Dyadic(sign, 0) for leaf in range(n)} for n in range(1, inst.k + 1) for sign in (1, -1)]
    full, ones = bench.request(rows), bench.request(rows)
    full.a[:] = np.where(full.a, _full(inst.a, 0) | full.a & inst.a.dtype.type(inst.a.sign_bit), 0)
    full.b[full.b != 0] = _full(inst.b, 0)
    ones.c[:] = pattern_of(inst.c, two_to(0)) or 0
    operands = joined([full, ones, *_dense(bench, model)])
    d, wrong = bench.mismatches(operands, model)
    if not len(wrong):
        return Finding("kept", evidence=bench.exchanges(operands, d, [2 * inst.k - 2, 4 * inst.k - 2]))
    evidence = bench.exchanges(operands, d, wrong[:EVIDENCE])
    return Finding("lost", "undetermined", note="sums of one sign differ from the model", evidence=evidence)


def _dense(bench: Workbench, model: DotModel) -> Iterator[Request]:
    """Yield products of the largest significands, of one sign, in sums of each kind, beside C and inner sums of that size."""
    inst = bench.inst
    of_kinds = {(len(node.products), node.has_addend, len(node.children)): node for node in model.root.nodes() if node.products}
    for node in list(of_kinds.values())[-SUMS:]:
        inner = [next(below.products[0] for below in child.nodes() if below.products) for child in node.children]
        count = len(node.products)
        cases = list(product([count >> i for i in range(count.bit_length())], (0, 1)))
        request = Request.zeros(inst, len(cases))
        for row, (n, negative) in enumerate(cases):
            some = list(node.products[:n])
            request.a[row, some] = _full(inst.a, 1) | negative * inst.a.sign_bit
            request.a[row, inner] = _full(inst.a, 0) | negative * inst.a.sign_bit
            request.b[row, some + inner] = _full(inst.b, 0)
            request.c[row] = node.has_addend * (_full(inst.c, 1) | negative * inst.c.sign_bit)
        yield request


def _full(fmt: Format, exponent: int) -> int:
    """Return the number of that exponent with the largest significand; 0 if there is none."""
    return pattern_of(fmt, Dyadic((2 << fmt.mantissa_bits) - 1, exponent - fmt.mantissa_bits)) or 0


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


def subnormals(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find whether subnormals of the operands are read and whether results may be subnormal.

    All at once: each alone is ambiguous if an input is observable only through the result.
    """
    features = ["subnormal_operands", "subnormal_addend"]
    features += [str(Name("subnormal_results", role)) for role in draft.roles()]
    options = combinations_of(dict.fromkeys(features, get_args(Subnormals)))
    note = "no such subnormal can be made, or a lost input and a lost result look the same"
    draft, findings = choose(bench, draft, options, _subnormals(bench), note)
    kept = [findings[name].value == "kept" and findings[name].bound == "exact" for name in features[:2]]
    reach = Reach(*kept)
    return replace(draft, reach=replace(reach, smallest_result=_smallest_result(bench.within(reach)))), findings


def _subnormals(bench: Workbench) -> Request:
    """Return rows with single subnormals of A, of B and of C; and normal terms with a subnormal sum."""
    inst, d = bench.inst, bench.inst.d
    below = two_to(d.min_exponent - 1)
    normal: list[LeafValues] = [{0: below}, {0: two_to(d.min_exponent), bench.addend: Dyadic(-3, d.min_exponent - 1)}]
    lowest = max(bench.product_exponents()[0], d.min_exponent)
    for e, sign in product(range(lowest, lowest + inst.a.mantissa_bits + inst.b.mantissa_bits), (1, -1)):
        remains = Dyadic(sign * ((1 << (e - d.min_exponent + 1)) + 1), d.min_exponent - 1)
        normal += [{0: remains, leaf: Dyadic(-sign, e)} for leaf in (1, inst.k - 1, bench.addend) if leaf]
    operands = bench.request([{}] * 3 + [row for row in normal if bench.fits(row)])
    operands.a[0, 0], operands.b[0, 0] = _largest_subnormal(inst.a), _large(inst.b, d)
    operands.a[1, 0], operands.b[1, 0] = _large(inst.a, d), _largest_subnormal(inst.b)
    operands.c[2] = _largest_subnormal(inst.c)
    return operands


def _largest_subnormal(fmt: Format) -> int:
    return pattern_of(fmt, two_to(fmt.min_exponent - 1)) or 0


def _large(fmt: Format, d: Format) -> int:
    return pattern_of(fmt, two_to(min(fmt.max_exponent, d.max_exponent))) or 0


def _smallest_result(bench: Workbench) -> int:
    """Return the exponent of the smallest power of two that comes back exactly, as C and as a product.

    If one of them is lost earlier, in a sum that the other does not pass through, that one counts.
    """
    d = bench.inst.d
    exponents = range(d.min_exponent, d.min_exponent - d.mantissa_bits - 1, -1)
    reached: list[int] = [d.min_exponent]
    lost: list[int] = []
    for leaf in (bench.addend, 0):
        rows = [(e, {leaf: two_to(e)}) for e in exponents if bench.fits({leaf: two_to(e)})]
        results = bench.query(bench.request([row for _, row in rows]))
        unchanged = list(
            takewhile(lambda pair: int(pair[1]) == bench.result_pattern(two_to(pair[0][0])), zip(rows, results, strict=True))
        )
        smallest = min((e for (e, _), _ in unchanged), default=d.min_exponent)
        (lost if len(unchanged) < len(rows) else reached).append(smallest)
    return max(lost) if lost else min(reached)


def zero_signs(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find the sign of a zero sum and of one that rounds to zero, in both roles at once: one shows through the other.

    If it is not known yet whether subnormals of C are read, that too: the sign of the zero that C becomes may show it.
    """
    known = bench.reach.subnormal_addend
    options: dict[str, tuple[str, ...]] = {} if known else {"subnormal_addend": get_args(Subnormals)}
    for role in draft.roles():
        options[str(Name("zero_sign", role))] = get_args(ZeroSign)
        options[str(Name("underflow_sign", role))] = get_args(UnderflowSign)
    operands = joined([_zeros(bench), _underflowing(bench, draft), _subnormal_addends(bench)])
    note = "no sum of these operands shows it: none is too small for the result, or the next sum hides a zero's sign"
    return choose(bench, draft, combinations_of(options), operands, note)


def _zeros(bench: Workbench) -> Request:
    """Return rows with zeros of both signs on every leaf, and terms that cancel."""
    inst = bench.inst
    one = pattern_of(inst.b, two_to(0)) or 0
    operands = bench.request([{}] * 8 + [{0: two_to(0), inst.k - 1: -two_to(0)} if inst.k > 1 else {}] * 2)
    for i in range(8):
        operands.a[i] = inst.a.sign_bit if i & 1 else 0
        operands.b[i] = one if i & 4 else 0
        operands.c[i] = inst.c.sign_bit if i & 2 else 0
    operands.c[9] = inst.c.sign_bit
    return operands


def _underflowing(bench: Workbench, draft: Draft) -> Request:
    """Return rows with products and C of both signs around the smallest result and below, single and all at once, beside zeros
    of both signs.
    """
    lowest = bench.result_exponents()[0]
    last = next(leaf for node in draft.nodes() for leaf in node.products)
    rows: list[LeafValues] = []
    for leaf, exponents in ((last, bench.product_exponents()), (bench.addend, bench.addend_exponents())):
        for e in range(max(exponents[0], lowest - 40), min(exponents[-1], lowest) + 1):
            rows += [{leaf: Dyadic(sign * t, e)} for sign in (1, -1) for t in (1, 3)]
    for e in range(max(bench.product_exponents()[0], lowest - 40), lowest):
        rows.append({leaf: Dyadic(-1, e) for leaf in range(bench.inst.k)})
    operands = bench.fitting(rows)
    c = np.where(operands.c == 0, bench.inst.c.sign_bit, operands.c).astype(bench.inst.c.dtype)
    return joined([operands, replace(operands, c=c)])


def _subnormal_addends(bench: Workbench) -> Request:
    """Return rows with the smallest and the largest subnormal C, of both signs, beside products that are all zeros of one
    sign.
    """
    fmt = bench.inst.c
    operands = bench.request([{}] * 8)
    operands.a[4:] = bench.inst.a.sign_bit
    largest = pattern_of(fmt, Dyadic((1 << fmt.mantissa_bits) - 1, fmt.min_exponent - fmt.mantissa_bits)) or 0
    smallest = pattern_of(fmt, two_to(fmt.min_exponent - fmt.mantissa_bits)) or 0
    operands.c[:] = (smallest, largest, smallest | fmt.sign_bit, largest | fmt.sign_bit) * 2
    return operands

"""Behaviour that no chip is known to have: rows that would show it. Nothing is reported if all results are the usual ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.alternatives import nonstandard as variants
from accprobe.infer.alternatives.nonstandard import Variants, named
from accprobe.infer.draft import Draft, DraftNode
from accprobe.infer.experiments.series import span
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import EVIDENCE, Dyadic, Row, Workbench, encode, two_to
from accprobe.isa.formats import Format
from accprobe.model.tree import Role
from accprobe.operands.kinds import floats
from accprobe.operands.request import Request, joined

SEED = 20_25
# Numbers of any significand.
ANY = 96

# Sums of a role that are probed, each with other kinds of terms than the ones before.
SUMS = 3


def room(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find how many terms of one sign the longest sum has room for: powers of two, so that no rounding matters.

    The rows of other experiments stay within it.
    """
    node = max(draft.nodes(), key=lambda node: len(node.slots))
    leaves = [slot.leaf for slot in node.slots if slot.kind != "sum"]
    cases = list(product(_halvings(len(leaves)), (1, -1)))
    rows: list[Row] = [dict.fromkeys(leaves[:n], Dyadic(sign, 0)) for n, sign in cases]
    d = bench.query(bench.request(rows)).tolist()
    wrong = [n for (n, sign), seen in zip(cases, d, strict=True) if seen != bench.result_pattern(Dyadic(sign * n, 0))]
    reach = replace(draft.reach, max_same_sign=max(1, min(wrong) // 2)) if wrong else draft.reach
    return replace(draft, reach=reach), {}


def nonstandard(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find nonstandard handling of the terms and results of the sums of each role."""
    return _every(bench, draft, OF_TERMS)


def detection(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find whether overflow and underflow are detected before sums are rounded."""
    return _every(bench, draft, OF_ENDS)


Experiments = tuple[tuple[Variants, Callable[[Workbench, Draft, Role], Request]], ...]


def _every(bench: Workbench, draft: Draft, experiments: Experiments) -> tuple[Draft, Findings]:
    findings: Findings = {}
    for role, (fields_of, operands) in product(draft.roles(), experiments):
        draft, found = _found(bench, draft, role, fields_of, operands(bench, draft, role))
        findings |= found
    return draft, findings


def _found(bench: Workbench, draft: Draft, role: Role, variants: Variants, operands: Request) -> tuple[Draft, Findings]:
    """Take a variant if it explains the results and the usual behaviour does not."""
    model = draft.model()
    d = bench.query(operands, model)
    wrong = np.flatnonzero(evaluate(model, bench.inst, operands) != d)
    if not len(wrong):
        return draft, {}
    every = (named(fields, role) for fields in variants(bench.inst, model, draft.arithmetic(role), False))
    explaining = [
        features
        for features in every
        if np.array_equal(evaluate(draft.with_features(features).model(), bench.inst, operands), d)
    ]
    if not explaining:
        return draft, {}
    evidence = bench.exchanges(operands, d, wrong[:EVIDENCE])
    found = {name: Finding.among((features[name] for features in explaining), evidence) for name in explaining[0]}
    return draft.with_features(explaining[0]), found


def _dense(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Many terms of the largest significands, of one sign and exponent; also beside C and the results of inner sums."""
    of_kinds = {tuple(slot.kind for slot in node.slots): node for node in reversed(draft.nodes()) if node.role == role}
    return joined([_dense_rows(bench, node) for node in list(of_kinds.values())[:SUMS]])


def _dense_rows(bench: Workbench, node: DraftNode) -> Request:
    inst = bench.inst
    a, half_a, b, c = _full(inst.a, 1), _full(inst.a, 0), _full(inst.b, 0), _full(inst.c, 1)
    products = [slot.leaf for slot in node.slots if slot.kind == "product"]
    others = [slot.leaf for slot in node.slots if slot.kind != "product"]
    cases = list(product(_halvings(len(products)) or [0], (False, True), (0, 1)))
    operands = Request.zeros(inst, len(cases))
    for row, (n, beside, negative) in enumerate(cases):
        inner = [leaf for leaf in others if leaf != bench.addend] if beside else []
        operands.a[row, products[:n]] = a | negative * inst.a.sign_bit
        operands.a[row, inner] = half_a | negative * inst.a.sign_bit
        operands.b[row, products[:n] + inner] = b
        if beside and bench.addend in others:
            operands.c[row] = c | negative * inst.c.sign_bit
    return operands


def _full(fmt: Format, exponent: int) -> int:
    """Return the number of that exponent with the largest significand."""
    return encode(fmt, Dyadic((2 << fmt.mantissa_bits) - 1, exponent - fmt.mantissa_bits)) or 0


def _halvings(n: int) -> list[int]:
    return [n >> i for i in range(n.bit_length())]


def _wide_products(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Products of any significands, alone and beside a power of two that cancels their leading bit."""
    inst, rng = bench.inst, np.random.default_rng(SEED)
    node = next(node for node in draft.nodes() if node.role == role)
    leaves = [slot.leaf for slot in node.slots if slot.kind == "product"]
    if not leaves:
        return Request.zeros(inst, 0)
    against = next((slot.leaf for slot in node.slots if slot.leaf != leaves[0]), bench.addend)
    heads = [bench.request([{against: -two_to(e)} if e is not None else {}]) for e in (None, 0, 1)]
    operands = joined([heads[i % len(heads)] for i in range(ANY)])
    operands.a[:, leaves[0]] = floats(inst.a, rng, np.zeros(ANY, np.int64))
    operands.b[:, leaves[0]] = floats(inst.b, rng, np.zeros(ANY, np.int64))
    return operands


def _wide_addends(bench: Workbench, draft: Draft, role: Role) -> Request:
    """C of any significand, alone and beside a product that cancels its leading bit."""
    inst, rng = bench.inst, np.random.default_rng(SEED)
    node = next(node for node in draft.nodes() if any(slot.leaf == bench.addend for slot in node.slots))
    leaf = next((slot.leaf for slot in node.slots if slot.leaf != bench.addend), 0)
    heads = [bench.request([{leaf: Dyadic(sign, 0)} if sign else {}]) for sign in (0, 1, -1)]
    operands = joined([heads[i % len(heads)] for i in range(ANY)])
    operands.c[:] = floats(inst.c, rng, np.zeros(ANY, np.int64))
    return operands


def _beside_ties(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Sums, ties and not, that a bit far below the result's last one decides."""
    arithmetic = draft.arithmetic(role)
    kept, bits = arithmetic.result_bits, arithmetic.alignment_bits
    node = max((node for node in draft.nodes() if node.role == role), key=lambda node: len(node.slots))
    rows: list[Row] = []
    for tail in node.slots[-1:] if len(node.slots) > 2 else node.slots:
        heads = [slot for slot in node.slots if slot != tail]
        most = min(len(heads) - 1, bench.reach.max_same_sign)
        for g in dict.fromkeys((0, max(most.bit_length() - 1, 0))):
            used, half = heads[: 1 << g], heads[-1] if len(heads) > 1 else None
            big = min(*(span(bench, slot)[-1] for slot in (tail, *heads)), bench.inst.d.max_exponent - g - 2)
            below = range(kept + 2, (kept + variants.EXACT if bits is None else bits + g) + 1)
            for j, t, last, sign in product(below, (0, 1, 3), (1, -1), (1, -1)):
                row = {slot.leaf: Dyadic(sign, big) for slot in used}
                if half is None:
                    row[tail.leaf] = Dyadic(sign * (t << (j - kept - 1)) + last, big + g - j)
                else:
                    row |= {half.leaf: Dyadic(sign * t, big + g - kept - 1)} if t else {}
                    row[tail.leaf] = Dyadic(last, big + g - j)
                rows.append(row)
    return bench.fitting(rows)


def _about_largest(bench: Workbench, draft: Draft, role: Role) -> Request:
    """The largest result, as C or as a product, beside quarters of its last place."""
    bits = draft.arithmetic(role).result_bits
    leaves = [slot.leaf for node in draft.nodes() for slot in node.slots if slot.kind == "product"]
    last = bench.inst.d.max_exponent - bits
    rows: list[Row] = [
        {head: Dyadic(sign * ((2 << bits) - 1), last), leaves[0]: Dyadic(sign * t, last - 2)}
        for head, t, sign in product((bench.addend, leaves[-1]), (-1, 1, 2, 3, 4), (1, -1))
    ]
    return bench.fitting(row for row in rows if len(row) > 1)


def _about_smallest(bench: Workbench, draft: Draft, role: Role) -> Request:
    """The smallest normal number minus quarters of its last place, and C that is that far below it."""
    fmt, bits = bench.inst.c, draft.arithmetic(role).result_bits
    leaf = next((slot.leaf for node in draft.nodes() for slot in node.slots if slot.kind == "product"), 0)
    smallest, last = fmt.min_exponent, fmt.min_exponent - bits
    rows: list[Row] = []
    for t, sign in product((-1, 1, 2, 3, 4, 6), (1, -1)):
        rows.append({bench.addend: Dyadic(sign, smallest), leaf: Dyadic(-sign * t, last - 2)})
        rows.append({bench.addend: Dyadic(sign * ((4 << bits) - t), last - 2)})
    return bench.fitting(rows)


OF_TERMS: Experiments = (
    (variants.products, _wide_products),
    (variants.addends, _wide_addends),
    (variants.accumulators, _dense),
    (variants.first_roundings, _beside_ties),
)
OF_ENDS: Experiments = ((variants.overflows, _about_largest), (variants.underflows, _about_smallest))

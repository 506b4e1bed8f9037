"""What no chip is known to do: the rows on which it would show, of which nothing is told where all are as usual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.alternatives import nonstandard as variants
from accprobe.infer.alternatives.nonstandard import Together, Ways
from accprobe.infer.draft import Draft, DraftNode, roles
from accprobe.infer.experiments.series import span
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import EVIDENCE, Dyadic, Row, Workbench, encode, fitting, two_to
from accprobe.isa.formats import Format
from accprobe.model.features import Name
from accprobe.model.fields import fields_of, with_values
from accprobe.model.record import Value
from accprobe.model.tree import DotModel, Role
from accprobe.operands.exchange import Exchange
from accprobe.operands.kinds import floats
from accprobe.operands.request import Request, joined

SEED = 20_25
# Numbers of any significand that are asked.
ANY = 96

# Sums of a role that are asked, each with other kinds of terms than the ones before.
SUMS = 3


def room(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """How many terms of one sign the sum of most terms has room for: powers of two, so that no rounding matters.

    The rows of other experiments keep to it.
    """
    node = max(draft.nodes(), key=lambda node: len(node.slots))
    leaves = [slot.leaf for slot in node.slots if slot.kind != "sum"]
    cases = list(product(_halvings(len(leaves)), (1, -1)))
    rows: list[Row] = [dict.fromkeys(leaves[:n], Dyadic(sign, 0)) for n, sign in cases]
    d = bench.query(bench.rows(rows)).tolist()
    wrong = [n for (n, sign), answer in zip(cases, d, strict=True) if answer != bench.result(Dyadic(sign * n, 0))]
    reach = replace(draft.reach, max_same_sign=max(1, min(wrong) // 2)) if wrong else draft.reach
    return replace(draft, reach=reach), {}


def nonstandard(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Of the sums of each role, what their terms and their results show."""
    return _every(bench, draft, OF_TERMS)


def detection(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Of the sums of each role, whether what is too large or too small is detected before they are rounded."""
    return _every(bench, draft, OF_ENDS)


Experiments = tuple[tuple[Ways, Callable[[Workbench, Draft, Role], Request]], ...]


def _every(bench: Workbench, draft: Draft, experiments: Experiments) -> tuple[Draft, Findings]:
    findings: Findings = {}
    for role, (ways, operands) in product(roles(draft), experiments):
        draft, found = _found(bench, draft, role, ways, operands(bench, draft, role))
        names = {field: field if field in fields_of(DotModel) else str(Name(field, role)) for field in found}
        findings |= {names[field]: finding for field, finding in found.items()}
    return draft, findings


def _found(bench: Workbench, draft: Draft, role: Role, ways: Ways, operands: Request) -> tuple[Draft, Findings]:
    """One of the ways, where the usual one does not explain the answers and it does."""
    model = draft.model()
    d = bench.query(operands, model)
    wrong = np.flatnonzero(evaluate(model, bench.inst, operands) != d)
    if not len(wrong):
        return draft, {}
    explaining = [
        (fields, changed)
        for fields in ways(bench.inst, model, draft.arithmetic(role), False)
        if np.array_equal(evaluate((changed := _with(draft, role, fields)).model(), bench.inst, operands), d)
    ]
    if not explaining:
        return draft, {}
    evidence = bench.exchanges(operands, d, wrong[:EVIDENCE])
    return explaining[0][1], {
        field: _finding([fields[field] for fields, _ in explaining], evidence) for field in explaining[0][0]
    }


def _with(draft: Draft, role: Role, fields: Together) -> Draft:
    of_model = fields.keys() <= fields_of(DotModel).keys()
    return with_values(draft, fields) if of_model else draft.change(role, **fields)


def _finding(left: list[Value], evidence: tuple[Exchange, ...]) -> Finding:
    first, *others = dict.fromkeys(left)
    if not others:
        return Finding(first, evidence=evidence)
    return Finding(first, "undetermined", (first, *others), "these give the same bits on every operand tried", evidence)


def _dense(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Many terms of the largest significands and of one sign and exponent, alone and beside C and the results of inner sums."""
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
    """The largest significand."""
    return encode(fmt, Dyadic((2 << fmt.mantissa_bits) - 1, exponent - fmt.mantissa_bits)) or 0


def _halvings(n: int) -> list[int]:
    """n, and what is left of it when it is halved again and again."""
    return [n >> i for i in range(n.bit_length())]


def _wide_products(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Products of any significands, alone and beside a power of two that takes their leading bit away."""
    inst, rng = bench.inst, np.random.default_rng(SEED)
    node = next(node for node in draft.nodes() if node.role == role)
    leaves = [slot.leaf for slot in node.slots if slot.kind == "product"]
    if not leaves:
        return Request.zeros(inst, 0)
    against = next((slot.leaf for slot in node.slots if slot.leaf != leaves[0]), bench.addend)
    heads = [bench.rows([{against: -two_to(e)} if e is not None else {}]) for e in (None, 0, 1)]
    operands = joined([heads[i % len(heads)] for i in range(ANY)])
    operands.a[:, leaves[0]] = floats(inst.a, rng, np.zeros(ANY, np.int64))
    operands.b[:, leaves[0]] = floats(inst.b, rng, np.zeros(ANY, np.int64))
    return operands


def _wide_addends(bench: Workbench, draft: Draft, role: Role) -> Request:
    """C of any significand, alone and beside a product that takes its leading bit away."""
    inst, rng = bench.inst, np.random.default_rng(SEED)
    node = next(node for node in draft.nodes() if any(slot.leaf == bench.addend for slot in node.slots))
    leaf = next((slot.leaf for slot in node.slots if slot.leaf != bench.addend), 0)
    heads = [bench.rows([{leaf: Dyadic(sign, 0)} if sign else {}]) for sign in (0, 1, -1)]
    operands = joined([heads[i % len(heads)] for i in range(ANY)])
    operands.c[:] = floats(inst.c, rng, np.zeros(ANY, np.int64))
    return operands


def _beside_ties(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Sums, ties and not, that a bit far below the result's last one decides."""
    arithmetic = draft.arithmetic(role)
    kept, cut = arithmetic.result_bits, arithmetic.alignment_bits
    node = max((node for node in draft.nodes() if node.role == role), key=lambda node: len(node.slots))
    rows: list[Row] = []
    for tail in node.slots[-1:] if len(node.slots) > 2 else node.slots:
        heads = [slot for slot in node.slots if slot != tail]
        most = min(len(heads) - 1, bench.reach.max_same_sign)
        for g in dict.fromkeys((0, max(most.bit_length() - 1, 0))):
            used, half = heads[: 1 << g], heads[-1] if len(heads) > 1 else None
            big = min(*(span(bench, slot)[-1] for slot in (tail, *heads)), bench.inst.d.max_exponent - g - 2)
            below = range(kept + 2, (kept + variants.EXACT if cut is None else cut + g) + 1)
            for j, t, last, sign in product(below, (0, 1, 3), (1, -1), (1, -1)):
                row = {slot.leaf: Dyadic(sign, big) for slot in used}
                if half is None:
                    row[tail.leaf] = Dyadic(sign * (t << (j - kept - 1)) + last, big + g - j)
                else:
                    row |= {half.leaf: Dyadic(sign * t, big + g - kept - 1)} if t else {}
                    row[tail.leaf] = Dyadic(last, big + g - j)
                rows.append(row)
    return fitting(bench, rows)


def _about_largest(bench: Workbench, draft: Draft, role: Role) -> Request:
    """The largest result, as C or as a product, and quarters of its last place beside it."""
    bits = draft.arithmetic(role).result_bits
    leaves = [slot.leaf for node in draft.nodes() for slot in node.slots if slot.kind == "product"]
    last = bench.inst.d.max_exponent - bits
    rows: list[Row] = [
        {head: Dyadic(sign * ((2 << bits) - 1), last), leaves[0]: Dyadic(sign * t, last - 2)}
        for head, t, sign in product((bench.addend, leaves[-1]), (-1, 1, 2, 3, 4), (1, -1))
    ]
    return fitting(bench, [row for row in rows if len(row) > 1])


def _about_smallest(bench: Workbench, draft: Draft, role: Role) -> Request:
    """The smallest normal number without quarters of its last place, and C that lies so far below it."""
    fmt, bits = bench.inst.c, draft.arithmetic(role).result_bits
    leaf = next((slot.leaf for node in draft.nodes() for slot in node.slots if slot.kind == "product"), 0)
    smallest, last = fmt.min_exponent, fmt.min_exponent - bits
    rows: list[Row] = []
    for t, sign in product((-1, 1, 2, 3, 4, 6), (1, -1)):
        rows.append({bench.addend: Dyadic(sign, smallest), leaf: Dyadic(-sign * t, last - 2)})
        rows.append({bench.addend: Dyadic(sign * ((4 << bits) - t), last - 2)})
    return fitting(bench, rows)


OF_TERMS: Experiments = (
    (variants.products, _wide_products),
    (variants.addends, _wide_addends),
    (variants.accumulators, _dense),
    (variants.first_roundings, _beside_ties),
)
OF_ENDS: Experiments = ((variants.overflows, _about_largest), (variants.underflows, _about_smallest))

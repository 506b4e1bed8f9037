"""Behaviour that no chip is known to have, in fields that models and reports omit at their usual value.

Its models: alternatives are only those that differ least from the model, so that few queries are needed; the search steps to
all that may show. Its rows are operands on which such behaviour would show. Nothing is reported if all results are the usual
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from math import ceil, floor
from typing import get_args

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.alternative import Alternative, FieldValues, alternatives_with, float_arithmetics, named
from accprobe.infer.draft import Draft, DraftNode, span
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import EVIDENCE, Dyadic, LeafValues, Workbench, pattern_of, two_to
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import (
    Addend,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    IntegerOverflow,
    Product,
    Role,
    Rounding,
    Tininess,
    fits,
)
from accprobe.operands.kinds import floats
from accprobe.operands.request import Request, joined

# Values of such fields, those that show least first; only of the models that differ least if the flag is set.
Variants = Callable[[Instruction, DotModel, FloatArithmetic, bool], Iterable[FieldValues]]


TOO_NARROW = 10  # Integer accumulators are wider.
BLOCKS = (32, 16, 8, 4, 2)  # Products that may be scaled at once: a block of scales has 32 or 16.
ALIGNMENTS = range(40, 12, -1)  # Alignment bits of sums of such products.
EXACT = 20  # Bits beyond those of the result to which an exact sum may be rounded first.

SEED = 20_25
ANY = 96  # Numbers of any significand.
SUMS = 3  # Sums of a role that are probed, each with other kinds of terms than the ones before.


def nonstandard_alternatives(inst: Instruction, model: DotModel) -> Iterator[Alternative]:
    """Yield the alternatives that differ least from the model."""
    if inst.is_integer and not model.root.children:
        for changed in islice(narrow_groups(inst, model, (4,)), 2):
            yield Alternative(changed, (("accumulator_bits", changed.arithmetics[0].accumulator_bits),))
    yield from (alternative for alternative in _nonstandard(inst, model, nearest=True) if alternative.model != model)


def nonstandard_variants(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield every model that may show."""
    return (alternative.model for alternative in _nonstandard(inst, model, nearest=False))


def _nonstandard(inst: Instruction, model: DotModel, nearest: bool) -> Iterator[Alternative]:
    for arithmetic, _ in float_arithmetics(model):
        ways = (fields for variants in EVERY for fields in variants(inst, model, arithmetic, nearest))
        yield from alternatives_with(model, arithmetic, ways)


def narrow_groups(inst: Instruction, model: DotModel, sizes: Sequence[int]) -> Iterator[DotModel]:
    """Yield integer models that add groups of products in too few bits, then the groups and C; the widest first.

    Groups that wrap to at least as many bits as the result has, which wraps too, are omitted: they are the same function.
    """
    outer = model.root.arithmetic
    assert isinstance(outer, IntegerArithmetic)
    largest = max(inst.a.largest, inst.a.largest + 1 if inst.a.signed else 0) * (inst.b.largest + inst.b.signed)
    for size in (min(size, inst.k) for size in sizes):
        needed, parts = (size * largest).bit_length() + 1, -(-inst.k // size)
        in_turn = [range(i, min(i + size, inst.k)) for i in range(0, inst.k, size)]
        for bits, groups in product(
            range(needed - 1, TOO_NARROW, -1), (in_turn, [range(i, inst.k, parts) for i in range(parts)])
        ):
            for word in reversed(get_args(IntegerOverflow)):
                if word == outer.overflow == "wrap" and bits >= outer.result.bits:
                    continue
                inner = replace(outer, overflow=word, accumulator_bits=bits)
                sums = (FusedSum(tuple(map(Product, group)), inner) for group in groups)
                yield replace(model, root=FusedSum((*sums, Addend()), outer))


def addends(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, nearest: bool) -> Iterator[FieldValues]:
    """Yield models in which C is read with fewer bits than the sum that it joins can show."""
    if not _adds_c(model, arithmetic):
        return
    bits = inst.c.mantissa_bits if arithmetic.alignment_bits is None else min(inst.c.mantissa_bits, arithmetic.alignment_bits)
    for some in _downwards(bits, model.addend_bits, nearest):
        yield {"addend_bits": some}


def products(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, nearest: bool) -> Iterator[FieldValues]:
    """Yield models in which products are rounded to fewer bits than the alignment keeps of the largest."""
    if arithmetic.alignment_bits is None or not any(n.products for n in model.root.nodes() if n.arithmetic == arithmetic):
        return
    bits = min(inst.a.mantissa_bits + inst.b.mantissa_bits + 1, arithmetic.alignment_bits + 1)
    words = ("RZ", "RNE") if nearest else get_args(Rounding)
    for some, word in product(_downwards(bits, arithmetic.product_bits, nearest), words):
        yield {"product_bits": some, "product_rounding": word}


def scaled_at_once(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, nearest: bool) -> Iterator[FieldValues]:
    """Yield models in which products of e2m1 are added before their block scales are applied, with all alignment bits of their
    sums.
    """
    if inst.scale_block is None or {inst.a.name, inst.b.name} != {"e2m1"} or arithmetic.alignment_bits is None:
        return
    sums = [node for node in model.root.nodes() if node.arithmetic == arithmetic and node.products]
    if not sums:
        return
    sizes = [None, *(some for some in BLOCKS if inst.scale_block % some == 0)]
    alignments = (arithmetic.alignment_bits,) if nearest else ALIGNMENTS
    for some, bits in product(sizes, alignments):
        fields: FieldValues = {"scaled_products": some} | ({} if nearest else {"alignment_bits": bits})
        changed = replace(arithmetic, scaled_products=some, alignment_bits=bits)
        if changed != arithmetic and all(fits(changed, len(node.terms)) for node in sums):
            yield fields


def first_roundings(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, nearest: bool) -> Iterator[FieldValues]:
    """Yield models in which sums are first rounded to more bits than the result keeps, and fewer than sums have."""
    kept, aligned = arithmetic.result_bits, arithmetic.alignment_bits
    most = max(len(node.terms) for node in model.root.nodes() if node.arithmetic == arithmetic)
    bits = kept + EXACT if aligned is None else aligned + most.bit_length() - 1
    if nearest and (arithmetic.first_bits is not None or bits < kept + 2):
        return
    for some, word in product(
        [kept + 1] if nearest else range(kept + 1, bits), ("RZ", "RNE") if nearest else get_args(Rounding)
    ):
        if not (word == "RZ" and arithmetic.result_rounding in ("RZ", "RNA") and nearest):
            yield {"first_bits": some, "first_rounding": word}


def overflows(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, nearest: bool) -> Iterator[FieldValues]:
    """Yield models in which overflow is detected before rounding, if sums with C can lie between the largest result and the
    next number.
    """
    result, bits = arithmetic.result, arithmetic.alignment_bits
    reach = inst.a.max_exponent + inst.b.max_exponent
    finer = bits is None or bits > arithmetic.result_bits + 1
    may = inst.c == result and arithmetic.overflow == "infinity" and reach >= result.max_exponent - arithmetic.result_bits
    if _adds_c(model, arithmetic) and finer and may:
        yield {"overflow_detected": "before rounding"}


def underflows(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, nearest: bool) -> Iterator[FieldValues]:
    """Yield models in which tininess is not detected after rounding, if tiny results are zero and sums with C have more
    bits.
    """
    bits = arithmetic.alignment_bits
    finer = bits is None or bits > arithmetic.result_bits
    if _adds_c(model, arithmetic) and inst.c == arithmetic.result and finer and arithmetic.subnormal_results == "flushed":
        yield from ({"tininess_detected": word} for word in get_args(Tininess)[1:])


def _adds_c(model: DotModel, arithmetic: FloatArithmetic) -> bool:
    return any(node.has_addend for node in model.root.nodes() if node.arithmetic == arithmetic)


def _downwards(bits: int, own: int | None, nearest: bool) -> Iterable[int]:
    """Return smaller numbers of bits; as alternatives only of a model that has all: `single` makes the others."""
    if nearest:
        return [bits - 1] if own is None and bits > 0 else []
    return range(bits - 1, -1, -1)


def accumulators(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic, nearest: bool) -> Iterator[FieldValues]:
    """Yield models in which accumulators are too narrow for the largest sum."""
    bits = _needed_bits(inst, model, arithmetic)
    for some, overflow in product(_downwards(bits, arithmetic.accumulator_bits, nearest), get_args(IntegerOverflow)):
        if some:
            yield {"accumulator_bits": some, "accumulator_overflow": overflow}


def _needed_bits(inst: Instruction, model: DotModel, arithmetic: FloatArithmetic) -> int:
    """Return the fewest `accumulator_bits` that are enough for every sum with that arithmetic; 0 if sums are not aligned."""
    if arithmetic.alignment_bits is None:
        return 0
    sums = [node for node in model.root.nodes() if node.arithmetic == arithmetic]
    most = max(sum(_largest(inst, arithmetic, term) for term in node.terms) for node in sums)
    return max(most.bit_length() + 1 - arithmetic.alignment_bits, 1)


def _largest(inst: Instruction, arithmetic: FloatArithmetic, term: FusedSum | Product | Addend) -> int:
    """Return the most that a term with the largest exponent can be, in units of the last bit kept."""
    match term:
        case Product():
            a, b = (2 - 2.0**-fmt.mantissa_bits for fmt in (inst.a, inst.b))
            significand = min(a * b, 2 - 2.0**-52) if arithmetic.product_exponent == "normalised product" else a * b
        case Addend():
            significand = 2 - 2.0**-inst.c.mantissa_bits
        case FusedSum():
            significand = 2 - 2.0 ** -getattr(term.arithmetic, "result_bits", 0)
    rounded = floor if arithmetic.alignment_rounding in ("truncate", "floor", "sticky") else ceil
    return rounded(significand * 2.0 ** (arithmetic.alignment_bits or 0))


EVERY: tuple[Variants, ...] = (scaled_at_once, accumulators, addends, products, first_roundings, overflows, underflows)


def room(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find how many terms of one sign the longest sum has room for: powers of two, so that no rounding matters.

    The rows of other experiments stay within it.
    """
    node = max(draft.nodes(), key=lambda node: len(node.slots))
    leaves = [slot.leaf for slot in node.slots if slot.kind != "sum"]
    cases = list(product(_halvings(len(leaves)), (1, -1)))
    rows: list[LeafValues] = [dict.fromkeys(leaves[:n], Dyadic(sign, 0)) for n, sign in cases]
    d = bench.query(bench.request(rows)).tolist()
    wrong = [n for (n, sign), seen in zip(cases, d, strict=True) if seen != bench.result_pattern(Dyadic(sign * n, 0))]
    reach = replace(draft.reach, max_same_sign=max(1, min(wrong) // 2)) if wrong else draft.reach
    return replace(draft, reach=reach), {}


def nonstandard(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find nonstandard handling of the terms and results of the sums of each role."""
    return _each_role(bench, draft, OF_TERMS)


def detection(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find whether overflow and underflow are detected before sums are rounded."""
    return _each_role(bench, draft, OF_ENDS)


Experiments = tuple[tuple[Variants, Callable[[Workbench, Draft, Role], Request]], ...]


def _each_role(bench: Workbench, draft: Draft, experiments: Experiments) -> tuple[Draft, Findings]:
    """Take a variant of each experiment if it explains the results and the usual behaviour does not."""
    findings: Findings = {}
    for role, (variants, operands_of) in product(draft.roles(), experiments):
        operands, model = operands_of(bench, draft, role), draft.model()
        d, wrong = bench.mismatches(operands, model)
        ways = variants(bench.inst, model, draft.arithmetic(role), False) if len(wrong) else ()
        tried = [(features, draft.with_features(features).model()) for features in (named(fields, role) for fields in ways)]
        explaining = [features for features, other in tried if np.array_equal(evaluate(other, bench.inst, operands), d)]
        if explaining:
            evidence = bench.exchanges(operands, d, wrong[:EVIDENCE])
            findings |= {name: Finding.among((features[name] for features in explaining), evidence) for name in explaining[0]}
            draft = draft.with_features(explaining[0])
    return draft, findings


def _dense(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Return rows with many terms of the largest significands, of one sign and exponent; also beside C and the results of inner
    sums.
    """
    of_kinds = {tuple(slot.kind for slot in node.slots): node for node in reversed(draft.nodes()) if node.role == role}
    return joined([_dense_rows(bench, node) for node in list(of_kinds.values())[:SUMS]])


def _dense_rows(bench: Workbench, node: DraftNode) -> Request:
    inst = bench.inst
    a, half_a, b, c = _full(inst.a, 1), _full(inst.a, 0), _full(inst.b, 0), _full(inst.c, 1)
    products, others = node.products, [slot.leaf for slot in node.slots if slot.kind != "product"]
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
    return pattern_of(fmt, Dyadic((2 << fmt.mantissa_bits) - 1, exponent - fmt.mantissa_bits)) or 0


def _halvings(n: int) -> list[int]:
    return [n >> i for i in range(n.bit_length())]


def _wide_products(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Return rows with products of any significands, alone and beside a power of two that cancels their leading bit."""
    inst, rng = bench.inst, np.random.default_rng(SEED)
    node = next(node for node in draft.nodes() if node.role == role)
    if not node.products:
        return Request.zeros(inst, 0)
    leaf = node.products[0]
    against = next((slot.leaf for slot in node.slots if slot.leaf != leaf), bench.addend)
    heads = [bench.request([{against: -two_to(e)} if e is not None else {}]) for e in (None, 0, 1)]
    operands = joined([heads[i % len(heads)] for i in range(ANY)])
    operands.a[:, leaf] = floats(inst.a, rng, np.zeros(ANY, np.int64))
    operands.b[:, leaf] = floats(inst.b, rng, np.zeros(ANY, np.int64))
    return operands


def _wide_addends(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Return rows with C of any significand, alone and beside a product that cancels its leading bit."""
    inst, rng = bench.inst, np.random.default_rng(SEED)
    node = next(node for node in draft.nodes() if any(slot.leaf == bench.addend for slot in node.slots))
    leaf = next((slot.leaf for slot in node.slots if slot.leaf != bench.addend), 0)
    heads = [bench.request([{leaf: Dyadic(sign, 0)} if sign else {}]) for sign in (0, 1, -1)]
    operands = joined([heads[i % len(heads)] for i in range(ANY)])
    operands.c[:] = floats(inst.c, rng, np.zeros(ANY, np.int64))
    return operands


def _beside_ties(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Return rows with sums, ties and not, that a bit far below the result's last one decides."""
    arithmetic = draft.arithmetic(role)
    kept, bits = arithmetic.result_bits, arithmetic.alignment_bits
    node = max((node for node in draft.nodes() if node.role == role), key=lambda node: len(node.slots))
    rows: list[LeafValues] = []
    for tail in node.slots[-1:] if len(node.slots) > 2 else node.slots:
        heads = [slot for slot in node.slots if slot != tail]
        most = min(len(heads) - 1, bench.reach.max_same_sign)
        for g in dict.fromkeys((0, max(most.bit_length() - 1, 0))):
            used, half = heads[: 1 << g], heads[-1] if len(heads) > 1 else None
            big = min(*(span(bench, slot)[-1] for slot in (tail, *heads)), bench.inst.d.max_exponent - g - 2)
            below = range(kept + 2, (kept + EXACT if bits is None else bits + g) + 1)
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
    """Return rows with the largest result, as C or as a product, beside quarters of its last place."""
    bits = draft.arithmetic(role).result_bits
    leaves = [leaf for node in draft.nodes() for leaf in node.products]
    last = bench.inst.d.max_exponent - bits
    rows: list[LeafValues] = [
        {head: Dyadic(sign * ((2 << bits) - 1), last), leaves[0]: Dyadic(sign * t, last - 2)}
        for head, t, sign in product((bench.addend, leaves[-1]), (-1, 1, 2, 3, 4), (1, -1))
    ]
    return bench.fitting(row for row in rows if len(row) > 1)


def _about_smallest(bench: Workbench, draft: Draft, role: Role) -> Request:
    """Return rows with the smallest normal number minus quarters of its last place, and C that is that far below it."""
    fmt, bits = bench.inst.c, draft.arithmetic(role).result_bits
    leaf = next(leaf for node in draft.nodes() for leaf in node.products)
    smallest, last = fmt.min_exponent, fmt.min_exponent - bits
    rows: list[LeafValues] = []
    for t, sign in product((-1, 1, 2, 3, 4, 6), (1, -1)):
        rows.append({bench.addend: Dyadic(sign, smallest), leaf: Dyadic(-sign * t, last - 2)})
        rows.append({bench.addend: Dyadic(sign * ((4 << bits) - t), last - 2)})
    return bench.fitting(rows)


OF_TERMS: Experiments = (
    (products, _wide_products),
    (addends, _wide_addends),
    (accumulators, _dense),
    (first_roundings, _beside_ties),
)
OF_ENDS: Experiments = ((overflows, _about_largest), (underflows, _about_smallest))

"""Coverage events of one dot product, counted with fractions: the slow second implementation of functional coverage."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from departures import USUAL
from outside import Chunk, Unit
from outside_numbers import ANY_SPECIAL, apart, cut, is_nan, log2_floor, packed

from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, Product, ProductExponent

SIGN = {False: "positive", True: "negative"}


class Term(NamedTuple):
    """A term of a sum, or one factor of it. kind: "nan", "inf" or "finite"; exponent: the one encoded, None of zeros."""

    kind: str
    negative: bool
    value: Fraction
    exponent: int | None


def _decoded(fmt: Format, pattern: int, flushed: bool = False) -> Term:
    patterns = np.array([pattern], fmt.dtype)
    significand, exponent, _ = (int(x[0]) for x in apart(fmt, patterns, flushed))
    negative = bool(pattern & fmt.sign_bit)
    if exponent > ANY_SPECIAL:
        return Term("nan" if is_nan(fmt, patterns)[0] else "inf", negative, Fraction(0), None)
    value = significand * Fraction(2) ** (exponent - fmt.mantissa_bits) if significand else Fraction(0)
    return Term("finite", negative, value, exponent if significand else None)


def _product(x: Term, y: Term, rule: ProductExponent) -> Term:
    negative, kinds = x.negative != y.negative, {x.kind, y.kind}
    if kinds == {"finite"}:
        value = x.value * y.value
        if not value:
            return Term("finite", negative, value, None)
        sums = {
            "unnormalised": (x.exponent or 0) + (y.exponent or 0),
            "normalised operands": log2_floor(x.value) + log2_floor(y.value),
            "normalised product": log2_floor(value),
        }
        return Term("finite", negative, value, sums[rule])
    invalid = "nan" in kinds or any(factor.kind == "finite" and not factor.value for factor in (x, y))
    return Term("nan" if invalid else "inf", negative, Fraction(0), None)


def _whole(value: Fraction, word: str) -> int:
    """Round a number whose denominator is a power of two."""
    shift = value.denominator.bit_length() - 1
    return int(cut(np.array([value.numerator], object), np.array([shift]), word)[0])


def _rounded_word(value: Fraction, x: FloatArithmetic) -> int:
    shift = value.denominator.bit_length() - 1
    return int(packed(np.array([value.numerator], object), np.array([-shift]), x, USUAL)[0])


def events(model: DotModel, inst: Instruction, a: list[int], b: list[int], c: int) -> set[str]:
    """Return the names of all events of sums of this dot product, without pairs of events and events of operands."""
    found: set[str] = set()
    leaves = {k: _is_zero(inst.a, a[k], inst.b, b[k]) for k in range(inst.k)}
    for label, node in _labelled(model.root):
        inside = {k for below in node.nodes() for k in below.products}
        has_c = any(below.has_addend for below in node.nodes())
        alone = all(zero for k, zero in leaves.items() if k not in inside)
        no_c = has_c or ((addend := _decoded(inst.c, c)).value == 0 and addend.kind == "finite")
        if node is model.root or (alone and no_c):
            found |= {f"{label}: {name}" for name in _of_sum(model, inst, node, a, b, c)}
    return found


def odd_products(model: DotModel, inst: Instruction, a: list[int], b: list[int]) -> set[str]:
    """Return how many products of each integer sum are odd, if all products outside of it are zero."""
    found: set[str] = set()
    for label, node in _labelled(model.root):
        inside = {k for below in node.nodes() for k in below.products}
        if node.products and not any(a[k] and b[k] for k in range(inst.k) if k not in inside):
            n = sum(a[k] % 2 and b[k] % 2 for k in node.products)
            found.add(f"{label}: {n} odd product" + "s" * (n != 1))
    return found


def _labelled(root: FusedSum) -> Iterator[tuple[str, FusedSum]]:
    for node in root.nodes():
        ks = sorted(node.products) or sorted(k for below in node.nodes() for k in below.products)
        runs: list[list[int]] = []
        for k in ks:
            if runs and runs[-1][-1] == k - 1:
                runs[-1].append(k)
            else:
                runs.append([k])
        text = " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
        yield ("sum " if node.products else "add ") + text + (" c" if node.has_addend and not node.products else ""), node


def _is_zero(fa: Format, x: int, fb: Format, y: int) -> bool:
    one, other = _decoded(fa, x), _decoded(fb, y)
    return one.kind == other.kind == "finite" and one.value * other.value == 0


def _of_sum(model: DotModel, inst: Instruction, node: FusedSum, a: list[int], b: list[int], c: int) -> Iterator[str]:
    x = node.arithmetic
    assert isinstance(x, FloatArithmetic)
    terms: list[tuple[str, Term]] = []
    for leaf in sorted(node.terms, key=lambda t: (not isinstance(t, Product), not isinstance(t, Addend))):
        if isinstance(leaf, Product):
            flushed = model.subnormal_operands == "flushed"
            factors = _decoded(inst.a, a[leaf.k], flushed), _decoded(inst.b, b[leaf.k], flushed)
            terms.append(("product", _product(*factors, x.product_exponent)))
        elif isinstance(leaf, Addend):
            terms.append(("C", _decoded(inst.c, c, model.subnormal_addend == "flushed")))
        else:
            patterns = (np.array([x], fmt.dtype).T for x, fmt in ((a, inst.a), (b, inst.b), (c, inst.c)))
            pattern = int(Chunk(Unit(inst, model), *patterns, []).of(leaf)[0])
            terms.append(("inner sum", _decoded(leaf.arithmetic.result, pattern)))
    kinds = {(term.kind, term.negative) for _, term in terms if term.kind != "finite"}
    if kinds:
        if any(kind == "nan" for kind, _ in kinds):
            yield "a NaN"
        elif len(kinds) == 2:
            yield "infinities of both signs"
        else:
            yield f"an infinity, {SIGN[kinds.pop()[1]]}"
        return
    if all(term.value == 0 for _, term in terms):
        signs = {term.negative for _, term in terms}
        yield "a sum of zero, zeros of " + ("both signs" if len(signs) == 2 else "-" if signs.pop() else "+")
        return
    yield from _of_finite(x, terms)


def _of_finite(x: FloatArithmetic, terms: list[tuple[str, Term]]) -> Iterator[str]:
    bits = x.alignment_bits
    exponents = [log2_floor(t.value) if bits is None and t.value else t.exponent for _, t in terms]
    own = [e if t.value else None for e, (_, t) in zip(exponents, terms, strict=True)]
    largest = max(e for e in own if e is not None)
    top = max(e for e in exponents if e is not None)
    floor = x.min_exponent if bits is not None else None
    if floor is not None:
        top = max(top, floor)
    limit = x.result_bits + 2 if bits is None else bits + 2
    for (role, _), e in zip(terms, own, strict=True):
        if e is not None:
            yield f"{role} shifted {_step(top - e, limit, bits is None)}"
    first = [i for i, e in enumerate(own) if e == largest]
    if sum(e is not None for e in own) > 1:
        yield from (f"the largest term: {word}" for word in _largest([role for role, _ in terms], first))
    signs = {t.negative for _, t in terms}
    if len(first) == len(terms) > 1 and len(signs) == 1:
        yield f"every term at one exponent, {SIGN[next(iter(signs))]}"
    values = [t.value for _, t in terms]
    lost = [False] * len(terms)
    if bits is not None:
        unit = Fraction(2) ** (top - bits)
        whole = [_whole(v / unit, x.alignment_rounding) for v in values]
        lost = [w * unit != v and e is not None and e < top for w, v, e in zip(whole, values, own, strict=True)]
        yield from _cut([role for role, _ in terms], lost, whole)
        any_lost = any(w * unit != v for w, v in zip(whole, values, strict=True))
        values = [w * unit for w in whole]
    if floor is not None:
        yield from _floor(largest - floor, top == floor, [t.negative for (_, t), gone in zip(terms, lost, strict=True) if gone])
    total = sum(values, Fraction(0))
    if bits is not None:
        yield from _odd_terms(x, total, unit, whole)
    if total == 0:
        if bits is None or not any_lost:
            yield "a sum of zero, exact cancellation"
        if gone := {t.negative for (_, t), gone in zip(terms, lost, strict=True) if gone}:
            yield f"a sum of zero, {'terms of both signs' if len(gone) == 2 else SIGN[gone.pop()] + ' terms'} truncated away"
        return
    lead = max(log2_floor(t.value) for _, t in terms if t.value)
    carry = log2_floor(total) - lead
    if carry >= 0:
        yield f"carry {carry} bits, {SIGN[total < 0]}"
    elif bits is None or -carry <= bits:
        yield f"cancelled {_step(-carry, limit, bits is None, 1)} bits"
    yield from _rounded(x, total, None if bits is None else top - bits)


def _step(shift: int, limit: int, coarse: bool, first: int = 0) -> str:
    if shift > limit:
        return f"more than {limit}"
    if not coarse:
        return str(shift)
    starts = sorted(
        {s for s in (0, 1, 2, 3, 4, 8, 16, 32, 64) if first <= s < max(4, limit - 4)} | set(range(max(4, limit - 4), limit + 1))
    )
    low = max(s for s in starts if s <= shift)
    high = min([s - 1 for s in starts if s > shift], default=limit)
    return str(low) if low == high else f"{low}-{high}"


def _largest(roles: list[str], first: list[int]) -> Iterator[str]:
    products = [i for i, role in enumerate(roles) if role == "product"]
    if len(first) == 1:
        role = roles[first[0]]
        place = "the first" if first[0] == 0 else "the last" if first[0] == len(products) - 1 else "a middle"
        yield {"C": "C alone", "inner sum": "an inner sum alone"}.get(role, f"{place} product alone")
        return
    if sum(roles[i] == "product" for i in first) > 1:
        yield "several products"
    if any(roles[i] == "C" for i in first):
        yield "several, C among them"
    if any(roles[i] == "inner sum" for i in first):
        yield "several, inner sums among them"


def _cut(roles: list[str], lost: list[bool], whole: list[int]) -> Iterator[str]:
    yield from (
        f"{role} truncated"
        for role in ("C", "inner sum")
        if any(r == role and gone for r, gone in zip(roles, lost, strict=True))
    )
    n = roles.count("product")
    if n:
        count = sum(gone for r, gone in zip(roles, lost, strict=True) if r == "product")
        words = {0: "no product", n: "every product"}
        words |= {n - 1: "all products but one"} if n > 1 and count else {}
        yield words.get(count, {1: "1 product", 2: "2 products"}.get(count, "several products")) + " truncated"
        odd = sum(w % 2 for r, w in zip(roles, whole, strict=True) if r == "product")
        for low, high in ((2, 2), (3, 3), (4, 7), (8, 15), (16, 31), (32, 10**9)):
            if low <= odd <= high:
                yield f"{low if low == high else f'{low} or more'} products with the last kept bit set"
        if odd == n:
            yield "every product with the last kept bit set"


def _odd_terms(x: FloatArithmetic, total: Fraction, unit: Fraction, whole: list[int]) -> Iterator[str]:
    """Yield the odd terms if a sum that is two units smaller has another result."""
    signs, n = {w < 0 for w in whole if w % 2}, sum(w % 2 for w in whole)
    own, other = (_rounded_word(each, x) if each else 0 for each in (total, total - 2 * unit))
    if own != other:
        sign = "" if not n else ", both signs" if len(signs) == 2 else f", {SIGN[signs.pop()]}"
        yield f"{n or 'no'} term{'s' * (n != 1)} with the last kept bit set{sign}, and a carry shows"


def _floor(above: int, at_floor: bool, lost: list[bool]) -> Iterator[str]:
    if above <= 1:
        place = {1: "one above", 0: "at", -1: "one below"}.get(above, "far below")
        yield f"the largest term {place} the lowest alignment"
    if above < 0 and at_floor:
        yield from (f"bits lost below the lowest alignment, {SIGN[negative]}" for negative in set(lost))


def _rounded(x: FloatArithmetic, total: Fraction, unit: int | None) -> Iterator[str]:
    sign, size, top = SIGN[total < 0], abs(total), log2_floor(total)
    fmt, bits = x.result, x.result_bits
    last = Fraction(2) ** (max(top, fmt.min_exponent) - bits)
    kept, rest = size // last, size % last
    place = "exact" if rest == 0 else "below half" if rest < last / 2 else "above half" if rest > last / 2 else "half"
    if fmt.min_exponent <= top <= fmt.max_exponent:
        word = f"half beside an {'odd' if kept % 2 else 'even'} bit" if place == "half" else place
        yield f"rounded, {word}, {sign}"
        near = last / 64 if unit is None else Fraction(2) ** (unit + 1)
        if rest and rest != last / 2 and abs(rest - last / 2) < near:
            yield f"rounded, just {'above' if rest > last / 2 else 'below'} half, {sign}"
        away = {
            "RNE": place == "above half" or (place == "half" and kept % 2),
            "RU": total > 0 and rest,
            "RD": total < 0 and rest,
        }
        if kept == 2 ** (bits + 1) - 1 and away.get(x.result_rounding):
            yield f"rounded up to the next power of two, {sign}"
        if top == fmt.max_exponent and kept == 2 ** (bits + 1) - 1:
            words = {"exact": "", "below half": "less than half a unit above ", "half": "half a unit above "}
            yield f"{words.get(place, 'more than half a unit above ')}the largest number, {sign}"
        if size == Fraction(2) ** fmt.min_exponent:
            yield f"the smallest normal number, {sign}"
    elif top > fmt.max_exponent:
        yield f"beyond the largest exponent, {sign}"
    else:
        yield f"{_subnormal(int(kept), place, 2**bits - 1)}, {sign}"


def _subnormal(kept: int, place: str, most: int) -> str:
    if kept == 0:
        words = {"below half": "below half of the", "half": "half of the", "above half": "below the"}
        return words[place] + " smallest subnormal number" + (", above half of it" if place == "above half" else "")
    if kept == most:
        return {
            "exact": "the largest subnormal number",
            "below half": "above the largest subnormal number, below half a unit",
            "half": "half a unit below the smallest normal number",
            "above half": "below the smallest normal number, above half a unit",
        }[place]
    if kept == 1 and place == "exact":
        return "the smallest subnormal number"
    return "a subnormal number" if place == "exact" else "between subnormal numbers"

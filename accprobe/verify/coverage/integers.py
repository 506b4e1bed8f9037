"""Events of integer sums: extremes in every group of four products, sizes past every bit, both ends of the result's range.

Integer dot product instructions add four products at once (PTX ISA, dp4a). A group with too few bits shows where all four are
extreme.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from accprobe.evaluate.reference import Chunk
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FusedSum
from accprobe.operands.request import Request, joined
from accprobe.verify.coverage.events import CodeArrays, EventNames, signed

GROUP_OF = 4  # Products.

FEWEST_BITS = 8  # From this power of two on, the leading bit of a sum of products is an event.

ENDS = tuple(
    f"{how}the {end} number"
    for end, side in (("largest", "above"), ("smallest", "below"))
    for how in ("", f"one {side} ", f"far {side} ")
)

ODD_PRODUCTS = "odd products"  # The family of events that counts the odd products of a sum.

DRAWS = 12  # Dot products with each number of odd products: what is carried out of the last bit differs in each.


def _ends(fmt: Format) -> tuple[int, int]:
    """Return the smallest and the largest number."""
    return (-fmt.largest - 1 if fmt.kind == "signed" else 0), fmt.largest


def _extremes(inst: Instruction) -> list[tuple[int, int]]:
    """Return the pairs of the ends of A and B."""
    return list(dict.fromkeys(product(_ends(inst.a), _ends(inst.b))))


def _groups(node: FusedSum) -> list[tuple[int, ...]]:
    """Return the sum's products in fours, and all of them."""
    ks = node.products
    fours = [ks[i : i + GROUP_OF] for i in range(0, len(ks), GROUP_OF)]
    return fours if len(fours) == 1 else [*fours, ks]


def _addends(fmt: Format) -> list[int]:
    low, high = _ends(fmt)
    return sorted({low, min(low + 1, 0), -1 if low else 0, 0, 1, high - 1, high})


def addend_families(inst: Instruction) -> dict[str, EventNames]:
    return {"C": tuple(f"operands: C {value}" for value in _addends(inst.c))}


def addend_codes(inst: Instruction, request: Request) -> CodeArrays:
    c = inst.c.integers(request.c)
    return (("C", c == value, code) for code, value in enumerate(_addends(inst.c)))


def integer_families(inst: Instruction, node: FusedSum) -> dict[str, EventNames]:
    found: dict[str, EventNames] = {"ends": ENDS}
    if count := len(node.products):
        found["groups"] = tuple(f"products {ks[0]}-{ks[-1]} all {a} × {b}" for ks in _groups(node) for a, b in _extremes(inst))
        found[ODD_PRODUCTS] = tuple(f"{n} odd product{'s' * (n != 1)}" for n in range(count + 1))
        size = count * max(abs(inst.multiplied(a, b)) for a, b in _extremes(inst))
        found["bits"] = signed(f"products come to 2^{bit}" for bit in range(FEWEST_BITS, size.bit_length()))
    return found


def integer_codes(inst: Instruction, model: DotModel, node: FusedSum, request: Request) -> CodeArrays:
    if node.products:
        a, b = inst.a.integers(request.a), inst.b.integers(request.b)
        for code, (ks, (x, y)) in enumerate(product(_groups(node), _extremes(inst))):
            yield "groups", (a[:, ks] == x).all(axis=1) & (b[:, ks] == y).all(axis=1), code
        products = inst.multiplied(a[:, node.products], b[:, node.products])
        total = products.sum(axis=1)
        yield ODD_PRODUCTS, np.ones(len(request), bool), (products & 1).sum(axis=1)
        bits = np.frexp(np.abs(total).astype(np.float64))[1] - 1 - FEWEST_BITS
        yield "bits", bits >= 0, 2 * bits + (total < 0)
    chunk = Chunk(inst, request)
    total = chunk.integer_total(node.products, chunk.others(node, model))
    first, last = _ends(node.arithmetic.result)
    where = (total == last, total == last + 1, total > last + 1, total == first, total == first - 1, total < first - 1)
    for code, there in enumerate(where):
        yield "ends", there, code


def integer_operands(inst: Instruction, model: DotModel, rng: np.random.Generator) -> Request:
    """Return dot products made for each event of an integer model."""
    values = _addends(inst.c)
    addends = Request.zeros(inst, len(values))
    addends.c[:] = np.array(values, np.int64).astype(inst.c.dtype)
    nodes = list(model.root.nodes())
    odd = [_odd_operands(inst, node, rng) for node in nodes if node.products]
    return joined([*odd, addends, *(_extreme_operands(inst, node) for node in nodes)])


def _odd_operands(inst: Instruction, node: FusedSum, rng: np.random.Generator) -> Request:
    """Return products of any size, with each possible number of odd ones."""
    ks = np.array(node.products, np.intp)
    counts = np.repeat(np.arange(len(ks) + 1), DRAWS)
    request = Request.zeros(inst, len(counts))
    odd = rng.permuted(np.arange(len(ks)) < counts[:, None], axis=1)
    even = rng.integers(0, 3, odd.shape)
    first, second = odd | (even == 0), odd | (even == 1)
    if inst.bit_op == "xor":
        first = even == 0
        second = first ^ odd
    for column, fmt, last in ((request.a, inst.a, first), (request.b, inst.b, second)):
        column[:, ks] = rng.integers(0, 1 << (fmt.bits - 1), odd.shape) << 1 | last
    return request


def _extreme_operands(inst: Instruction, node: FusedSum) -> Request:
    """Return few and many products of ends and of powers of two, with a C near the ends of the result's range."""
    rows: list[tuple[tuple[int, ...], int, int, int]] = []
    first, last = _ends(node.arithmetic.result)
    ks = node.products or tuple(k for below in node.nodes() for k in below.products)
    for a, b in _extremes(inst):
        rows += [(group, a, b, 0) for group in (_groups(node) if node.products else [])]
        rows += [(ks[:count], x, b, 0) for count in range(1, len(ks) + 1) for x in (a, a // 2)]
        rows += [(ks[:1], a >> i, b >> j, 0) for i in range(inst.a.bits) for j in (0, 3, *range(FEWEST_BITS, inst.b.bits))]
        for end, step in product((first, last), range(-3, 4)):
            rows += [(some, a, b, end + step - len(some) * inst.multiplied(a, b)) for some in (ks[:1], ks, ())]
    for sign, c in product((-1, 1), (first, first + 1, last - 1, last)):
        rows += [(ks[:count], x, y, c) for count in (1, 2, 3) for x, y in ((1, sign), (sign, 1))]
    low, high = _ends(inst.c)
    rows = [row for row in dict.fromkeys(rows) if low <= row[3] <= high]
    request = Request.zeros(inst, len(rows))
    for row, (some, a, b, c) in enumerate(rows):
        request.a[row, list(some)] = a & ((1 << inst.a.bits) - 1)
        request.b[row, list(some)] = b & ((1 << inst.b.bits) - 1)
        request.c[row] = c & ((1 << inst.c.bits) - 1)
    return request

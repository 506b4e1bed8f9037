"""CUDA C++ that evaluates one `DotModel`: the model as types, above the device code in probes/."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import inf

from accprobe.build.probes import device_code
from accprobe.errors import AccprobeError
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import fields_of, written_fields
from accprobe.model.product import addition
from accprobe.model.record import Field, Patterns, Value, Words
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic

# Products of one dot product that the tile has room for.
MOST_PRODUCTS = 64


@dataclass(frozen=True)
class Plan:
    """Plan of the evaluation of a model.

    tiled: rows and columns share decoded operands; otherwise each dot product is evaluated separately. single: sums are
    float32 rather than float64; addends of unusual size are then evaluated separately. base: matrix units find the
    largest exponents of products as sums of powers of 2^base; 0: by comparison. links: sums of a chain in each block whose
    operands are prepared once, in memory; 0: block by block.
    """

    tiled: bool
    single: bool
    base: int = 0
    links: int = 0


def source(model: DotModel, inst: Instruction, chained: bool = False, matrix_units: bool = False) -> str:
    """Return the complete source of the evaluator of `model`, valid CUDA C++ and C++."""
    check(model, inst)
    parts = [
        _words(),
        device_code("evaluator.cuh"),
        device_code("evaluator_tile.cuh"),
        _model(model, inst, plan(model, inst, chained, matrix_units)),
    ]
    return "\n".join([*parts, device_code("evaluator.cu")])


def check(model: DotModel, inst: Instruction) -> None:
    """Raise AccprobeError if `model` cannot be evaluated for `inst`."""
    if model.products != inst.k:
        raise AccprobeError(f"{inst.name} has {inst.k} products, the model {model.products}")
    if field := not_compiled(model):
        raise AccprobeError(f"{inst.name}: {field} has no GPU evaluator; numpy evaluates it, on the CPU")
    if inst.scale is not None:
        raise AccprobeError(f"{inst.name}: block scales have no GPU evaluator")


def not_compiled(model: DotModel) -> str:
    """Return a field and its value that device code does not support; "" if it supports all."""
    return _unknown(model) or next(filter(None, map(_unknown_of_sums, model.arithmetics)), "")


@lru_cache(maxsize=4096)
def _unknown_of_sums(arithmetic: Arithmetic) -> str:
    if isinstance(arithmetic, FloatArithmetic) and arithmetic.nan_payload != "dropped" and arithmetic.result.name != "f64":
        return f"nan_payload {arithmetic.nan_payload}"
    return _unknown(arithmetic)


def _unknown(described: DotModel | Arithmetic) -> str:
    for name, field in fields_of(type(described)).items():
        if not field.is_compiled(value := getattr(described, name)):
            return f"{name} {value}"
    return ""


def can_promote(inst: Instruction) -> bool:
    """Return whether results are f32 or fit into it."""
    return inst.d.is_float and inst.d.bits <= 32


def plan(model: DotModel, inst: Instruction, chained: bool = False, matrix_units: bool = False) -> Plan:
    """Return the plan of `model`. chained: for long chains; matrix_units: let them find exponents, if they can."""
    nodes = list(model.root.nodes())
    tiled = (
        inst.k <= MOST_PRODUCTS
        and inst.bit_op is None
        and all(_tiles(node, inst) for node in nodes)
        and len(_alignment_rules(nodes)) <= 1
    )
    links = _links(model, inst) if chained and tiled else []
    single = bool(links) and _fits_single(links[0], inst)
    base = _base(inst, dict(next(iter(_alignment_rules(nodes)), ())), len(links[0].products)) if single and matrix_units else 0
    return Plan(tiled, inst.is_integer or single, base, len(links))


def _links(model: DotModel, inst: Instruction) -> list[FusedSum]:
    """Return the sums of a chain that differ only in their products, in order; [] if it is not such a chain or does not fit.

    C is a term of the first sum, or is added to the last one as float32.
    """
    nodes = list(model.root.nodes())
    added = _adds_c(nodes[-1])
    links = nodes[:-1] if added else nodes
    alike = len({(node.arithmetic, len(node.products)) for node in links}) == 1
    one_by_one = all(after.children == (before,) for before, after in pairwise(nodes))
    begins = [node.has_addend for node in links] == [not added] + [False] * (len(links) - 1)
    single = _fits_single(links[0], inst)
    kept = model.subnormal_addend == "kept" or (single and not added)  # in float32, no sum is so small that it is flushed
    return links if alike and one_by_one and begins and kept and (single or _fits_double(links[0], inst)) else []


def _adds_c(node: FusedSum) -> bool:
    """Return whether the node is a float32 addition of another sum, which is never -0, and C."""
    a = node.arithmetic
    plain = isinstance(a, FloatArithmetic) and replace(a, zero_sign="ieee", nan=0x7FFFFFFF) == addition()
    return plain and node.has_addend and len(node.terms) == 2 and bool(node.children)


def _base(inst: Instruction, rules: dict[str, str], products: int) -> int:
    """Return 8, with which 16 powers are added at once, or 4, with which 8 are; 0 if neither fits exponents and rules."""
    if rules["product_exponent"] == "normalised product" or rules["zero_terms"] == "aligned" or products % 16:
        return 0
    return next((base for base in (8, 4) if _shift(inst, rules, base) is not None), 0)


def _shift(inst: Instruction, rules: dict[str, str], base: int) -> int | None:
    """Return the exponent offset that makes sums of powers fit in float32, one above a multiple of the base; or None."""
    normalised = rules["product_exponent"] == "normalised operands"
    lowest = sum(fmt.min_exponent - normalised * fmt.mantissa_bits for fmt in (inst.a, inst.b)) * base
    highest = (sum(fmt.max_exponent for fmt in (inst.a, inst.b)) + 1) * base - 1
    fitting = [shift for shift in range(1 - 32 * base, 32 * base, base) if lowest + shift >= -126 and highest + shift <= 127]
    return fitting[0] if fitting else None


def _decoding_fields() -> dict[str, Field]:
    """Return the fields that determine the decoding of operands of aligned sums."""
    return {name: field for name, field in fields_of(FloatArithmetic).items() if field.place == "products"}


def _alignment_rules(nodes: list[FusedSum]) -> set[tuple[tuple[str, str], ...]]:
    """Return the values of those fields, of each aligned sum of products."""
    found: set[tuple[tuple[str, str], ...]] = set()
    for node in nodes:
        a = node.arithmetic
        if node.products and isinstance(a, FloatArithmetic) and a.alignment_bits is not None:
            found.add(tuple((name, getattr(a, name)) for name in _decoding_fields()))
    return found


def _tiles(node: FusedSum, inst: Instruction) -> bool:
    a = node.arithmetic
    if len(node.children) > 2:
        return False
    if isinstance(a, IntegerArithmetic):
        return len(node.products) << (inst.a.bits + inst.b.bits) <= 1 << 24
    if a.alignment_bits is not None:
        return max(inst.c.bits, a.result.bits) < 64 and a.alignment_bits + 2 + len(node.terms).bit_length() <= 51
    if inst.a.name != "f64":
        return len(node.terms) <= 2
    plain = FloatArithmetic(a.result, 52, "RNE", None, zero_sign="ieee", nan=a.nan, nan_payload=a.nan_payload)
    return a == plain and len(node.terms) == 2 and len(node.products) <= 1


def _fits_single(node: FusedSum, inst: Instruction) -> bool:
    a = node.arithmetic
    return (
        isinstance(a, FloatArithmetic)
        and a.alignment_bits is not None
        and a.alignment_bits + 2 + len(node.terms).bit_length() <= 22
        and a.alignment_rounding in ("truncate", "floor", "sticky")
        and (a.min_exponent is None or a.min_exponent <= -90)
        and inst.a.storage_bits == 8
        and a.result.name == inst.c.name == "f32"
        and a.result_bits <= 21
        and a.result_rounding == "RZ"
        and a.zero_sign == "positive"
    )


def _fits_double(node: FusedSum, inst: Instruction) -> bool:
    """Return whether the sums fit in float64 and their results are truncations to float32."""
    a = node.arithmetic
    return (
        isinstance(a, FloatArithmetic)
        and a.alignment_bits is not None
        and a.alignment_rounding in ("truncate", "floor", "sticky")
        and a.result.name == inst.c.name == "f32"
        and (a.result_bits, a.result_rounding, a.subnormal_results) == (23, "RZ", "kept")
        and a.zero_sign == "positive"
    )


_SPECIALS = {"none": "NONE", "nan only": "NAN_ONLY", "ieee": "IEEE"}


def _format(fmt: Format) -> str:
    if fmt.is_integer:
        return f"Integer<{fmt.bits}, {_true(fmt.signed)}, {fmt.storage_bits}>"
    fields = (fmt.exponent_bits, fmt.mantissa_bits, fmt.bias, fmt.ignored_low_bits, fmt.storage_bits)
    return f"Float<{', '.join(map(str, fields))}, Specials::{_SPECIALS[fmt.specials]}>"


def _true(value: bool) -> str:
    return "true" if value else "false"


def _constants(**values: tuple[str, object]) -> str:
    texts = {name: _true(value) if isinstance(value, bool) else str(value) for name, (_, value) in values.items()}
    return "".join(f"    static constexpr {values[name][0]} {name} = {text};\n" for name, text in texts.items())


def _words() -> str:
    """Return an enum class for each field with words that is not tacit."""
    types: dict[str, dict[str, int]] = {}
    for kind in (FloatArithmetic, IntegerArithmetic, DotModel):
        for name, field in fields_of(kind).items():
            if isinstance(field.values, Words) and not field.tacit:
                known = types.setdefault(_type(name), {})
                known |= {_word(word): len(known) + field.values.code(word) for word in field.words if field.is_compiled(word)}
    texts = {name: ", ".join(f"{word} = {code}" for word, code in words.items()) for name, words in types.items()}
    return "".join(f"enum class {name} {{ {text} }};\n" for name, text in texts.items())


def _type(name: str) -> str:
    return name.title().replace("_", "")


def _word(word: str) -> str:
    return word.replace(" ", "_")


def _fields(described: Arithmetic | DotModel) -> str:
    """Return constants by the names of the fields."""
    constants = {name: _constant(name, field, getattr(described, name)) for name, field in written_fields(described).items()}
    return _constants(**constants)


def _constant(name: str, field: Field, value: Value) -> tuple[str, object]:
    """Return type and value; None becomes a number beyond all others."""
    if isinstance(field.values, Words):
        return _type(name), f"{_type(name)}::{_word(str(value))}"
    if isinstance(field.values, Patterns):
        return "u64", f"{value:#x}ull"
    return "int", value if value is not None else "EXACT" if field.values.none == inf else "NOWHERE"


def _rules(index: int, arithmetic: Arithmetic) -> str:
    head = f"struct Rules{index} {{\n    using Result = {_format(arithmetic.result)};\n"
    integer = _constants(INTEGER=("bool", isinstance(arithmetic, IntegerArithmetic)))
    return f"{head}{integer}{_fields(arithmetic)}}};\n"


def _tree(node: FusedSum, model: DotModel, order: list[int]) -> str:
    """Return the type of a sum; append the k of its products to `order`, children's first."""
    children = [_tree(child, model, order) for child in node.children]
    first = len(order)
    order += node.products
    parts = [f"Rules{model.arithmetics.index(node.arithmetic)}", str(first), str(len(node.products)), _true(node.has_addend)]
    return f"Sum<{', '.join([*parts, *children])}>"


def _model(model: DotModel, inst: Instruction, how: Plan) -> str:
    order: list[int] = []
    root = _tree(model.root, model, order)
    position = [order.index(k) for k in range(inst.k)]
    in_order = order == sorted(order)
    nodes = list(model.root.nodes())
    rules = dict(next(iter(_alignment_rules(nodes)), ()))
    floats = [a for a in model.arithmetics if isinstance(a, FloatArithmetic)]
    aligned = [a for a in floats if a.alignment_bits is not None]
    linked = aligned[0] if how.links else None
    others = [fmt for fmt in (inst.c, *(a.result for a in model.arithmetics)) if fmt.is_float]
    constants = _constants(
        K=("int", inst.k),
        IN_ORDER=("bool", in_order),
        XOR=("bool", inst.bit_op == "xor"),
        OTHERS_LOW=("int", min((fmt.min_exponent - fmt.mantissa_bits for fmt in others), default=0)),
        OTHERS_HIGH=("int", max((fmt.max_exponent for fmt in others), default=0)),
        TILTED=("bool", any(a.alignment_rounding == "truncate" for a in aligned)),
        POWERS=("bool", bool(aligned) and rules.get("product_exponent") != "normalised product"),
        CUT_BITS=("int", max(((a.alignment_bits or 0) - (a.alignment_rounding == "sticky") for a in aligned), default=0)),
        OF_SUM=("int", inst.k // how.links if how.links else 0),
        SUMS=("int", how.links),
        ADDED=("bool", linked is not None and model.root.arithmetic != linked),
        BASE=("int", how.base),
        SHIFT=("int", _shift(inst, rules, how.base) if how.base else 0),
        CAN_PROMOTE=("bool", can_promote(inst)),
        NAN_WINS=("bool", bool(floats) and all(a.nan_payload == "dropped" for a in floats)),
        NOT_A_NUMBER=("u64", f"{model.root.arithmetic.nan:#x}ull" if isinstance(model.root.arithmetic, FloatArithmetic) else 0),
    )
    decoding = {name: _constant(name, field, rules.get(name, field.words[0])) for name, field in _decoding_fields().items()}
    table = f"constexpr u16 table[] = {{{', '.join(map(str, position))}}}; return table[k]"
    lines = [
        f"// {model.order}",
        *(_rules(i, arithmetic).rstrip() for i, arithmetic in enumerate(model.arithmetics)),
        f"__constant__ const u16 ORDER[] = {{{', '.join(map(str, order))}}};",
        "struct TheModel {",
        *(f"    using {name} = {_format(fmt)};" for name, fmt in zip("ABCD", (inst.a, inst.b, inst.c, inst.d), strict=True)),
        f"    using Root = {root};",
        *([f"    using Linked = Rules{model.arithmetics.index(linked)};"] if linked else []),
        f"    using Real = {'float' if how.single else 'double'};",
        f"    using Pattern = {'u64' if inst.d.bits == 64 else 'u32'};",
        (constants + _fields(model) + _constants(**decoding)).rstrip(),
        "    static FN const u16* order() { return ORDER; }",
        f"    static constexpr FN int position(int k) {{ {'return k' if in_order else table}; }}",
        "};",
        f"#define TILED {int(how.tiled)}",
        f"#define CHAINED {int(how.links > 0)}",
        f"#define BLOCKS_AT_ONCE {_blocks_at_once(model, how)}",
    ]
    return "\n".join(lines) + "\n"


def _blocks_at_once(model: DotModel, how: Plan) -> int:
    """Return the thread blocks for each multiprocessor; fewer blocks have more registers each."""
    if how.links or how.single:
        return 3
    return 2 if how.tiled and len(list(model.root.nodes())) == 1 else 1

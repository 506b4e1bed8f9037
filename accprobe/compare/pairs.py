"""Two claims about one subject, or about subjects of one role, compared field by field and part by part.

Roles of instructions are operand and result formats: each generation offers a different instruction for the same role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from accprobe.compare.differences import (
    UNDECIDED,
    Difference,
    FieldVerdict,
    ProductDifference,
    Verdict,
    VerdictWord,
    finding_verdict,
    meaning,
)
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import FEATURES, finding_names, parsed
from accprobe.model.product import ProductModel, same_additions
from accprobe.records.claims import Part
from accprobe.records.findings import Bound
from accprobe.records.products import ProductRow
from accprobe.records.rows import Row
from accprobe.report.report import AnyClaim
from accprobe.report.words import PLAN_FINDINGS, PRODUCT_FINDINGS, effective_bits, found_words, miscounted, ran_as


@dataclass(frozen=True)
class InstructionRole:
    """Formats of the operands and the result, and other properties of the sum except the shape."""

    a: Format
    b: Format
    c: Format
    d: Format
    satfinite: bool
    sparse: bool
    scaling: str
    bit_op: str

    @property
    def operands(self) -> str:
        """Return "FP8", "F16", "FP8 × FP4"."""
        return " × ".join(dict.fromkeys((self.a.family, self.b.family)))

    def __str__(self) -> str:
        """Return "FP8 → f32", "sparse INT8 → s32 saturating"."""
        addend = f"+ {self.c}" if self.c != self.d else ""
        operands = ("sparse" * self.sparse, self.scaling, self.operands, self.bit_op, addend)
        words = (*operands, "→", str(self.d), "saturating" * self.satfinite)
        return " ".join(filter(None, words))


def role_of(inst: Instruction) -> InstructionRole:
    scaling = f"{inst.kind} {inst.scale_block} × {inst.scale}" if inst.scale else ""
    return InstructionRole(inst.a, inst.b, inst.c, inst.d, inst.satfinite, inst.sparse, scaling, inst.bit_op or "")


def offered(rows: Iterable[Row]) -> dict[InstructionRole, list[Row]]:
    """Return the rows of the newest family that has each role."""
    found: dict[InstructionRole, list[Row]] = {}
    for row in rows:
        found.setdefault(role_of(row.instruction), []).append(row)
    newest = {wanted: max((row.instruction.family for row in alike), key=lambda x: x.since) for wanted, alike in found.items()}
    return {wanted: [row for row in found[wanted] if row.instruction.family is family] for wanted, family in newest.items()}


def nearest_shape(inst: Instruction, rows: Iterable[Row]) -> Row:
    """Return the row with the nearest shape: first k, then n, m, and the place of A."""

    def distance(row: Row) -> tuple[int, int, int, bool]:
        other = row.instruction
        registers = inst.a_registers != other.a_registers
        return abs(inst.k - other.k), abs(inst.n - other.n), abs(inst.m - other.m), registers

    return min(rows, key=distance)


By = Literal["role", "name"]

ONCE = "each_product_once"
# Fields of a claim that are not findings.
STATUS, REGIONS, DIGEST = "status", "regions", "digest"

# Steps around the sums of a product or a composite.
OUTER_STEPS = ("epilogue", "result", "functions", "moments", "eps", "rows", "factor")

_OF_PRODUCTS = (STATUS, REGIONS, *(name for name in PRODUCT_FINDINGS if name not in OUTER_STEPS), *OUTER_STEPS)
COMPARED_FIELDS: dict[str, tuple[str, ...]] = {
    "instruction": tuple(dict.fromkeys([*FEATURES, *finding_names()])),
    "product": _OF_PRODUCTS,
    "reduction": _OF_PRODUCTS,
    "function": (STATUS, "computes", DIGEST),
}
"""Fields that are compared, by kind of claim, in the order of tables."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A claim of A and one of B; None if a side has none that was measured.

    marks: unverified sides, such as "B simulated". by: how they were matched. note: why a side has no values.
    """

    a: AnyClaim | None
    b: AnyClaim | None
    verdict: Verdict
    differences: tuple[Difference, ...] = ()
    marks: tuple[str, ...] = ()
    by: By = "name"
    note: str = ""

    @property
    def row(self) -> AnyClaim:
        """Return A's claim, or B's if A has none."""
        row = self.a or self.b
        assert row is not None
        return row

    @property
    def word(self) -> VerdictWord:
        changed = {each.field for each in self.changes}
        return "status changed" if self.verdict == "changed" and changed == {STATUS} else self.verdict

    @property
    def changes(self) -> tuple[Difference, ...]:
        return tuple(each for each in self.differences if each.verdict == "changed")

    @property
    def instructions(self) -> list[Instruction]:
        """Return the instructions of both sides; empty for other claims."""
        return [row.instruction for row in (self.a, self.b) if isinstance(row, Row)]

    @property
    def role(self) -> InstructionRole:
        return role_of(self.instructions[0])

    def values(self, field: str) -> tuple[str, str]:
        """Return a field's values on both sides, as in tables."""
        a, b = ("" if row is None else shown(row, field) for row in (self.a, self.b))
        return a, b


def paired(a: AnyClaim, b: AnyClaim, fields: Sequence[str], marks: tuple[str, ...] = (), by: By = "name") -> Pair:
    """Compare two claims of one kind, whatever their subjects."""
    differences = tuple(_differences(a, b, fields))
    verdicts = {each.verdict for each in differences}
    verdict: Verdict = "changed" if "changed" in verdicts else "undecided" if verdicts else "same"
    return Pair(a=a, b=b, verdict=verdict, differences=differences, marks=marks, by=by)


def shown(row: AnyClaim, field: str, part: Part | None = None) -> str:
    """Return a field as in tables, "" if the claim does not have it. part: None for the largest."""
    if field == "ran_as" and isinstance(row, Row):
        return ran_as(row)
    if field == REGIONS and isinstance(row, ProductRow):
        return "; ".join(region.where for region in row.regions) or "none"
    if field in OUTER_STEPS and isinstance(row, ProductRow):
        return _steps(row).get(field, "")
    if field in (STATUS, "computes", DIGEST):
        return str(getattr(row, field, ""))
    if field == "unstable" and isinstance(row, Row):
        return f"{row.unstable:,}"
    if part is None and not row.parts:
        return ""
    findings = (part or row.parts[0]).findings
    if field == "effective_bits" and isinstance(row, Row) and field in findings:
        return effective_bits(row)
    return found_words(findings, field, isinstance(row, Row) and row.instruction.is_integer)


def _differences(a: AnyClaim, b: AnyClaim, fields: Sequence[str]) -> Iterator[Difference]:
    counted = [_miscounted_elsewhere(row) for row in (a, b)]
    if ONCE in fields and counted[0] != counted[1]:
        yield Difference(ONCE, "changed", *(words or "yes" for words in counted))
    for field in fields:
        if (verdict := _claim_verdict(a, b, field)) is not None:
            yield _difference(field, verdict, a, b)
        for where, of_a, of_b in () if field in OUTER_STEPS else _matched(a.parts, b.parts):
            if (verdict := _part_verdict(a, b, of_a, of_b, field, "order" in fields)) is not None:
                yield _difference(field, verdict, a, b, where, of_a, of_b)


def _difference(
    field: str,
    verdict: FieldVerdict,
    a: AnyClaim,
    b: AnyClaim,
    where: str = "",
    of_a: Part | None = None,
    of_b: Part | None = None,
) -> Difference:
    means = ""
    if isinstance(a, Row) and isinstance(b, Row):
        means = meaning(field, a, b) if verdict == "changed" else UNDECIDED
    missing = "none" if field in OUTER_STEPS else "not known"
    made = ProductDifference if isinstance(a, ProductRow) else Difference
    return made(field, verdict, shown(a, field, of_a) or missing, shown(b, field, of_b) or missing, means, where)


def _claim_verdict(a: AnyClaim, b: AnyClaim, field: str) -> FieldVerdict | None:
    """Return the verdict of a field that is no finding; only the opcodes of a simulated side are compared."""
    if field in OUTER_STEPS and isinstance(a, ProductRow) and isinstance(b, ProductRow):
        return _step_verdict(a, b, field)
    record = parsed(field).record
    if not (record and record.of_row) and field not in (STATUS, REGIONS, "computes", DIGEST):
        return None
    texts = {shown(a, field), shown(b, field)}
    if len(texts) == 1 or ("simulated" in (a.status, b.status) and field != "ran_as"):
        return None
    if field == DIGEST:  # a function compared on a sample has no digest
        return "changed" if all(texts) else None
    return "changed" if all(texts) and (field != REGIONS or (a.holds and b.holds)) else "undecided"


def _step_verdict(a: ProductRow, b: ProductRow, field: str) -> FieldVerdict | None:
    """Return whether a step around the sums differs, or only one of the rows has it."""
    steps, others = _steps(a), _steps(b)
    if steps.get(field) == others.get(field):
        return None
    has_other = any(row.composite is not None and row.composite.same_bits for row in (a, b))
    # Other steps with the same bits have the same eps and factor.
    given = any(steps.get(name) != others.get(name) for name in ("eps", "factor"))
    return "changed" if a.holds and b.holds and (given or not has_other) else "undecided"


def _miscounted_elsewhere(row: AnyClaim) -> str:
    """Return the k that regions other than the largest drop or repeat."""
    if not isinstance(row, ProductRow):
        return ""
    return "; ".join(f"{which}, at {where}" for where, which in miscounted(row) if where != row.regions[0].where)


def _matched(a: Sequence[Part], b: Sequence[Part]) -> Iterator[tuple[str, Part, Part]]:
    """Yield the largest parts of both, and others with the same elements."""
    if a and b:
        yield "", a[0], b[0]
    others = {part.where: part for part in b[1:]}
    yield from ((part.where, part, others[part.where]) for part in a[1:] if part.where in others)


def _part_verdict(a: AnyClaim, b: AnyClaim, of_a: Part, of_b: Part, field: str, with_order: bool) -> FieldVerdict | None:
    """Return the verdict of a finding; None if it does not differ, or if the difference shows in another."""
    one, other = of_a.findings.get(field), of_b.findings.get(field)
    if one is None or other is None:
        lacks = (b, of_b) if other is None else (a, of_a)
        return None if one is other or not _may_have(field, *lacks, of_b if lacks[0] is a else of_a) else "undecided"
    if field == "order" and isinstance(a, Row) and isinstance(b, Row) and a.instruction.k != b.instruction.k:
        return None
    verdict = finding_verdict(one, other, field)
    if verdict is None:
        return None
    bounds: set[Bound] = {one.bound, other.bound}
    if field in PLAN_FINDINGS and a.holds and b.holds and bounds <= {"exact", "equivalent"} and _same_sums(of_a, of_b):
        return None
    hidden = verdict == "undecided" and with_order and "equivalent" in bounds
    return None if hidden else verdict


def _same_sums(a: Part, b: Part) -> bool:
    """Return whether two plans add the same products in the same sums, whatever their structures are called."""
    return isinstance(a.model, ProductModel) and isinstance(b.model, ProductModel) and same_additions(a.model, b.model)


def _may_have(field: str, row: AnyClaim, part: Part, other: Part) -> bool:
    """Return whether a part that lacks a field might have it, given what is known of its sums, or of both plans."""
    if not isinstance(row, Row):
        return not ("order" in part.findings and "order" in other.findings)
    if not part.findings:
        return True
    alignment = part.findings.get("alignment_bits")
    exact = alignment is not None and alignment.bound == "exact" and alignment.value is None
    what = parsed(field)
    of_alignment = what.field is not None and what.field.of_alignment
    of_chains = what.record is not None and what.record.of_chains
    return not (what.role == "add" or of_chains or (exact and of_alignment))


# Findings that follow from others, reported only if nothing else differs.
DERIVED = ("order", "instruction")


def versus(one: ProductRow, other: ProductRow) -> tuple[bool, str]:
    """Return whether nothing differs, and "use_fast_accum False -> True changed promotion interval: 128 -> none"."""
    what = _setting(one, other)
    of_shape = {"slice_sizes", "order"} if one.k != other.k else set()
    of_shape |= {REGIONS} if one.shape != other.shape else set()
    fields = [name for name in _OF_PRODUCTS if name not in of_shape]
    pair = paired(one, other, sorted(fields, key=(STATUS, REGIONS).__contains__))
    for kind, verb in (("changed", "changed"), ("undecided", "may have changed")):
        found = [each for each in pair.differences if each.verdict == kind]
        if found:
            first = [each for each in found if each.field not in DERIVED] or found
            changes = (f"{each.title}: {each.a} -> {each.b}" for each in first)
            return False, f"{what} {verb} {'; '.join(changes)}"
    models = [[region.model for region in row.regions] for row in (one, other)]
    if one.k == other.k and models[0] != models[1]:
        return False, f"{what} changed the plan, in no named finding"
    same_plan = "same plan, " if models[0] == models[1] and models[0] and None not in models[0] else ""
    return True, f"{what}: {same_plan}no property differs"


def _steps(row: ProductRow) -> dict[str, str]:
    """Return the steps of a composite by name, and the epilogue of a product."""
    found = {"epilogue": str(row.findings["epilogue"].value)} if "epilogue" in row.findings else {}
    if row.factor_exponent:
        found["factor"] = f"2^{row.factor_exponent}"
    if (composite := row.composite) is not None:
        steps = {"result": composite.finish, "functions": composite.function, "moments": composite.moments}
        steps |= {"eps": "" if composite.eps is None else f"{composite.eps:g}"}
        steps |= {"rows": f"{composite.rows.finish} of {composite.rows.order}" if composite.rows else ""}
        found |= {name: text for name, text in steps.items() if text}
    return found


def _setting(one: ProductRow, other: ProductRow) -> str:
    if one.name != other.name:
        changes = [f"{one.name} -> {other.name}"]
    else:
        names = dict.fromkeys([*one.options, *other.options])
        pairs = ((name, one.options.get(name), other.options.get(name)) for name in names)
        changes = [f"{name} {first} -> {second}" for name, first, second in pairs if first != second]
    changes += [f"shape {one.shape} -> {other.shape}"] if one.shape != other.shape else []
    return ", ".join(changes) or "a repeated run"

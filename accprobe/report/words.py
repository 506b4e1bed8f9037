"""The results for an instruction or a product, in words short enough for a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from accprobe.build.lowerings import is_ordinary
from accprobe.isa import opcodes
from accprobe.isa.formats import Format
from accprobe.records.claims import Claim
from accprobe.records.findings import Finding
from accprobe.records.products import ProductRow
from accprobe.records.rows import Row

FindingsByName = Mapping[str, Finding]


def so_many(count: int, noun: str) -> str:
    """Return "1 instruction", "2,000 instructions"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def percent(share: float, digits: int = 2) -> str:
    """Return "25 %", "0.13 %", "3.1e-06 %"; "100 %" only of a share of at least 1."""
    value = 100 * share
    if value < 99.5:
        return f"{value:.{digits}g} %"
    return f"{min(value, 99.99):.4g} %" if value < 100 else f"{value:.0f} %"


def status_counts(claims: Iterable[Claim], not_measured: int = 0) -> str:
    """Return "101 of 102 products confirmed, 1 inferred, 1 with wrong results"; skipped ones are not counted.

    not_measured: instructions that a run did not reach.
    """
    measured = [claim for claim in claims if claim.status != "skipped"]
    counts = Counter[tuple[str, str]]((claim.kind, claim.status) for claim in measured)
    if not_measured:
        counts["instruction", "not measured"] = not_measured
    words = []
    for kind in dict.fromkeys(kind for (kind, _), _ in counts.most_common()):
        found = [(count, status) for (each, status), count in counts.most_common() if each == kind]
        of = so_many(sum(count for count, _ in found), kind)
        words += [f"{count:,}{'' if i else f' of {of}'} {status}" for i, (count, status) in enumerate(found)]
    wrong = sum(isinstance(claim, ProductRow) and is_wrong(claim) for claim in measured)
    return ", ".join(words + [f"{wrong:,} with wrong results"] * bool(wrong))


def ran_as(row: Row) -> str:
    """Return the lowering without modifiers, "F2FP + 2×HMMA + FADD"; only matrix opcodes keep their counts."""
    counts: dict[str, int] = {}
    for opcode, count in row.lowering:
        counts[opcodes.stem(opcode)] = counts.get(opcodes.stem(opcode), 0) + count
    return " + ".join(f"{count}×{stem}" if opcodes.is_matrix(stem) and count > 1 else stem for stem, count in counts.items())


def effective_bits(row: Row) -> str:
    """Return "13 (e8m13)": fraction bits of the running sum, and the float that has as many; "32 wrap" for an integer."""
    d = row.instruction.d
    if d.is_integer:
        return " ".join(filter(None, (found(row, "result_bits"), found(row, "overflow"))))
    bits = row.findings.get("effective_bits")
    return f"{value(bits)} ({register(d, bits.value)})" if bits and isinstance(bits.value, int) else ""


def register(d: Format, bits: int) -> str:
    """Return the float with the exponent of `d` and that many fraction bits: "f32" for 23, "e8m13" for 13."""
    return d.name if bits == d.mantissa_bits else f"e{d.exponent_bits}m{bits}"


FROM_ORDER = ("products_per_sum", "addend")
"""Features that follow from the order."""


def found(row: Row, feature: str) -> str:
    """Return the value of a finding, "" where there is none."""
    return found_words(row.findings, feature, row.instruction.is_integer)


def found_words(findings: FindingsByName, name: str, of_integers: bool = False) -> str:
    """Return a finding as tables show it, "" where there is none; "…?" too for features of an undetermined order.

    of_integers: an undetermined value is "not observable", as all values give the same bits.
    """
    finding = findings.get(name)
    if finding is None:
        return ""
    is_unknown = finding.bound == "undetermined" and not finding.candidates and not of_integers
    if is_unknown or (name in FROM_ORDER and "order" in findings and findings["order"].candidates):
        return f"{word(finding.value, name)}?"
    return value(finding, name)


def value(finding: Finding, feature: str = "") -> str:
    """Return "13", "≥24" for a lower bound, "13?" if other values fit too, "not observable" if every value fits, "13 or 14"
    if these give the same bits for all operands, "~13" if it is only suggested.
    """
    text = word(finding.value, feature)
    if finding.bound == "at_least":
        return f"≥{text}"
    if finding.bound == "undetermined":
        return f"{text}?" if finding.candidates else "not observable"
    if finding.bound == "suggested":
        return f"~{text}"
    if finding.bound == "equivalent":
        return " or ".join([word(x, feature) for x in finding.candidates[:2]] + ["others"] * (len(finding.candidates) > 2))
    return text


def word(plain: int | str | None, feature: str = "") -> str:
    """Return one value in words; None of alignment bits is "exact"."""
    if plain is None:
        return "exact" if feature.endswith("alignment_bits") else "none"
    return str(plain)


def is_narrow(row: Row) -> bool:
    """Return whether the running sum is known to keep fewer bits than the result's format has."""
    bits, d = row.findings.get("effective_bits"), row.instruction.d
    verified = row.verification is not None and not row.verification.mismatches and row.status in ("confirmed", "simulated")
    if bits is None or not verified:
        return False
    return bits.bound == "exact" and isinstance(bits.value, int) and bits.value < d.mantissa_bits


def detour(row: Row) -> str:
    """Return what computed it instead of a unit of the operands' format, else ""."""
    if is_ordinary(row.lowering):
        return "no matrix unit: ordinary instructions multiplied and added"
    if any(opcodes.relation(row.instruction, opcode) == "converted" for opcode in row.opcodes):
        return "a unit of other formats: the operands were converted for it"
    return ""


_NAME = re.compile(
    r"(?P<head>.+?)\.(?P<m>m\d+)(?P<n>n\d+)(?P<k>k\d+)(?P<saturate>\.satfinite)?(?P<rest>(?:\.[^.]+)*?)(?P<rs>\.rs)?"
)

Slots = tuple[tuple[str, ...], ...]
"""The values of each part of a name; the pattern stands for every combination."""


def brace_patterns(names: Iterable[str]) -> list[str]:
    """Return patterns that together expand to just these names of instructions, in the order of their first names.

    A pattern is as a shell would expand it: "wgmma.m64n{8,256}k32.f32.e4m3.e4m3{,.rs}". If any is no
    such name, all are returned as they are.
    """
    every = list(dict.fromkeys(names))
    parts = [match for name in every if (match := _NAME.fullmatch(name))]
    if len(parts) < len(every):
        return every
    words = [[f".{word}" for word in each["rest"].split(".")[1:]] for each in parts]
    longest = max(map(len, words), default=0)
    found: list[Slots] = []
    for each, own in zip(parts, words, strict=True):
        ends = each["saturate"] or "", *own, *[""] * (longest - len(own)), each["rs"] or ""
        found.append(tuple((part,) for part in (f"{each['head']}.", each["m"], each["n"], each["k"], *ends)))
    before = -1
    while len(found) != before:
        before = len(found)
        for slot in reversed(range(longest + 6)):
            found = _merged(found, slot)
    return ["".join(map(_written, slots)) for slots in found]


def _merged(found: Sequence[Slots], slot: int) -> list[Slots]:
    """Join patterns that differ only in one slot."""
    alike: dict[Slots, dict[str, None]] = {}
    for slots in found:
        alike.setdefault((*slots[:slot], *slots[slot + 1 :]), {}).update(dict.fromkeys(slots[slot]))
    return [(*others[:slot], tuple(values), *others[slot:]) for others, values in alike.items()]


def _written(values: tuple[str, ...]) -> str:
    if len(values) == 1:
        return values[0]
    first = values[0][:1]
    if first and all(value.startswith(first) for value in values):
        return f"{first}{{{','.join(value[1:] for value in values)}}}"
    return f"{{{','.join(values)}}}"


PLAN_FINDINGS = (
    "split_k",
    "slice_sizes",
    "partial_format",
    "reduction_order",
    "promote_every",
    "promotion_format",
    "promotion_rounding",
    "order",
)
"""Findings in which structures that give the same bits for all operands may differ."""

MOST_SIZES = 8
"""Sizes that are listed one by one."""

PRODUCT_FINDINGS = (
    "each_product_once",
    *PLAN_FINDINGS,
    "products_per_sum",
    "effective_bits",
    "alignment_bits",
    "result_bits",
    "product_bits",
    "sum_rounding",
    "operand_rounding",
    "subnormal_operands",
    "subnormal_results",
    "result_rounding",
    "scales",
    "epilogue",
    "instruction",
    "same_everywhere",
    "depends_on",
    "repeatable",
    "first_calls",
)
"""Names of the findings of products, in the order of tables."""

BACKWARD = "from the last k to the first"
BLOCKS_BACKWARD = "by blocks of {} from the last to the first"
IN_DISORDER = "in another order"
SHARE = "{} of every {} k"
"""How the finding `order` ends where a chain does not take K in turn; SHARE: where other k lie between a chain's."""


def plan_words(findings: FindingsByName, of_reduction: bool = False) -> str:
    """Return the order of K: "4 slices of 1024, partials bf16", "one chain, promotion interval 128"; "" if it is unknown.

    of_reduction: the line says that partial sums in f32 are added in f32, not that they are kept in it.
    """
    return ", ".join(_plan(findings, of_reduction))


def _plan(findings: FindingsByName, of_reduction: bool) -> Iterator[str]:
    split = findings.get("split_k")
    if split is None:
        return
    if parts := division(findings):
        yield parts
        if how := along(findings):
            yield f"each {how}"
        return
    if split.value == 1:
        yield found_words(findings, "split_k").replace("1", f"one chain {along(findings)}".rstrip())
    else:
        sizes = parsed_sizes(str(findings["slice_sizes"].value)) if "slice_sizes" in findings else []
        partials, merge = found_words(findings, "partial_format"), found_words(findings, "reduction_order")
        in_f32 = of_reduction and partials == "f32"
        yield f"{found_words(findings, 'split_k')} slices{f' of {each_of(sizes)}' if sizes else ''}"
        if in_f32:
            yield f"added in f32{f' as a {merge}' if merge in ('tree', 'butterfly') else ''}"
        if how := along(findings):
            yield f"each {how}"
        if partials and not in_f32:
            yield f"partials {partials}"
        if merge not in ("", "forward") and not (in_f32 and merge in ("tree", "butterfly")):
            yield f"reduction {merge}"
    if "promote_every" in findings and findings["promote_every"].value is not None:
        yield f"promotion interval {found_words(findings, 'promote_every')}"


def listed_sizes(sizes: Sequence[int]) -> str:
    """Return "288, 288, 160"; more than MOST_SIZES as run lengths, "15 x 288, 160"."""
    runs = [(size, len(list(run))) for size, run in groupby(sizes)]
    if len(sizes) <= MOST_SIZES:
        return ", ".join(map(str, sizes))
    return ", ".join(f"{count} x {size}" if count > 1 else str(size) for size, count in runs)


def parsed_sizes(listed: str) -> list[int]:
    """Return the sizes that `listed_sizes` lists."""
    runs = (run.rpartition(" x ") for run in listed.split(", "))
    return [int(size) for count, _, size in runs for _ in range(int(count or 1))]


def each_of(sizes: Sequence[int]) -> str:
    """Return "1024" of equal sizes, "1408, the last 1280", "72, 96", "160 (2 times), 39 (120 times)", or "4 to 12"."""
    if len(set(sizes)) == 1:
        return str(sizes[0])
    all_but_one = len(sizes) > 2 and len(set(sizes[:-1])) == 1
    if all_but_one:
        return f"{sizes[0]}, the last {sizes[-1]}"
    if len(sizes) <= MOST_SIZES:
        return ", ".join(map(str, sizes))
    runs = [(size, len(list(run))) for size, run in groupby(sizes)]
    if len(runs) > MOST_SIZES:
        return f"{min(sizes)} to {max(sizes)}"
    return ", ".join(f"{size} ({count} times)" if count > 1 else str(size) for size, count in runs)


def division(findings: FindingsByName) -> str:
    """Return "2 slices of 256, added in f32" where several structures give the same bits, "" where K has one structure."""
    several = any(name in findings and findings[name].bound == "equivalent" for name in PLAN_FINDINGS)
    return str(findings["order"].value).rpartition(": ")[0] if several and "order" in findings else ""


def along(findings: FindingsByName) -> str:
    """Return how each chain takes K, "" if in turn."""
    return str(findings["order"].value).partition("], ")[2] if "order" in findings else ""


def miscounted(row: ProductRow) -> Iterator[tuple[str, str]]:
    """Yield (region, k) where products are dropped or counted more than once: an error of the callable."""
    for region in row.regions:
        once = region.findings.get("each_product_once")
        if once is not None and once.value == "no":
            yield region.where, once.note


def misscaled(row: ProductRow) -> Iterator[str]:
    """Yield each block that has the scales of another: "block 3 has the scales of block 2"."""
    yield from dict.fromkeys(re.findall(r"block \d+ has the scales of (?:no block|block \d+)", row.reason))


def is_wrong(row: ProductRow) -> bool:
    """Return whether terms are wrong, which a confirmed plan may describe, or scales."""
    return any((*miscounted(row), *misscaled(row)))

"""JSON and comma-separated values for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from accprobe.audit.accumulators import Accumulator
from accprobe.audit.kernels import Kernel, Reading
from accprobe.budget.error_report import ErrorReport, ErrorRow, is_simulated
from accprobe.budget.tolerance import ToleranceReport
from accprobe.compare.diff import Diff, Pair, generation
from accprobe.compare.differences import Difference
from accprobe.compare.headline import headline
from accprobe.compare.products import ProductPair, contrast
from accprobe.operands.exchange import Counterexample
from accprobe.render.subjects.budget import budget_notes
from accprobe.render.subjects.comparison import verdict_counts
from accprobe.render.subjects.sass import demangled
from accprobe.render.subjects.tolerance import tolerance_words
from accprobe.render.subjects.verification import Verified
from accprobe.report.columns import records
from accprobe.report.report import Report, Tool
from accprobe.report.rows import Row
from accprobe.sass.promotion import UNBOUNDED, Chain
from accprobe.verify.vectors import Comparison

JsonObject = dict[str, Any]


def comma_separated(report: Report) -> str:
    """Return a header and a line for each row (RFC 4180, lines end in a line feed); unknown values are empty."""
    return _csv(list(records(report)))


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(key for row in rows for key in row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _document(kind: str, schema: int, **data: Any) -> str:
    head = {"schema": schema, "kind": kind, "tool": Tool.current().model_dump(exclude_none=True)}
    return json.dumps(head | data, indent=1, ensure_ascii=False) + "\n"


def diff_json(diff: Diff) -> str:
    """Return both sides, the headline, environment, counts by verdict, every pair and product with its differences."""
    data = {
        "headline": headline(diff),
        "differs": diff.differs,
        "a": _side(diff.a),
        "b": _side(diff.b),
        "environment": [asdict(change) for change in diff.environment],
        "counts": dict(diff.counts),
        "product_counts": dict(verdict_counts(diff.products)),
        "unmeasured": diff.unmeasured,
        "pairs": [_pair(pair) for pair in diff.pairs],
        "products": [_product_pair(pair) for pair in diff.products],
    }
    return json.dumps(data, indent=1, ensure_ascii=False)


def _side(report: Report) -> JsonObject:
    return {
        "name": report.device.name,
        "kind": report.device.kind,
        "architecture": report.device.architecture,
        "generation": generation(report),
        "instructions": len(report.measured),
        "explains": [one for row in report.measured for one in _explained(row)],
    }


def _explained(row: Row | None) -> list[JsonObject]:
    return [asdict(one) for one in row.explains] if row else []


def _pair(pair: Pair) -> JsonObject:
    return {
        "verdict": pair.verdict,
        "word": pair.word,
        "by": pair.by,
        "role": str(pair.role),
        "a": pair.a and pair.a.name,
        "b": pair.b and pair.b.name,
        "marks": list(pair.marks),
        "explains": {side: _explained(row) for side, row in (("a", pair.a), ("b", pair.b))},
        "note": pair.note,
        "fields": [_difference(pair, difference) for difference in pair.differences],
    }


def _product_pair(pair: ProductPair) -> JsonObject:
    return {
        "verdict": pair.verdict,
        "word": pair.word,
        "product": pair.row.title,
        "marks": list(pair.marks),
        "why": " → ".join(filter(None, contrast(pair))) if pair.verdict == "changed" else "",
        "fields": [asdict(each) for each in pair.differences],
    }


def _difference(pair: Pair, difference: Difference) -> JsonObject:
    return asdict(difference) | {
        "a": _value(pair.a, difference.field, difference.a),
        "b": _value(pair.b, difference.field, difference.b),
    }


def _value(row: Row | None, field: str, text: str) -> JsonObject:
    """Return the value as the report has it, and as tables show it."""
    finding = row.findings.get(field) if row else None
    if finding is None:
        return {"text": text}
    return {"value": finding.value, "bound": finding.bound, "candidates": list(finding.candidates), "text": text}


def kernels_json(kernels: Sequence[Kernel], reading: Reading) -> str:
    """Return all kernels, one a line."""
    head = {
        "schema": 1,
        "kind": "sass",
        "tool": Tool.current().model_dump(exclude_none=True),
        "functions": dict(reading.functions),
        "ptx": reading.ptx,
        "unread": reading.problems,
    }
    body = ",\n".join(f"  {json.dumps(_kernel(kernel))}" for kernel in kernels)
    return f'{json.dumps(head)[:-1]},\n "kernels": [\n{body}\n ]}}\n'


def _kernel(kernel: Kernel) -> JsonObject:
    data: JsonObject = {
        "file": kernel.file,
        "name": kernel.name,
        "demangled": demangled(kernel.name),
        "architecture": kernel.architecture,
        "sha256": kernel.sha256,
        "opcodes": dict(kernel.matrix),
        "conversions": [{"opcode": c.opcode, "count": c.count, "feeds": list(c.feeds)} for c in kernel.conversions],
        "emulated": None if kernel.emulated is None else {"format": kernel.emulated[0], "by": kernel.emulated[1]},
        "accumulators": {opcode: _accumulator(known) for opcode, known in kernel.accumulators.items()},
        "sums": [_chain(chain) for chain in kernel.chains],
    }
    if kernel.executed is not None:
        data |= {"launches": kernel.launches, "executed": dict(kernel.executed)}
    return data


def _accumulator(known: Accumulator | None) -> JsonObject | None:
    return {key: value for key, value in asdict(known).items() if key != "wider"} if known else None


def _chain(chain: Chain) -> JsonObject:
    most = chain.most if chain.most < UNBOUNDED else None
    return asdict(chain) | {"opcodes": dict(chain.opcodes), "most": most, "k": chain.k or None}


def verified_data(row: Verified) -> JsonObject:
    done, found = row.done, row.smallest or row.done.counterexample
    return {
        "name": row.inst.name,
        "dots": done.dots,
        "mismatches": done.mismatches,
        "seed": done.seed,
        "kinds": done.kinds,
        **({"results": done.results, "contradicting": done.contradicting} if done.results else {}),
        **({"tile": asdict(done.tile)} if done.tile else {}),
        **({"events": asdict(done.events)} if done.events else {}),
        "seconds": round(row.seconds, 3),
        "dots_per_second": round(row.dots_a_second),
        "macs_per_second": round(row.dots_a_second * row.inst.k),
        **({"counterexample": _counterexample(found)} if found else {}),
    }


def compared_data(row: Comparison) -> JsonObject:
    return {
        "gpu": row.recorded.gpu,
        "operand": row.recorded.operand,
        "result": row.recorded.result,
        "name": row.reading.inst.name,
        "without_c": row.reading.without_c,
        "dots": row.dots,
        "mismatches": row.mismatches,
        "others": {str(reading): count for reading, count in row.others},
        **({"counterexample": _counterexample(row.first)} if row.first else {}),
    }


def _counterexample(found: Counterexample) -> JsonObject:
    return {"exchange": found.exchange.columns, "expected": found.expected}


def budget_json(account: ErrorReport) -> str:
    """Return the request, a row for each plan, kind of data and scale, and the recommendation in words."""
    return _document(
        "budget",
        1,
        accumulations=[each.name for each in account.accumulations],
        simulated=account.simulated,
        seed=account.request.seed,
        interrupted=account.interrupted,
        rows=[_budget_row(account, entry) for entry in account.entries],
        words=account.words,
        notes=list(budget_notes(account)),
    )


def budget_csv(account: ErrorReport) -> str:
    """Return the same rows, flat: both ends of an interval, each number of an operand; unknown values are empty."""
    return _csv([dict(_flat("", _budget_row(account, entry))) for entry in account.entries])


def _budget_row(account: ErrorReport, entry: ErrorRow) -> JsonObject:
    """Return a row. promote_every: null where sums are never promoted; numbers: null without a finite output that is not 0."""
    row, errors = asdict(entry), asdict(entry.errors)
    ends = {name: list((errors[name] or {"low": None, "high": None}).values()) for name in errors if name.endswith("interval")}
    del row["errors"]
    simulated = entry.accumulation in account.simulated
    return row | {"simulated": simulated, "seed": account.request.seed} | errors | ends


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree, named by their path."""
    inner = value if isinstance(value, dict) else {"low": value[0], "high": value[1]} if isinstance(value, list) else None
    if inner is None:
        yield name, value
        return
    for key, each in inner.items():
        yield from _flat(f"{name}_{key}" if name else key, each)


def tolerance_json(found: ToleranceReport) -> str:
    """Return the tolerance and the mistakes that tests catch. promote_every: null where sums are never promoted."""
    request = found.request
    tests, m, n = request.shape
    return _document(
        "tolerance",
        2,
        accumulation=request.accumulation.name,
        simulated=is_simulated(request.accumulation),
        k=request.k,
        tests=tests,
        m=m,
        n=n,
        promote_every=request.promote_every,
        split_k=request.split_k,
        out=request.model.result.name,
        data=str(request.data),
        scale=request.scale,
        seed=request.seed,
        false_alarms=request.rate,
        atol=found.recommended.atol,
        rtol=found.recommended.rtol,
        sums_over_sum=found.over_sum,
        any_operands_over_sum=found.over_any_sum,
        share_of_worst_case=found.tail.at(request.rate),
        emulated_elements=found.tail.elements,
        own=request.own._asdict() if request.own else None,
        passed=dict(found.passed),
        kill_table=[{"mistake": row.mistake, "caught": dict(row.by)} for row in found.kill_table],
        words=list(tolerance_words(found)),
    )

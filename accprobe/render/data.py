"""What is known, for other programs: comma-separated values and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from accprobe.audit.accumulators import Accumulator
from accprobe.audit.kernels import Kernel, Reading
from accprobe.budget.error_report import ErrorReport, ErrorRow, Speed, is_simulated
from accprobe.budget.errors import Interval
from accprobe.budget.tolerance import ToleranceReport
from accprobe.compare.diff import Diff, Pair, generation
from accprobe.compare.differences import Difference
from accprobe.compare.headline import headline
from accprobe.compare.products import ProductPair
from accprobe.operands.exchange import Counterexample
from accprobe.render.subjects.budget import budget_notes
from accprobe.render.subjects.comparison import verdict_counts, why_apart
from accprobe.render.subjects.kernel_names import demangled
from accprobe.render.subjects.tolerance import tolerance_words
from accprobe.render.subjects.verification import Verified
from accprobe.report.columns import records
from accprobe.report.report import Report, Tool
from accprobe.report.rows import Row
from accprobe.sass.promotion import UNBOUNDED, Chain
from accprobe.verify.vectors import Comparison

KERNELS_SCHEMA = 1
BUDGET_SCHEMA = 1
TOLERANCE_SCHEMA = 2


def comma_separated(report: Report) -> str:
    """A header and a line an instruction (RFC 4180, lines end in a line feed); nothing known is an empty cell."""
    every = list(records(report))
    text = io.StringIO()
    writer = csv.DictWriter(text, every[0].keys() if every else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(every)
    return text.getvalue()


def json_lines(report: Report) -> str:
    """One flat JSON object an instruction, all with the same keys; nothing known is null."""
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records(report))


def diff_json(diff: Diff) -> str:
    """One object: both sides, the headline, environment, counts by verdict, every pair and product with its differences."""
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
        "products": [_product_pair(diff, pair) for pair in diff.products],
    }
    return json.dumps(data, indent=1, ensure_ascii=False)


def _side(report: Report) -> dict[str, Any]:
    device = report.device
    return {
        "name": device.name,
        "kind": device.kind,
        "architecture": device.architecture,
        "generation": generation(report),
        "instructions": len(report.measured),
        "explains": [one for row in report.measured for one in _explained(row)],
    }


def _explained(row: Row | None) -> list[dict[str, Any]]:
    """Words of the real chip that a row's published model has."""
    return [asdict(one) for one in row.explains] if row else []


def _pair(pair: Pair) -> dict[str, Any]:
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


def _product_pair(diff: Diff, pair: ProductPair) -> dict[str, Any]:
    return {
        "verdict": pair.verdict,
        "word": pair.word,
        "product": pair.row.title,
        "marks": list(pair.marks),
        "why": why_apart(diff, pair),
        "fields": [asdict(each) for each in pair.differences],
    }


def _difference(pair: Pair, difference: Difference) -> dict[str, Any]:
    return {
        "field": difference.field,
        "verdict": difference.verdict,
        "a": _value(pair.a, difference.field, difference.a),
        "b": _value(pair.b, difference.field, difference.b),
        "means": difference.means,
    }


def _value(row: Row | None, field: str, text: str) -> dict[str, Any]:
    """The value as the report has it, and as tables show it."""
    finding = row.findings.get(field) if row else None
    if finding is None:
        return {"text": text}
    return {"value": finding.value, "bound": finding.bound, "left": list(finding.candidates), "text": text}


def kernels_json(kernels: Sequence[Kernel], reading: Reading) -> str:
    """Everything, one kernel a line."""
    head = {
        "schema": KERNELS_SCHEMA,
        "kind": "sass",
        "tool": Tool.current().model_dump(exclude_none=True),
        "functions": dict(reading.functions),
        "ptx": reading.ptx,
        "unread": reading.problems,
    }
    body = ",\n".join(f"  {json.dumps(_kernel(kernel))}" for kernel in kernels)
    return f'{json.dumps(head)[:-1]},\n "kernels": [\n{body}\n ]}}\n'


def _kernel(kernel: Kernel) -> dict[str, Any]:
    known = {opcode: _accumulator(a) for opcode, a in kernel.accumulators.items()}
    data: dict[str, Any] = {
        "file": kernel.file,
        "name": kernel.name,
        "demangled": demangled(kernel.name),
        "architecture": kernel.architecture,
        "sha256": kernel.sha256,
        "opcodes": dict(kernel.matrix),
        "conversions": [{"opcode": c.opcode, "count": c.count, "feeds": list(c.feeds)} for c in kernel.conversions],
        "emulated": None if kernel.emulated is None else {"format": kernel.emulated[0], "by": kernel.emulated[1]},
        "accumulators": known,
        "sums": [_chain(chain) for chain in kernel.chains],
    }
    if kernel.executed is not None:
        data |= {"launches": kernel.launches, "executed": dict(kernel.executed)}
    return data


def _accumulator(known: Accumulator | None) -> dict[str, Any] | None:
    if known is None:
        return None
    plain = {"bits": known.bits, "bound": known.bound, "format": known.format}
    return {**plain, "alignment_bits": known.alignment_bits, "source": known.source}


def _chain(chain: Chain) -> dict[str, Any]:
    return {
        "opcodes": dict(chain.opcodes),
        "verdict": chain.verdict,
        "least": chain.least,
        "most": chain.most if chain.most < UNBOUNDED else None,
        "k": chain.k or None,
        "by": chain.by,
        "reason": chain.reason,
    }


def verified_data(row: Verified) -> dict[str, object]:
    found = row.smallest or row.done.counterexample
    return {
        "name": row.inst.name,
        "dots": row.done.dots,
        "mismatches": row.done.mismatches,
        "seed": row.done.seed,
        "kinds": row.done.kinds,
        **({"results": row.done.results, "contradicting": row.done.contradicting} if row.done.results else {}),
        **({"tile": asdict(row.done.tile)} if row.done.tile else {}),
        **({"events": asdict(row.done.events)} if row.done.events else {}),
        "seconds": round(row.seconds, 3),
        "dots_per_second": round(row.dots_a_second),
        "macs_per_second": round(row.dots_a_second * row.inst.k),
        **({"counterexample": _counterexample(found)} if found else {}),
    }


def compared_data(row: Comparison) -> dict[str, object]:
    inst = row.reading.inst
    return {
        "gpu": row.recorded.gpu,
        "operand": row.recorded.operand,
        "result": row.recorded.result,
        "name": inst.name,
        "without_c": row.reading.without_c,
        "dots": row.dots,
        "mismatches": row.mismatches,
        "others": {str(reading): count for reading, count in row.others},
        **({"counterexample": _counterexample(row.first)} if row.first else {}),
    }


def _counterexample(found: Counterexample) -> dict[str, object]:
    return {"exchange": found.exchange.columns, "expected": found.expected}


def budget_json(account: ErrorReport) -> str:
    """One object: what was asked, a row a plan, kind of data and scale, and what it means in words."""
    data = {
        "schema": BUDGET_SCHEMA,
        "kind": "budget",
        "tool": Tool.current().model_dump(exclude_none=True),
        "accumulations": [each.name for each in account.accumulations],
        "simulated": account.simulated,
        "seed": account.request.seed,
        "interrupted": account.interrupted,
        "rows": [_budget_row(account, entry) for entry in account.entries],
        "words": account.words,
        "notes": list(budget_notes(account)),
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def budget_csv(account: ErrorReport) -> str:
    """The same rows, flat: of an interval both ends, of an operand each share; nothing known is an empty cell."""
    flat = [dict(_flat("", _budget_row(account, entry))) for entry in account.entries]
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(key for row in flat for key in row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _budget_row(account: ErrorReport, entry: ErrorRow) -> dict[str, Any]:
    """promote_every is null where sums are never promoted; numbers are null where no output is finite, or all are zero."""
    errors = entry.errors
    return {
        "accumulation": entry.accumulation,
        "simulated": entry.accumulation in account.simulated,
        "k": entry.k,
        "promote_every": entry.promote_every,
        "split_k": entry.split_k,
        "out": entry.out,
        "data": entry.data,
        "scale": entry.scale,
        "scales_applied": entry.is_scaled,
        "seed": account.request.seed,
        "outputs": errors.outputs,
        "overflowed": errors.overflowed,
        "seeds": errors.seeds,
        "relative_error": errors.relative_error,
        "relative_error_interval": _ends(errors.relative_error_interval),
        "relative_error_worst": errors.relative_error_worst,
        "bias": errors.bias,
        "bias_interval": _ends(errors.bias_interval),
        "max_error": errors.max_error,
        "max_error_over_sum": errors.max_error_over_sum,
        "bound_over_sum": errors.bound_over_sum,
        "sum_error": errors.error_of_sums,
        "rounding_error": errors.error_of_rounding,
        "operands_error": entry.quantisation_error,
        "operands": {"a": asdict(entry.a), "b": asdict(entry.b)},
        "speed": asdict(entry.speed) if entry.speed else dict.fromkeys(field.name for field in fields(Speed)),
    }


def _ends(interval: Interval | None) -> list[float | None]:
    return [interval.low, interval.high] if interval else [None, None]


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Of a tree its leaves, named by the way to each."""
    inner = value if isinstance(value, dict) else {"low": value[0], "high": value[1]} if isinstance(value, list) else None
    if inner is None:
        yield name, value
        return
    for key, each in inner.items():
        yield from _flat(f"{name}_{key}" if name else key, each)


def tolerance_json(found: ToleranceReport) -> str:
    """One object. promote_every is null where sums are never promoted, or as they were measured."""
    asked = found.request
    data = {
        "schema": TOLERANCE_SCHEMA,
        "kind": "tolerance",
        "tool": Tool.current().model_dump(exclude_none=True),
        "accumulation": asked.accumulation.name,
        "simulated": is_simulated(asked.accumulation),
        "k": asked.k,
        "tests": asked.shape[0],
        "m": asked.shape[1],
        "n": asked.shape[2],
        "promote_every": asked.promote_every,
        "split_k": asked.split_k,
        "out": asked.model.result.name,
        "data": str(asked.data),
        "scale": asked.scale,
        "seed": asked.seed,
        "false_alarms": asked.rate,
        "atol": found.recommended.atol,
        "rtol": found.recommended.rtol,
        "atol_worst_case": found.atol_worst,
        "sums_over_sum": found.over_sum,
        "worst_case_over_sum": found.worst_over_sum,
        "any_operands_over_sum": found.over_any_sum,
        "share_of_worst_case": found.tail.at(asked.rate),
        "emulated_elements": found.tail.elements,
        "own": asked.own._asdict() if asked.own else None,
        "passed": dict(found.passed),
        "kill_table": [
            {"mistake": row.mistake, "caught": dict(row.by), "noticed_with": list(row.noticed_with)} for row in found.kill_table
        ],
        "words": list(tolerance_words(found)),
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"

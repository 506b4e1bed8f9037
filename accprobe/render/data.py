"""JSON and comma-separated values for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pydantic import TypeAdapter

from accprobe.audit.kernels import Kernel, Reading
from accprobe.budget.error_report import ErrorReport, ErrorRow, is_simulated
from accprobe.budget.tolerance import ToleranceReport
from accprobe.compare.diff import Diff, generation, headline
from accprobe.compare.differences import Difference
from accprobe.compare.pairs import Pair
from accprobe.isa.instructions import Instruction
from accprobe.operands.protocol import Device
from accprobe.records.verification import Verification
from accprobe.render.document import text_of
from accprobe.render.subjects.budget import budget_notes, tolerance_words
from accprobe.render.subjects.comparison import verdict_counts
from accprobe.render.subjects.instruction import Verified
from accprobe.render.subjects.sass import demangled
from accprobe.report.columns import records
from accprobe.report.report import AnyClaim, Report, Tool
from accprobe.report.text import written
from accprobe.sass.promotion import UNBOUNDED, Chain

JsonObject = dict[str, Any]

_VERIFICATION = TypeAdapter(Verification)


def comma_separated(report: Report) -> str:
    """Return a header and a line for each claim (RFC 4180, lines end in a line feed); unknown values are empty."""
    rows, text = list(records(report)), io.StringIO()
    writer = csv.DictWriter(text, rows[0] if rows else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _document(kind: str, schema: int, **data: Any) -> str:
    return written({"schema": schema, "kind": kind, "tool": Tool.current().model_dump(exclude_none=True)} | data)


def diff_json(diff: Diff) -> str:
    """Return both sides, the headline, environment, counts by verdict, every pair with its differences."""
    data = {
        "headline": headline(diff),
        "differs": diff.differs,
        "a": _side(diff.a),
        "b": _side(diff.b),
        "environment": [asdict(change) for change in diff.environment],
        "counts": verdict_counts(diff.pairs),
        "unmeasured": diff.unmeasured,
        "pairs": [_pair(pair) for pair in diff.pairs],
    }
    return written(data)


def _side(report: Report) -> JsonObject:
    return {
        "name": report.device.name,
        "kind": report.device.kind,
        "architecture": report.device.architecture,
        "generation": generation(report),
        "claims": sum(claim.status != "skipped" for claim in report.claims),
        "explains": [asdict(one) for row in report.measured for one in row.explains],
    }


def _pair(pair: Pair) -> JsonObject:
    return {
        "kind": pair.row.kind,
        "verdict": pair.verdict,
        "word": pair.word,
        "by": pair.by,
        "role": str(pair.role) if pair.instructions else "",
        "a": pair.a and pair.a.title,
        "b": pair.b and pair.b.title,
        "marks": list(pair.marks),
        "note": pair.note,
        "fields": [_difference(pair, difference) for difference in pair.differences],
    }


def _difference(pair: Pair, difference: Difference) -> JsonObject:
    return asdict(difference) | {
        "a": _value(pair.a, difference, difference.a),
        "b": _value(pair.b, difference, difference.b),
    }


def _value(claim: AnyClaim | None, difference: Difference, text: str) -> JsonObject:
    """Return the value as the report has it, and as tables show it."""
    parts = claim.parts if claim else ()
    found = [part for part in parts if part.where == difference.where] or parts[:1]
    finding = found[0].findings.get(difference.field) if found else None
    if finding is None:
        return {"text": text}
    return {"value": finding.value, "bound": finding.bound, "candidates": list(finding.candidates), "text": text}


def kernels_json(kernels: Sequence[Kernel], reading: Reading) -> str:
    found = {"functions": dict(reading.functions), "unread": reading.problems}
    return _document("sass", 1, **found, kernels=[_kernel(kernel) for kernel in kernels])


def _kernel(kernel: Kernel) -> JsonObject:
    return {
        "file": kernel.file,
        "name": kernel.name,
        "demangled": demangled(kernel.name),
        "architecture": kernel.architecture,
        "sha256": kernel.sha256,
        "opcodes": dict(kernel.matrix),
        "conversions": [{"opcode": opcode, "count": count} for opcode, count in kernel.conversions],
        "emulated": None if kernel.emulated is None else {"format": kernel.emulated[0], "by": kernel.emulated[1]},
        "accumulators": {
            opcode: {key: value for key, value in asdict(known).items() if key not in ("sizes", "wider")} if known else None
            for opcode, known in kernel.accumulators.items()
        },
        "sums": [_chain(chain) for chain in kernel.chains],
    }


def _chain(chain: Chain) -> JsonObject:
    most = chain.most if chain.most < UNBOUNDED else None
    return asdict(chain) | {"opcodes": dict(chain.opcodes), "most": most, "k": chain.k or None}


def verification_json(models: str, device: Device, lacking: Sequence[Instruction], rows: Sequence[Verified]) -> str:
    """Return the outcome of each instruction as a report has it, its speed, and the models that the device cannot run."""
    data = {
        "models": models,
        "device": {"kind": device.kind, "name": device.name, "architecture": device.architecture},
        "lacking": [inst.name for inst in lacking],
        "verified": [_verified(row) for row in rows],
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _verified(row: Verified) -> JsonObject:
    done = replace(row.done, counterexample=row.smallest or row.done.counterexample)
    return {
        "name": row.inst.name,
        "seed": done.seed,
        **_VERIFICATION.dump_python(done, mode="json", exclude_defaults=True),
        "seconds": round(row.seconds, 3),
        "dots_per_second": round(row.dots_a_second),
        "macs_per_second": round(row.dots_a_second * row.inst.k),
    }


def budget_json(account: ErrorReport) -> str:
    """Return the accumulations, the seed, a row of errors as in the tables, and the recommendation and notes in words."""
    return _document(
        "budget",
        1,
        accumulations=[each.name for each in account.accumulations],
        simulated=account.simulated,
        seed=account.request.seed,
        interrupted=account.interrupted,
        rows=[_budget_row(account, entry) for entry in account.entries],
        words=account.words,
        notes=[text_of(words) for words in budget_notes(account)],
    )


def _budget_row(account: ErrorReport, entry: ErrorRow) -> JsonObject:
    """Return a row. promote_every: null where sums are never promoted; numbers: null without a finite output that is not 0."""
    row, errors = asdict(entry), asdict(entry.errors)
    ends = {name: errors[name] or (None, None) for name in errors if name.endswith("interval")}
    del row["errors"]
    simulated = entry.accumulation in account.simulated
    return row | {"simulated": simulated, "seed": account.request.seed} | errors | ends


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
        seed=request.seed,
        false_alarms=request.rate,
        atol=found.allclose.atol,
        rtol=found.allclose.rtol,
        sums_over_sum=found.over_sum,
        any_operands_over_sum=found.over_any_sum,
        share_of_worst_case=found.tail.at(request.rate),
        emulated_elements=found.tail.elements,
        own=request.own._asdict() if request.own else None,
        passed=dict(found.passed),
        kill_table=[{"mistake": row.mistake, "caught": dict(row.by)} for row in found.kill_table],
        words=list(tolerance_words(found)),
    )

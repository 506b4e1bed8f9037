"""Blocks of the pages from the results of benchmarks (benchmarks/results), except accuracy."""

from __future__ import annotations

import json
from typing import Any

from benchmark import RESULTS, recorded
from block_forms import COLUMNS, fenced, filled, tabled

from accprobe.render.document import Paragraph
from accprobe.render.subjects.trace import origin_table
from accprobe.render.terminal import screen_lines
from accprobe.trace.compare import Cause, DifferenceOrigin
from accprobe.trace.records import TensorValue, TracedOperation

_MISTAKES = {"mispaired", "around", "truncated_step"}
"""Parameters of planted products that must not be confirmed."""

_VERDICTS = {
    "right": "confirmed as drawn",
    "not confirmed": "not confirmed, with the reason",
    "too late": "not finished in 120 s on one core",
    "crashed": "crashed",
    "wrong": "confirmed, but not as drawn",
    "called unstable": "called unstable, but repeatable",
}
"""The verdicts on planted products and reductions, in words."""


def speed() -> str:
    """Return every recorded benchmark result that is not a ratio to another program, by host."""
    found: dict[tuple[str, float], dict[str, str]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        place = data["host"].get("device") or f"{data['host']['cpu_cores']} CPU cores"
        for result in (each for each in data["results"] if "ratio" not in each):
            command = f"`{result['command'].replace(' --device cuda:0', '')}`" + (
                f", {result['state']}" if result["state"] else ""
            )
            found.setdefault((command, result["limit"]), {})[place] = f"{result['seconds']:.2f} s"
    places = list(dict.fromkeys(place for taken in found.values() for place in taken))
    rows = ((command, *(taken.get(place, "") for place in places), f"{limit:g} s") for (command, limit), taken in found.items())
    return tabled(("command", *places, "limit"), rows)


def drawn_plans() -> str:
    """Return the verdicts on planted products drawn by seed, and on those of them with a mistake."""
    lines, command = _drawn("10000-10199")
    wrong = [line for line in lines if line["parameters"].keys() & _MISTAKES]
    text = (
        f"`{command}` draws {len(lines)} products by seed and computes them with an evaluator that shares no code with"
        f" accprobe's. {len(wrong)} of them have a mistake that no plan describes. They read operands at the wrong place,"
        " differ in the first calls, depend on other rows, or truncate one step."
    )
    return f"{filled(text)}\n{_verdicts(products=lines, with_a_mistake=wrong)}"


def drawn_reductions() -> str:
    """Return the verdicts on planted reductions drawn by seed."""
    lines, command = _drawn("20000-20199")
    text = (
        f"`{command}` draws {len(lines)} reductions by seed and computes them in numpy alone. They add the elements"
        " from the first or the last, in pairs, butterflies, lanes, blocks or cascades, or by Kahan's or"
        " Neumaier's sum."
        " Elements and partial sums have four types each. Some reductions are means, use atomics, drop or double an element,"
        " or add one row in another order."
    )
    return f"{filled(text)}\n{_verdicts(reductions=lines)}"


def _drawn(seeds: str) -> tuple[list[dict[str, Any]], str]:
    """Return the recorded judgements, and the command."""
    text = (RESULTS / "products" / f"{seeds}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()], f"python benchmarks/products.py --seeds {seeds}"


def _verdicts(**columns: list[dict[str, Any]]) -> str:
    """Return a table of the numbers of each verdict, and of judgements with a false exact finding. columns: judgements."""
    every = columns.values()
    rows = [(words, *(sum(x["verdict"] == name for x in some) for some in every)) for name, words in _VERDICTS.items()]
    false = (sum(bool(x["false_exact"]) for x in some) for some in every)
    return tabled(
        ("verdict", *(name.replace("_", " ") for name in columns)), [*rows, ("with an `exact` finding that is false", *false)]
    )


def first_difference() -> str:
    """Return what `accprobe trace run` prints for a Llama of batch 1 and 8 on an H200, from the recorded findings."""
    (case,) = (x for x in recorded("trace/h200.json")["cases"] if x["name"] == "llama: batch 1 against 8")
    blocks = [Paragraph(case["first"]), Paragraph(case["counts"]), origin_table([_recorded_origin(x) for x in case["origins"]])]
    return fenced(str(line).rstrip() for line in screen_lines(blocks, COLUMNS))


def _recorded_origin(origin: dict[str, Any]) -> DifferenceOrigin:
    cause = Cause(**{**origin["cause"], "fixes": tuple(origin["cause"]["fixes"])}, fixes_tried=True)
    operands = [tuple(TensorValue(0, "", tuple(shape), (), "bfloat16") for shape in side) for side in origin["shapes"]]
    left, right = (TracedOperation(0, origin["operation"], origin["module"], "forward", values, ()) for values in operands)
    results, counts = (operands[0][0], operands[1][0]), {"differing": origin["differing"], "of": origin["of"]}
    return DifferenceOrigin((left,), (right,), results, cause=cause, **counts)


def traces() -> str:
    """Return comparisons of two runs of transformers models on an H200, and the time that recording takes."""
    data = recorded("trace/h200.json")
    table, overheads = [], []
    for case in data["cases"]:
        if "origins" in case:
            first = next((f"`{x['module']}`: {x['cause']['text']}" for x in case["origins"]), "no difference")
            compared = case["counts"].partition(": ")[2]
            verified = f"{case['verified']} of {len(case['origins'])}" if case["origins"] else ""
            table.append((case["name"], compared, first, verified, f"{case['seconds']:.0f} s"))
        elif "eager_ms" in case:
            kinds = {"recorded": "", "written": " with the folder written", "empty_mode": " under torch's empty dispatch mode"}
            times = [
                f"{case[f'{kind}_ms']:.1f} ms ({case[f'{kind}_ms'] / case['eager_ms']:.1f} times){words}"
                for kind, words in kinds.items()
                if f"{kind}_ms" in case
            ]
            before = f"{case['eager_ms']:.1f} ms of {case['operations']} operations on {case['tokens']:,} tokens"
            overheads.append(f"{before} become {', '.join(times)}")
    text = filled(f"Recording hashes every operand and result on the GPU: {'; '.join(overheads)}.")
    return tabled(("runs", "operations", "first cause", "verified", "took"), table) + f"\n{text}"

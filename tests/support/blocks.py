"""Blocks of the pages: from recorded reports and published models, results of benchmarks, and the source of the package."""

from __future__ import annotations

import ast
import json
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import hardware_vectors
from benchmark import RESULTS, recorded
from block_forms import COLUMNS, ROOT, fenced, filled, printed, tabled
from compiled import triton_dot

from accprobe.cli import main
from accprobe.isa.architectures import PROCESSORS
from accprobe.isa.instructions import parse
from accprobe.model.published import chip
from accprobe.records.products import ProductRow
from accprobe.records.rows import Row
from accprobe.render.document import Grid, Paragraph, on_one_line, text_of
from accprobe.render.subjects import sweeps
from accprobe.render.subjects.trace import origin_table
from accprobe.render.terminal import screen_lines
from accprobe.report.published import measured_counts
from accprobe.report.report import Report
from accprobe.report.words import effective_bits, ran_as
from accprobe.report.words import found as finding
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


def found() -> str:
    """Return one line for all floating-point instructions of one arithmetic, of any shape."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in Report.load("h200").measured:
        inst = row.instruction
        if inst.is_integer:
            continue
        family = f"`{inst.family}`{' `.satfinite`' if inst.satfinite else ''}"
        shown = (finding(row, name) for name in ("alignment_bits", "alignment_rounding", "result_rounding"))
        addend = "" if inst.is_integer else finding(row, "addend")
        key = (family, inst.d.name, ran_as(row), effective_bits(row), *shown, addend, row.status)
        groups.setdefault(key, []).append(row)
    header = ("instruction", "A, B", "D", "rows", "ran as", "effective bits", "F", "bits below F", "result")
    table = []
    for (family, d, opcodes, effective, f, below, rounding, addend, status), rows in groups.items():
        operands = ", ".join(dict.fromkeys(fmt.name for row in rows for fmt in (row.instruction.a, row.instruction.b)))
        products = ", ".join(dict.fromkeys(map(_products, rows)))
        flag = "" if status == "confirmed" else f" ({status})"
        table.append((f"{family}{flag}", operands, d, len(rows), opcodes, effective, f, below, rounding, products, addend))
    return tabled((*header, "products per fused sum", "C added in"), table)


def _products(row: Row) -> str:
    """Return products per fused sum, in terms of the instruction's K where they grow with it."""
    products, k = finding(row, "products_per_sum"), row.instruction.k
    return {str(k): "K", str(k // 2): "K/2"}.get(products, products) if products != "1" else products


def explained() -> str:
    """Return the recorded results that published models explain, and their instructions, by GPU."""
    sets: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in hardware_vectors.recorded().values():
        sets.setdefault((one["gpu"], one["source"]), []).append(one)
    table = []
    for (gpu, source), every in sets.items():
        families = Counter(parse(one["name"]).family.name for one in every)
        which = ", ".join(f"{count} of `{family}`" for family, count in families.items())
        words, wrong = (f"{sum(one[key] for one in every):,}" for key in ("dots", "mismatches"))
        table.append((gpu, f"{chip(gpu).title}, {chip(gpu).architecture}", which, words, wrong, source))
    return tabled(("recorded on", "models of", "instructions", "results", "mismatches", "source"), table)


def sweep() -> str:
    """Return the sweep of e4m3 at three block-Ks and of f16 at one, without the columns of detail."""
    report = Report.load("h200")
    chosen = [
        each
        for each in report.sweeps
        if each.promote_every is None
        and each.dtype in ("e4m3", "f16")
        and each.num_warps < 8
        and each.block_k in ((32, 128, 512) if each.dtype == "e4m3" else (128,))
    ]
    (grid,) = (block for block in sweeps.sweep_tables(chosen) if isinstance(block, Grid))
    kept = [i for i, column in enumerate(grid.columns) if column.need != "detail"]
    headers = [on_one_line(grid.columns[i].header) for i in kept]
    return tabled(headers, ([text_of(row[i]) for i in kept] for row in grid.rows))


def plans(source: str) -> str:
    """Return the number of confirmed rows of a report, the others with reasons, and a line for all shown products of one plan.

    source: the report and, after "; ", a pattern of the titles to show.
    """
    report, _, shown = source.partition("; ")
    rows = Report.load(report).products
    of_shape: dict[tuple[str, ...], list[ProductRow]] = {}
    for row in (row for row in rows if re.fullmatch(shown, row.title)):
        order = row.findings["order"].value if "order" in row.findings else "not found"
        order = "not observable" if order == "any" else order
        order = re.sub(r": chain of \[acc 1\](,|$)", r"\1", str(order)) if row.is_reduction else order
        scaled = f" scale={row.scale}" if row.scale else ""
        of_shape.setdefault((f"`{row.name}{scaled}`", str(order), row.shape), []).append(row)
    of_plan: dict[tuple[str, ...], list[str]] = {}
    for (name, order, shape), some in of_shape.items():
        operands = dict.fromkeys(f"{row.a if row.a == row.b else f'{row.a} x {row.b}'} -> {row.out}" for row in some)
        of_plan.setdefault((name, ", ".join(operands), _options(some), order), []).append(shape)
    table = tabled(
        [
            "callable",
            "rows x K" if rows[0].is_reduction else "M x N x K",
            "operands and result",
            "options",
            "accumulation order",
        ],
        [[name, ", ".join(shapes), operands, options, order] for (name, operands, options, order), shapes in of_plan.items()],
    )
    proved = [row.verification.compared for row in rows if row.status == "confirmed" and row.verification]
    text = (
        f"{len(proved)} of the {len(rows)} rows are confirmed: {sum(proved):,} fresh outputs were predicted,"
        f" ≥ {min(proved):,} of each row: 0 mismatches. {'The table shows some of them.' if shown else ''}"
    ).strip()
    others: dict[str, list[str]] = {}
    for row in (row for row in rows if row.status != "confirmed"):
        dim = f" dim={row.options['dim']}" if row.is_reduction and "dim" in row.options else ""
        others.setdefault(row.reason, []).append(f"{row.name.removeprefix('torch:')} {row.shape} {row.a} -> {row.out}{dim}")
    lines = "".join(filled(f"- {', '.join(dict.fromkeys(names))}: {reason}") for reason, names in others.items())
    parts = [filled(text), f"Not confirmed:\n\n{lines}" if lines else "", table if shown else ""]
    return "\n".join(filter(None, parts))


def _options(rows: Sequence[ProductRow]) -> str:
    """Return the options of the rows: "`backend=flash, cudnn`"."""
    values: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, value in row.options.items():
            if name != "head_dim":
                values.setdefault(name, {})[str(value)] = None
    return ", ".join(f"`{name}={', '.join(several)}`" for name, several in values.items())


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
            above = " (above)" if result["seconds"] > result["limit"] else ""
            found.setdefault((command, result["limit"]), {})[place] = f"{result['seconds']:.2f} s{above}"
    places = list(dict.fromkeys(place for taken in found.values() for place in taken))
    rows = ((command, *(taken.get(place, "") for place in places), f"{limit:g} s") for (command, limit), taken in found.items())
    return tabled(("command", *places, "limit"), rows)


def verdicts(seeds: str) -> str:
    """Return the verdicts on planted products or reductions drawn by these seeds, and on those with a mistake."""
    text = (RESULTS / "products" / f"{seeds}.jsonl").read_text(encoding="utf-8")
    columns = {"all": [json.loads(line) for line in text.splitlines()]}
    if wrong := [line for line in columns["all"] if line["parameters"].keys() & _MISTAKES]:
        columns["with a mistake"] = wrong
    rows = [
        (words, *(sum(x["verdict"] == name for x in some) for some in columns.values())) for name, words in _VERDICTS.items()
    ]
    rows.append(("with an `exact` finding that is false", *(sum(bool(x["false_exact"]) for x in y) for y in columns.values())))
    return tabled(("verdict", *(f"{name}: {len(some)}" for name, some in columns.items())), rows)


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
            overheads.append(f"{before} become {', '.join(times)}.")
    text = filled(f"Recording hashes every operand and result on the GPU. {' '.join(overheads)}")
    return tabled(("runs", "operations", "first cause", "verified", "took"), table) + f"\n{text}"


def triton_cache() -> str:
    """Return the output for a cache of Triton's fp8 GEMMs: promoted, not promoted, and on two warps."""
    kernels = {"promoted": (4, 128), "two_warps": (2, None), "unpromoted": (4, None)}
    with TemporaryDirectory() as empty, chdir(empty):
        for name, (warps, imprecise) in kernels.items():
            folder = Path("cache", name)
            folder.mkdir(parents=True)
            (folder / "gemm.cubin").write_bytes(triton_dot(90, warps, imprecise, loop=True)["cubin"])
        lines = printed("sass", "cache", "--jobs", "1")
    return fenced(lines)


def never_ran() -> str:
    """Return the generations of GPUs without a measured instruction, in a sentence."""
    counts = [one for one in measured_counts() if one.target not in PROCESSORS]
    ran = {one.generation for one in counts if one.measured}
    *others, last = dict.fromkeys(one.generation for one in counts if one.generation not in ran)
    return f"accprobe has never run on {', '.join(others)} or {last} GPUs.\n"


def rooms() -> str:
    """Return the folders of the package by layer, from the contract of import-linter."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["type"] == "layers" and "containers" not in c)
    floors = [[name.strip().removeprefix("accprobe.") for name in layer.split("|")] for layer in layers]
    left, right = max(len(name) for floor in floors for name in floor), COLUMNS - 20
    lines = []
    for floor in floors:
        lines.append("")
        for name in floor:
            texts = textwrap.wrap(_holds(name), right)
            lines += [f"{word:<{left}}  {text}" for word, text in zip([name, *[""] * len(texts)], texts, strict=False)]
    return fenced(lines[1:])


def _holds(name: str) -> str:
    """Return the first sentence of the docstring of a folder, or of a module at the top."""
    path = ROOT / "accprobe" / name
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(re.split(r"\.\s", text + " ")[0].split())


def commands() -> str:
    """Return the help text of every command."""
    return "".join(f"\n## {name}\n\n{fenced(printed(*name.split(), '--help'))}" for name in _with_groups(main.commands))


def _with_groups(commands: Mapping[str, click.Command], above: str = "") -> Iterator[str]:
    for name, command in commands.items():
        yield f"{above}{name}"
        yield from _with_groups(getattr(command, "commands", {}), f"{above}{name} ")

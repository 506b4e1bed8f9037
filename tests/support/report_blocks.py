"""Blocks of the pages from the recorded reports and the published models."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import hardware_vectors
from block_forms import filled, tabled

from accprobe.isa.instructions import parse
from accprobe.model.published import chip
from accprobe.records.products import ProductRow
from accprobe.records.rows import Row
from accprobe.render.document import Grid, on_one_line, text_of
from accprobe.render.subjects import sweeps
from accprobe.report.report import Report
from accprobe.report.words import effective_bits, ran_as
from accprobe.report.words import found as finding


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
    header = (
        "instruction",
        "A, B",
        "D",
        "rows",
        "ran as",
        "effective bits",
        "F",
        "bits below F",
        "result",
        "products per fused sum",
        "C added in",
    )
    table = []
    for (family, d, opcodes, effective, f, below, rounding, addend, status), rows in groups.items():
        operands = ", ".join(dict.fromkeys(fmt.name for row in rows for fmt in (row.instruction.a, row.instruction.b)))
        products = ", ".join(dict.fromkeys(map(_products, rows)))
        flag = "" if status == "confirmed" else f" ({status})"
        table.append((f"{family}{flag}", operands, d, len(rows), opcodes, effective, f, below, rounding, products, addend))
    return tabled(header, table)


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


def plans() -> str:
    return _plans("products-h200", ".* 256x256x4096 .*")


def more_plans() -> str:
    return _plans("more-products-h200").rpartition("\n\n")[0] + "\n"


def sparse_plans() -> str:
    return _plans("sparse-products-h200").rpartition("\n\n")[0] + "\n"


def reduction_plans() -> str:
    """Return the orders of one shape of each composite, and of sums of 4096 and 5000 elements."""
    shown = r"torch:(?!sum|mean).* 64x4096 f32.*|torch:.*_add.*|torch:sum (64|8|1)x4096 f32.*=last|torch:sum 64x5000 f32.*"
    shown = f"{shown}|torch.distributed:.*"
    return _plans("reductions-h200", shown, "rows x K", "The table shows some of them.")


def _plans(report: str, shown: str = ".*", shape_header: str = "M x N x K", remark: str = "") -> str:
    """Return the number of confirmed rows, and a line for all recorded products with one plan. shown: pattern of titles."""
    rows = Report.load(report).products
    of_shape: dict[tuple[str, ...], list[ProductRow]] = {}
    for row in (row for row in rows if re.fullmatch(shown, row.title)):
        order = row.findings["order"].value if "order" in row.findings else "not found"
        order = "not observable" if order == "any" else order
        order = re.sub(r": chain of \[acc 1\](,|$)", r"\1", str(order)) if row.is_reduction else order
        scaled = f" scale={row.scale}" if row.scale else ""
        of_shape.setdefault((f"`{row.name}{scaled}`", _compact(str(order)), row.shape), []).append(row)
    of_plan: dict[tuple[str, ...], list[str]] = {}
    for (name, order, shape), some in of_shape.items():
        operands = dict.fromkeys(f"{row.a if row.a == row.b else f'{row.a} x {row.b}'} -> {row.out}" for row in some)
        of_plan.setdefault((name, ", ".join(operands), _options(some), order), []).append(shape)
    table = tabled(
        ["callable", shape_header, "operands and result", "options", "accumulation order"],
        [[name, ", ".join(shapes), operands, options, order] for (name, operands, options, order), shapes in of_plan.items()],
    )
    proved = [row.verification.compared for row in rows if row.status == "confirmed" and row.verification]
    text = (
        f"{len(proved)} of the {len(rows)} rows are confirmed: {sum(proved):,} fresh outputs were predicted,"
        f" ≥ {min(proved):,} of each row: 0 mismatches. {remark}"
    ).strip()
    others: dict[str, list[str]] = {}
    for row in (row for row in rows if row.status != "confirmed"):
        dim = f" dim={row.options['dim']}" if row.is_reduction and "dim" in row.options else ""
        others.setdefault(row.reason, []).append(f"{row.name.removeprefix('torch:')} {row.shape} {row.a} -> {row.out}{dim}")
    lines = "".join(filled(f"- {', '.join(dict.fromkeys(names))}: {reason}") for reason, names in others.items())
    refused = f"Not confirmed:\n\n{lines}\n" if lines else ""
    return f"{filled(text)}\n{refused}{table}"


def _options(rows: Sequence[ProductRow]) -> str:
    """Return the options of the rows: "`backend=flash, cudnn`"."""
    values: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, value in row.options.items():
            if name != "head_dim":
                values.setdefault(name, {})[str(value)] = None
    return ", ".join(f"`{name}={', '.join(several)}`" for name, several in values.items())


def _compact(order: str) -> str:
    """Return "15 slices of 72, the last 23: …" for a list of all sizes."""
    found = re.fullmatch(r"(\d+ slices of )([\d, ]+)(: .*)", order)
    if found is None:
        return order
    sizes = found[2].split(", ")
    return f"{found[1]}{sizes[0]}, the last {sizes[-1]}{found[3]}" if len(sizes) > 2 else order

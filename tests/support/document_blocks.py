"""The parts of README.md and docs/ that other files know better: `python tests/support/document_blocks.py` writes them again.

Each stands between `<!-- NAME: from SOURCE -->` and `<!-- end -->`; `tests/docs` checks that writing changes nothing.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import explained_words
from click.testing import CliRunner
from compiled import triton_dot

from accprobe.build.probes import why_no_probe
from accprobe.cli import main
from accprobe.isa.architectures import ARCHITECTURES, get
from accprobe.isa.instructions import catalog, parse
from accprobe.model.published import chip
from accprobe.render.content import sweeps
from accprobe.render.content.cells import cells
from accprobe.render.content.phrases import on_one_line
from accprobe.report.recorded import recorded
from accprobe.report.report import Report
from accprobe.report.rows import Row

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
RESULTS = ROOT / "benchmarks" / "results"
COLUMNS = 120
EVERY_MODEL = 1e12
"""Multiply-accumulates a second that the GPU evaluator is to reach whatever the model."""

ONE = "wgmma.m64n8k32.f32.e4m3.e4m3"
EXCERPT = (
    r"mma\.sync\.m16n8k\S*32\S*\.f32\.\{?e4m3",
    r"wgmma\.\S*k16\.f32\.f16",
    r"wgmma\.\S*k32\.f32\.\{?e4m3",
)
"""The lines of the table that a page shows."""

BLOCK = re.compile(r"(<!-- (\w+): from [^\n]+ -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown(*arguments: str) -> list[str]:
    """What `accprobe show` prints."""
    return _printed("show", *arguments)


def _printed(*arguments: str, status: int = 0) -> list[str]:
    """What a command prints, without spaces at line ends."""
    result = CliRunner(env={"COLUMNS": str(COLUMNS)}).invoke(main, arguments)
    assert result.exit_code == status, result.stderr
    return [line.rstrip() for line in result.stdout.splitlines()]


def excerpt() -> str:
    """The headline of the H200, and some lines of its table."""
    printed = shown("h200")
    rule = next(i for i, line in enumerate(printed) if line.startswith("──"))
    chosen = printed[: rule + 1]
    rows: list[list[str]] = []
    for line in printed[rule + 1 : next(i for i, line in enumerate(printed) if line.startswith("Left out"))]:
        if line.startswith("  ") and rows:
            rows[-1].append(line)
        else:
            rows.append([line])
    for row in rows:
        name = "".join(line.split()[0] for line in row if line.strip()) + " "
        if any(re.match(pattern, name) for pattern in EXCERPT):
            chosen += row
    return _code([*chosen, "…"])


def detail() -> str:
    """Of one instruction in full: what ran, the tree, and two of its features with what proves them."""
    printed = shown("h200", ONE)
    chosen = [
        printed[0],
        *_section(printed, "ran as"),
        *_section(printed, "summation tree"),
        *_section(printed, "verification"),
    ]
    evidence = _section(printed, "evidence")
    chosen += evidence[:2]
    for feature in ("alignment_bits", "result_bits"):
        start = next(i for i, line in enumerate(evidence) if line.startswith(f"  {feature}"))
        chosen += evidence[start : start + 3]
    return _code([*chosen, "    …"])


def drift() -> str:
    """How far sums of one sign are from exact ones, by promotion."""
    data = json.loads((RESULTS / "drift" / "h200.json").read_text(encoding="utf-8"))
    rows = [
        (f"every {each['promote_every']} products" if each["promote_every"] else "never", f"{-100 * each['mean']:.2g} %")
        for each in data["relative_error"]
    ]
    told = (
        f"`{data['command']}`: {data['outputs']} sums of K = {data['k']} products of e4m3 values between 0 and 1, computed by"
        f" the H200's measured model (`{data['like']}`), held against the exact sums:"
    )
    return f"{textwrap.fill(told, 128, break_on_hyphens=False)}\n\n{_table(('promoted', 'low by, on average'), rows)}"


def drift_in_short() -> str:
    """Of the same only what promotion changes."""
    data = json.loads((RESULTS / "drift" / "h200.json").read_text(encoding="utf-8"))
    low = {each["promote_every"]: f"{-100 * each['mean']:.2g} %" for each in data["relative_error"]}
    often = min(filter(None, low))
    told = (
        f"Sums of K = {data['k']} products of e4m3 values between 0 and 1 end {low[None]} low, promoted every {often} products"
        f" {low[often]}, by the model that was measured on an H200 ([the numbers between](docs/numbers.md))."
    )
    return textwrap.fill(told, 128, break_on_hyphens=False) + "\n"


def rooms() -> str:
    """The rooms of the package as floors of a house, with their modules, from the layers that import-linter holds."""
    contracts = _project()["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["type"] == "layers" and "containers" not in c)
    floors = [[name.strip().removeprefix("accprobe.") for name in layer.split("|")] for layer in layers]
    left, right = max(len(name) for floor in floors for name in floor), COLUMNS - 20
    lines = []
    for floor in floors:
        lines.append("─" * (left + right + 2))
        for name in floor:
            holds = [
                *textwrap.wrap(_holds(name), right),
                *textwrap.wrap(", ".join(_modules(name)), right, break_on_hyphens=False),
            ]
            lines += [f"{word:<{left}}  {text}" for word, text in zip([name, *[""] * len(holds)], holds, strict=False)]
    return _code([*lines, lines[0]])


def _holds(name: str) -> str:
    """The first sentence of a room's docstring, or of a module's that stands alone."""
    path = ROOT / "accprobe" / name
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    told = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(re.split(r"\.\s", told + " ")[0].split())


def _modules(name: str) -> list[str]:
    """What a room has inside, folders with a stroke."""
    inside = sorted((ROOT / "accprobe" / name).glob("[a-z]*"))
    return [path.stem + "/" * path.is_dir() for path in inside if path.suffix == ".py" or (path / "__init__.py").exists()]


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def commands() -> str:
    """Of every command what it does, which extras it needs, and its exit status, as its help has them."""
    rows = []
    for name, command in main.commands.items():
        told = paragraphs(command)
        rows.append((f"[`{name}`](#{name})", told[0], *(told_of(told, label) for label in ("Needs", "Exit status"))))
    return _table(("command", "does", "needs", "exit status"), rows)


def paragraphs(command: click.Command) -> list[str]:
    """The paragraphs of a command's help, each on one line."""
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", command.help or "")]


def told_of(told: Sequence[str], label: str) -> str:
    """The paragraph that begins with a label."""
    return next(text.removeprefix(f"{label}: ").removesuffix(".") for text in told if text.startswith(f"{label}: "))


def measured() -> str:
    """Where the table of findings comes from, and what says which opcodes ran."""
    rows = Report.load("h200").measured
    dots = min(row.verification.random for row in rows if row.verification)
    counted = all(row.opcode_source == "ncu" for row in rows)
    return (
        "Every instruction that has a probe, shapes taken together; the numbers are those of `reports/h200.json`, which\n"
        f"`accprobe run --device cuda:0{' --ncu' * counted} --dots {dots} -o reports/h200.json` wrote."
        + (
            f" The profiler counted what each of\nthe {len(rows)} executed, and it is what the disassembly has."
            if counted
            else ""
        )
        + "\n"
    )


def triton_cache() -> str:
    """What is said of a cache with an fp8 GEMM of Triton's, promoted and not, and on two warps."""
    kernels = {"promoted": (4, 128), "two_warps": (2, None), "unpromoted": (4, None)}
    with TemporaryDirectory() as empty, chdir(empty):
        for name, (warps, imprecise) in kernels.items():
            folder = Path("cache", name)
            folder.mkdir(parents=True)
            (folder / "gemm.cubin").write_bytes(triton_dot(90, warps, imprecise, loop=True)["cubin"])
        printed = _printed("sass", "cache")
    return _code(printed)


def profiled() -> str:
    """What a program of PyTorch's executed."""
    shown = (ROOT / "tests" / "golden" / "sass-ncu-160.txt").read_text(encoding="utf-8").splitlines()
    return _code([f"$ accprobe sass --ncu -- {shown[0]}", *shown])


def library() -> str:
    """A library of many kernels: what is in it, time and memory."""
    data = json.loads((RESULTS / "sass.json").read_text(encoding="utf-8"))
    (told,) = data["results"]
    return (
        f"`{told['command']}`, {told['state']}, finds {told['kernels']:,} kernels with matrix opcodes"
        f" among {told['functions']:,} functions\nin {told['seconds']:.0f} s on {data['host']['cpu_cores']} CPU cores,"
        f" in {told['peak_mib']} MiB of memory for all processes together.\n"
    )


def found() -> str:
    """One line for all instructions that have one arithmetic, whatever their shape."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in Report.load("h200").measured:
        inst, told = row.instruction, cells(row)
        family = f"`{inst.family}`{' `.satfinite`' if inst.satfinite else ''}"
        key = (family, inst.d.name, told.ran_as, told.effective_bits, told.alignment_bits, told.alignment_rounding)
        addend = "" if inst.is_integer else told.addend
        groups.setdefault((*key, told.result_rounding, addend, told.status), []).append(row)
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
        "products a sum",
        "C",
    )
    table = []
    for (family, d, ran_as, effective, f, cut, rounding, addend, status), rows in groups.items():
        operands = ", ".join(dict.fromkeys(fmt.name for row in rows for fmt in (row.instruction.a, row.instruction.b)))
        products = ", ".join(dict.fromkeys(map(_products, rows)))
        flag = "" if status == "confirmed" else f" ({status})"
        table.append((f"{family}{flag}", operands, d, len(rows), ran_as, effective, f, cut, rounding, products, addend))
    return _table(header, table)


def _products(row: Row) -> str:
    """Products a sum, in terms of the instruction's K where they grow with it."""
    told, k = cells(row).products_per_sum, row.instruction.k
    return {str(k): "K", str(k // 2): "K/2"}.get(told, told) if told != "1" else told


def speed() -> str:
    """Every benchmark result that is recorded."""
    table = []
    for path in sorted(RESULTS.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        place = data["host"].get("device") or f"{data['host']['cpu_cores']} CPU cores"
        for result in data["results"]:
            command = f"`{result['command']}`" + (f", {result['state']}" if result["state"] else "")
            table.append((command, place, f"{result['seconds']:.2f} s", f"{result['limit']:g} s"))
    return _table(("command", "on", "took", "limit"), table)


def evaluators() -> str:
    """Rates of the evaluators and of their peers, on the same dot products in one run."""
    data = json.loads((RESULTS / "evaluators" / "cpu.json").read_text(encoding="utf-8"))
    table = [
        (f"`{r['instruction']}`", r["with"], f"{r['macs_per_second']:.2g}", f"{r['ratio']:g}", r["differ"])
        for r in data["results"]
    ]
    return _table(("instruction", "evaluated with", "multiply-accumulates/s", "times numpy", "dots that differ"), table)


def evaluators_on_gpus() -> str:
    """Of each model, in chains and alone, what an H200 reached; its ceilings, mmaemu, and what stayed below the limit."""
    data = _on_gpu()
    table, below = [], []
    for chain, dots in zip(data["chains"], data["dots"], strict=True):
        changed = "".join(f", {field}: {value}" for field, value in (chain["changed"] or {}).items())
        name = f"`{chain['instruction']}`{changed}"
        rates = [f"{way['macs_per_second']:.3g}, {way['sums_in']}" for way in (chain, dots)]
        table.append((name, *rates, chain["differ"] + dots["differ"]))
        for way, how in ((chain, "in chains"), (dots, "alone")):
            below += [f"{name} {how}"] if way["macs_per_second"] < EVERY_MODEL else []
    ceilings, peer = data["ceilings"], data["chains"][0]["mmaemu"]
    told = (
        f"The GPU's own ceilings in the same run: {ceilings['ffma']:.3g} float32 and {ceilings['dfma']:.3g} float64 fused"
        f" multiply-adds, {ceilings['integer']:.3g} integer instructions a second. "
    )
    if "missing" not in peer:
        told += (
            f"mmaemu on the operands of the first chain: {peer['macs_per_second']:.3g},"
            f" {peer['differ']} differ; accprobe is {data['chains'][0]['ratio_to_mmaemu']:.2f} times as fast. "
        )
    told = textwrap.fill(f"{told}Below {EVERY_MODEL:.0e}: {', '.join(below) or 'none'}.", 128, break_on_hyphens=False) + "\n"
    header = ("model", "in chains", "alone", "that differ")
    return f"{_table(header, table)}\n{told}"


def verified_on_gpus() -> str:
    """Dot products of an H200 held against its models in the benchmark."""
    table = [
        (f"`{r['instruction']}`", f"{r['dots']:,}", r["mismatches"], f"{r['dots_per_second']:.2g}")
        for r in _on_gpu()["verified"]
    ]
    return _table(("instruction", "dot products", "that differ", "a second"), table)


def verified_rows() -> str:
    """What `accprobe verify` said of all rows of the recorded report, where that is recorded."""
    path = RESULTS / "verified" / "h200.json"
    if not path.exists():
        return ""
    data = json.loads(path.read_text(encoding="utf-8"))
    rows = data["verified"]
    dots, wrong = sum(row["dots"] for row in rows), sum(row["mismatches"] for row in rows)
    return (
        f"`accprobe verify {data['models']} --device cuda:0 --dots 1e9` on an {data['device']['name']}:"
        f" {len(rows)} instructions, {dots:,} dot products,\n{wrong:,} differ.\n"
    )


def explained() -> str:
    """By GPU, the words that published models explain, and of which instructions these are."""
    sets: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in explained_words.recorded().values():
        sets.setdefault((one["gpu"], one["source"]), []).append(one)
    table = []
    for (gpu, source), every in sets.items():
        families = Counter(parse(one["name"]).family.name for one in every)
        which = ", ".join(f"{count} of `{family}`" for family, count in families.items())
        words, wrong = (f"{sum(one[key] for one in every):,}" for key in ("dots", "mismatches"))
        table.append((gpu, f"{chip(gpu).title}, {chip(gpu).architecture}", which, words, wrong, source))
    return _table(("recorded on", "models of", "instructions", "words", "wrong", "source"), table)


def _on_gpu() -> Any:
    return json.loads((RESULTS / "evaluators" / "h200.json").read_text(encoding="utf-8"))


def ran() -> str:
    """On which hardware it has run, and on which it never has."""
    reports = [report for report in map(Report.load, recorded()) if report.device.kind == "cuda"]
    generations = dict.fromkeys(known.generation for known in ARCHITECTURES)
    told = []
    for report in reports:
        device, generation = report.device, get(report.device.architecture).generation
        generations.pop(generation)
        counts = f"{len(report.measured)} of its {len(report.instructions)} instructions"
        told.append(f"On an {device.name} ({generation}, {device.architecture}): {counts}; the others have no probe yet.")
    told.append(f"Never on {', '.join(generations)}.")
    return textwrap.fill(" ".join(told), 128, break_on_hyphens=False) + "\n"


def coverage() -> str:
    """By architecture: instructions, those with a probe, and the devices of the recorded reports."""
    measured: dict[str, list[str]] = {}
    for report in map(Report.load, recorded()):
        if report.device.kind == "cuda":
            measured.setdefault(report.device.architecture, []).append(report.device.name)
    alike: dict[tuple[object, ...], list[str]] = {}
    for known in ARCHITECTURES:
        every = catalog(known.target)
        probed = sum(why_no_probe(inst) is None for inst in every)
        ran = ", ".join(measured.get(known.target, [])) or "nothing"
        alike.setdefault((known.generation, len(every), probed, ran), []).append(known.target)
    table = [(f"{generation}: {', '.join(targets)}", *told) for (generation, *told), targets in alike.items()]
    return _table(("architecture", "instructions", "with a probe", "measured"), table)


def _section(lines: list[str], heading: str) -> list[str]:
    """An empty line, the heading and what is below it."""
    start = next(i for i, line in enumerate(lines) if line.startswith(heading))
    length = next((i for i, line in enumerate(lines[start:]) if not line), len(lines))
    return ["", *lines[start : start + length]]


def _code(lines: Iterable[str]) -> str:
    return "\n".join(["```", *lines, "```", ""])


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def headline() -> str:
    """What a comparison says first."""
    printed = _printed("diff", "h200", "sim:b200", status=1)
    return _code(printed[: printed.index("")])


def diff() -> str:
    """A comparison without its long tail: headline, what each generation offers, what it means."""
    printed = _printed("diff", "h200", "sim:b200", status=1)
    start = next(i for i, line in enumerate(printed) if line.startswith("only in"))
    end = printed.index("What it means for a kernel")
    return _code([*printed[:start], "…", "", *printed[end:]])


def check() -> str:
    """A check in which something is broken."""
    lines = ("wgmma.*.f32.e4m3.*: effective_bits >= 13", "wgmma.*.e4m3.*: effective_bits >= 13")
    printed = _printed("check", "h200", *(word for line in lines for word in ("--require", line)), status=1)
    command = " \\\n    ".join(f"--require '{line}'" for line in lines)
    return _code([f"$ accprobe check h200 {command}", *printed])


def sweep() -> str:
    """e4m3 and f16 at three block-Ks, without what a kernel takes."""
    report = Report.load("h200")
    chosen = [
        each
        for each in report.sweeps
        if each.promote_every is None
        and each.dtype in ("e4m3", "f16")
        and each.num_warps < 8
        and each.block_k in (32, 128, 512)
    ]
    ((_, lines),) = sweeps.by_problem(chosen)
    columns = list(sweeps.COLUMNS)
    fields, rows = sweeps.sweep_table(lines, columns[: columns.index("registers")])
    headers = [on_one_line(sweeps.COLUMNS[field].header) for field in fields]
    return _table(headers, ([cell.text for cell in row] for row in rows))


BLOCKS = {
    "drift": drift,
    "drift_in_short": drift_in_short,
    "ran": ran,
    "triton_cache": triton_cache,
    "headline": headline,
    "rooms": rooms,
    "commands": commands,
    "sweep": sweep,
    "excerpt": excerpt,
    "diff": diff,
    "check": check,
    "measured": measured,
    "found": found,
    "profiled": profiled,
    "library": library,
    "detail": detail,
    "speed": speed,
    "evaluators": evaluators,
    "evaluators_on_gpus": evaluators_on_gpus,
    "verified_on_gpus": verified_on_gpus,
    "verified_rows": verified_rows,
    "coverage": coverage,
    "explained": explained,
}


def written(text: str) -> str:
    """A page with every block as its source has it now."""
    return BLOCK.sub(lambda match: match[1] + BLOCKS[match[2]]() + match[4], text)


def names(text: str) -> list[str]:
    """The blocks that are there."""
    return [match[2] for match in BLOCK.finditer(text)]


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")

"""What the pages say is in the reports, in the package, and in the results of benchmarks."""

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import click
import document_blocks
import numpy as np
import printed_blocks
import pytest
import report_blocks
import source_blocks
from benchmark import loaded
from block_forms import RESULTS, ROOT
from click.testing import CliRunner
from document_blocks import FENCE, PAGES

from accprobe.budget.advice import MARGIN
from accprobe.budget.data import CHANNELS
from accprobe.budget.errors import CONFIDENCE
from accprobe.budget.tolerance import TESTS
from accprobe.build import probes
from accprobe.build.golden import golden_shape
from accprobe.cli import main
from accprobe.cli.output import INTERRUPTED
from accprobe.compare.differences import OPERATORS
from accprobe.evaluate.cuda.launch import LEAST_SCRATCH
from accprobe.evaluate.evaluator import evaluate
from accprobe.fleet.cluster import OLDEST
from accprobe.health.golden import CHAIN_SECONDS
from accprobe.health.plan import HANG_SECONDS, SECONDS, CheckPlan
from accprobe.infer.query_log import SIZES
from accprobe.isa import families
from accprobe.isa.architectures import ARCHITECTURES
from accprobe.isa.instructions import catalog, parse
from accprobe.model.product import Order
from accprobe.model.published import known_models
from accprobe.model.tree import FloatArithmetic
from accprobe.operands.kinds import PAIRS, draw
from accprobe.render.content.cells import HEADERS
from accprobe.render.content.changes import ORDER
from accprobe.report.product_words import along
from accprobe.report.products import ProductRow
from accprobe.report.report import SCHEMA, Report
from accprobe.report.rows import Row
from accprobe.report.words import register
from accprobe.verify import vectors

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPORT = Report.load("h200")
ROWS = {row.name: row for row in REPORT.instructions}
LARGE = re.compile(r"(?<![\w.^])\d+(?:[.,]\d+)+|\b\d{3,}\b|\d+(?=\s?(?:%|s\b|MiB|GiB))")
"""Numbers as measurements are written. Those of bits, of formats and of places in a tile are smaller."""

WGMMA = ROWS["wgmma.m64n8k32.f32.e4m3.e4m3"]


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    return page(name).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> list[str]:
    """Of each line of the tables, what stands first."""
    return re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)


def bits(row: Row, feature: str) -> int:
    found = row.findings[feature].value
    assert isinstance(found, int)
    return found


def test_schema_and_keys_are_the_report_s() -> None:
    text = page("report")
    assert f"schema {SCHEMA}" in text
    of_rows, _, of_products = text.partition("`--format` of")[0].partition("\n## Products\n")
    assert keys_told(of_rows) <= set(Row.model_fields)
    assert set(ProductRow.model_fields) - keys_told(of_products) == {"calls", "seconds"}
    assert keys_told(of_products) <= set(ProductRow.model_fields)


def test_every_order_of_partial_sums_is_explained() -> None:
    told = section("gemm", "How it is found")
    assert {*get_args(Order), "serial"} <= set(re.findall(r"`(\w+)`", told))


def keys_told(text: str) -> set[str]:
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in lines)))


def test_table_of_findings_has_every_row_once_and_all_are_confirmed() -> None:
    lines = [line.split(" | ") for line in report_blocks.found().splitlines()[2:]]
    assert sum(int(line[3]) for line in lines) == len(REPORT.measured)
    assert "(unverified)" not in page("numbers")
    assert "(inferred)" not in page("numbers")


def test_what_is_said_of_fp8_is_in_the_report() -> None:
    assert "leave 13 fraction bits" in " ".join(section("numbers", "What was found on an H200").split())
    assert "keeps 13 of the 23 fraction bits" in " ".join(README.split())
    for row in REPORT.measured:
        inst = row.instruction
        if inst.a.bits != 8 or inst.is_integer:
            continue
        assert row.model is not None
        if inst.family is families.WGMMA:
            assert row.opcodes[0].startswith("QGMMA")
            assert inst.d.name != "f32" or bits(row, "effective_bits") == 13
            continue
        assert row.findings["add_result_rounding"].value == "RNE"
        outer, inner = row.model.root, row.model.root.children[0]
        assert (outer.products, outer.has_addend) == ((), True)
        assert {k % 4 for k in inner.products} == {2, 3}
        assert {k % 4 for k in inner.children[0].products} == {0, 1}
        assert len(inner.products) == len(inner.children[0].products) == inst.stored.k // 2


def test_what_is_said_of_other_floats_is_in_the_report() -> None:
    assert (
        "aligned to 25 fraction bits; the sum is then cut to the 23 of f32, toward zero, or rounded to\n  the 10 of f16"
        in page("numbers")
    )
    for row in REPORT.measured:
        inst = row.instruction
        if inst.quad_pairs:
            assert not row.opcodes
            assert row.findings["result_rounding"].value == "RNE"
        elif inst.a.name in ("f16", "bf16", "tf32"):
            assert bits(row, "alignment_bits") == 25
            expected = {"f32": (23, "RZ"), "f16": (10, "RNE")}[inst.d.name]
            assert (row.findings["result_bits"].value, row.findings["result_rounding"].value) == expected


def test_ways_of_counting_are_those_of_the_report_and_of_published_models() -> None:
    told = section("accuracy", "13, 14, 22, 25, 34, 35")
    assert [int(line.split("|")[1]) for line in told.splitlines() if re.match(r"\| \d", line)] == [13, 14, 22, 25, 25, 34, 35]
    assert bits(WGMMA, "effective_bits") == bits(WGMMA, "alignment_bits") == 13
    assert register(WGMMA.instruction.d, 13) in told
    blackwell = known_models("b200")[parse("tcgen05.m128n16k32.kind::f8f6f4.f32.e4m3.e4m3")].model.root.arithmetic
    assert isinstance(blackwell, FloatArithmetic)
    assert (blackwell.alignment_bits, blackwell.result_bits) == (25, 23)


@pytest.mark.parametrize(
    ("block", "arguments"),
    [(printed_blocks.excerpt, []), (printed_blocks.detail, [printed_blocks.ONE])],
    ids=["table", "detail"],
)
def test_an_excerpt_says_where_something_is_left_out(block: Callable[[], str], arguments: list[str]) -> None:
    """Between two ellipses stand lines that are together in what is printed, and no line is cut."""
    whole = "\n".join(["", *printed_blocks.shown("h200", *arguments), ""])
    pieces = re.split(r"^ *…$", "\n".join(block().splitlines()[1:-1]), flags=re.MULTILINE)
    assert len(pieces) > 3
    for piece in pieces:
        assert f"\n{piece.strip(chr(10))}\n" in whole


def test_detail_is_explained_as_it_is() -> None:
    first, second, third, fourth = (line for line in printed_blocks.detail().splitlines() if line.startswith("    k "))
    assert all("(2^16)" in line or "(2^8) × 0x78 (2^8)" in line for line in (first, second, third, fourth))
    assert "k 0: 0x48 (4) × 0x40 (2)" in first
    assert first.endswith("(2^3)")
    assert "k 0: 0x40 (2) × 0x40 (2)" in second
    assert second.endswith("→ 0x00000000 (0)")
    assert third.endswith("C 0x41000000 (2^3) → 0x47800400 (65544)")
    assert fourth.endswith("C 0x40800000 (4) → 0x47800000 (2^16)")
    assert "13 bits below" in section("inference", "One instruction in full")
    assert 16 - 3 == bits(WGMMA, "alignment_bits") == bits(WGMMA, "result_bits")


def test_columns_are_those_of_the_table() -> None:
    columns = {"instruction", *(header.replace("\n", " ") for header in HEADERS.values())}
    told = first_cells(section("report", "How to read the table").partition("| status | means |")[0])
    assert told[:1] == ["column"]
    assert set(told[1:]) == columns
    assert set(first_cells(README.partition("## How to read the table")[2])[1:]) < columns


def test_limits_say_that_everything_has_a_probe() -> None:
    for architecture in ARCHITECTURES:
        assert [inst.name for inst in catalog(architecture.target) if probes.why_no_probe(inst)] == []
    assert {inst.n for inst in catalog("sm_90a") if inst.family is families.WGMMA} == {8, 256}


def test_extras_are_those_of_the_package() -> None:
    extras = set(PROJECT["optional-dependencies"])
    assert {name.strip("`") for name in first_cells(section("commands", "Extras"))[1:]} == extras
    named = re.findall(r'-e "\.\[([\w,]+)\]"', "".join(path.read_text(encoding="utf-8") for path in PAGES))
    assert {extra for names in named for extra in names.split(",")} <= extras


@pytest.mark.parametrize("command", main.commands.values(), ids=lambda command: command.name)
def test_help_says_which_extras_a_command_needs(command: click.Command) -> None:
    needs = source_blocks.told_of(source_blocks.paragraphs(command), "Needs")
    named = {extra for two in re.findall(r"extra (\w+)(?: or (\w+))?", needs) for extra in two if extra}
    assert named <= set(PROJECT["optional-dependencies"])
    assert named or needs == "nothing"


def test_commands_have_a_section_each() -> None:
    assert set(re.findall(r"^## ([a-z]+)$", page("commands"), re.MULTILINE)) == set(main.commands)


def test_summaries_fit_a_terminal() -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["--help"]).stdout
    longest = max(map(len, main.commands))
    for name, command in main.commands.items():
        assert f"  {name:<{longest + 2}}{source_blocks.paragraphs(command)[0]}\n" in shown


def products_told() -> dict[str, object]:
    """The numbers of docs/gemm.md, as the recorded products have them."""
    rows = Report.load("products-h200").products
    dropping = next(row for row in rows if row.findings["each_product_once"].value == "no")
    split = next(row for row in rows if (row.k, row.a, row.out) == (4096, "f16", "f16") and row.findings["split_k"].value == 3)
    odd = next(row for row in rows if row.a == row.out == "f16" and row.findings["split_k"].value == 15)
    promoted = next(row for row in rows if row.options.get("use_fast_accum") is False)
    attending = [row for row in rows if row.callable == "torch:sdpa"]
    by_backend = {row.options["backend"]: row for row in attending if row.a == "bf16" and row.k == row.m}
    (of_few,) = [row for row in attending if row.options["backend"] == "flash" and row.k != row.m]
    assert (of_few.m, of_few.k, of_few.findings["split_k"].value) == (split.m, split.k, 4)
    sums = {name: row.findings["products_per_sum"].value for name, row in by_backend.items()}
    assert sums == {"flash": 16, "cudnn": 16, "efficient": 8, "math": 1}
    assert {row.findings["split_k"].value for row in by_backend.values()} == {1}
    attention = by_backend["flash"]
    assert {row.m for row in by_backend.values()} == {row.n for row in by_backend.values()} == {attention.k}
    model = attention.regions[0].model
    assert model is not None
    ks = next(model.chains()).ks()
    assert ks[0] > ks[-1]
    assert {row.findings["operand_rounding"].value for row in rows if row.a == "tf32"} == {"RNE"}
    ways = {(row.scale, str(row.findings["scales"].value).partition(", applied")[0]) for row in rows if row.scale}
    assert {("tensor", "RNE(sa·sb)"), ("row", "sb, then sa"), ("1x128", "sa, then sb")} < ways
    assert len(ways) == 4
    in_turn = {row.m: along(row.findings) for row in rows if row.a == "f32" and along(row.findings)}
    assert in_turn == {512: "8 of every 32 k", 256: "8 of every 128 k"}
    (first,) = re.findall(r"k = (\d+)-", dropping.findings["each_product_once"].note)
    torch, cuda = (str(dropping.libraries[name]) for name in ("torch", "cuda"))
    later = Report.load("more-products-h200").products
    (chunked,) = [row for row in later if row.callable == "torch:mm"]
    assert {row.findings["each_product_once"].note for row in (dropping, chunked)} == {
        dropping.findings["each_product_once"].note
    }
    of_cublas = [row for row in later if row.callable == "cublaslt:matmul" and row.a == "bf16"]
    assert len({row.kernels[0].name for row in of_cublas}) == len(of_cublas) == 3
    assert len({row.findings["order"].value for row in of_cublas}) == 1
    (sms,) = {str(Report.load(gpu).device.facts["sm_count"]) for gpu in ("h100", "h200")}
    return {
        sms: sms,
        "1280": chunked.findings["promote_every"].value,
        "2.11": ".".join(torch.split(".")[:2]),
        "13.0": cuda,
        "128": promoted.findings["promote_every"].value,
        "256": split.m,
        "512": max(in_turn),
        "4096": split.k,
        "127": odd.m,
        "253": odd.n,
        "1031": odd.k,
        "11528": dropping.k,
        "11520": first,
        "1024": attention.k,
    }


def test_numbers_in_sentences_are_those_of_their_sources() -> None:
    """Every number that is written as a measurement is, outside of what is generated and of commands."""
    cpu, gpu = loaded("evaluators"), loaded("evaluators_gpu")
    (side,) = re.findall(
        r"^GEMM = (\d+)$", (ROOT / "tests" / "emulate" / "test_emulate_on_gpu.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    golden = golden_shape(parse("wgmma.m64n256k32.f32.e4m3.e4m3"))
    _, (_, promoted) = loaded("accuracy").ACCUMULATORS["QGMMA"]
    peers = json.loads((RESULTS / "evaluators" / "cpu.json").read_text(encoding="utf-8"))["host"]
    sources = {
        "README": {"3.11": PROJECT["requires-python"].removeprefix(">=")},
        "accuracy": {"256": CHANNELS},
        "commands": {
            "2.11": REPORT.environment["torch"].removesuffix(".0"),
            "256": CHANNELS,
            "95": round(100 * CONFIDENCE),
            "80": round(100 / MARGIN),
            "125": round(100 * MARGIN),
            "130": INTERRUPTED,
            "200": TESTS,
        },
        "gemm": products_told(),
        "health": {
            "20": round(SECONDS["quick"]),
            "0.2": f"{1e3 * CHAIN_SECONDS:g}",
            "120": round(HANG_SECONDS),
            "2.51": ".".join(map(str, OLDEST)),
            "1,000": f"{CheckPlan().again:,}",
            "130": INTERRUPTED,
            "128": golden.results // golden.group_threads,
            "256": golden.chains,
        },
        "inference": {"1.5": 3 / 2, "65,537": f"{max(SIZES):,}"},
        "library": {"65791.9375": 256 * 256 + 4095 * 0.0625, "4096": side, "128": promoted},
        "limits": {"256": max(inst.n for inst in catalog("sm_90a"))},
        "numbers": {"128": promoted},
        "speed": {
            "256": cpu.ROWS,
            "512": LEAST_SCRATCH >> 20,
            "1024": cpu.PRODUCTS,
            "8192": gpu.SIDE,
            "4096": gpu.DEPTH,
            "16384": gpu.DOTS_SIDE,
            "0.1.0": peers["mmaemu"],
            "2.1.1": peers["mmasim"],
        },
        "questions": {"128": promoted, "200": TESTS},
        "processors": {"207": Report.load("cpu-emerald-rapids").device.facts["model"]},
        "sweep": {"2048": {side for sweep in REPORT.sweeps for side in (sweep.m, sweep.n, sweep.k)}.pop()},
        "verification": {"65,536": f"{PAIRS:,}", "131,072": f"{2 * PAIRS:,}", "132": REPORT.device.facts["sm_count"]},
    }
    for path in PAGES:
        text = FENCE.sub("", document_blocks.BLOCK.sub("", path.read_text(encoding="utf-8")))
        told = set(LARGE.findall(re.sub(r"`[^`]+`|\]\([^)]+\)|arXiv \S+|CS 20\d\d|0x\w+", "", text)))
        source = sources.get(path.stem, {})
        assert told == set(source), path.name
        assert all(number == str(value) for number, value in source.items()), path.name


def test_a_bit_too_few_predicts_most_random_dot_products() -> None:
    """Why rivals: agreement on random operands is weak evidence."""
    row = ROWS["wgmma.m64n8k16.f32.bf16.bf16"]
    assert row.model is not None
    inst, narrow = row.instruction, row.model.with_arithmetic(lambda each: replace(each, alignment_bits=24))
    asked = draw("normal", inst, np.random.default_rng(0), 10_000)
    same = (evaluate(row.model, inst, asked) == evaluate(narrow, inst, asked)).mean()
    assert 0.8 < same < 1


def test_address_of_the_recorded_results_is_on_the_pages_and_in_the_source() -> None:
    address = "https://github.com/north-numerical-computing/MATLAB-tensor-core"
    assert all(address in text for text in (page("inference"), page("verification"), vectors.__doc__ or ""))


def test_comparison_is_the_one_that_it_says_it_is() -> None:
    assert printed_blocks.diff().splitlines()[1] == (
        "Hopper → Blackwell: FP8 accumulator 13 → 23 bits, QGMMA → UTCQMMA (B simulated)"
    )
    told = set(first_cells(section("commands", "diff"))) - {"verdict"}
    assert {word for words in told for word in words.split(", ")} == set(ORDER)


def test_gate_of_a_ci_job_works(tmp_path: Path) -> None:
    (requirements,) = re.findall(r"^```toml\n(.*?)^```", page("commands"), re.MULTILINE | re.DOTALL)
    (tmp_path / "require.toml").write_text(requirements, encoding="utf-8")
    arguments = ["check", "h200", "--file", str(tmp_path / "require.toml")]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    for operator in OPERATORS:
        assert f"`{operator}`" in section("commands", "check")


def test_forms_are_those_of_show() -> None:
    (form,) = (option for option in main.commands["show"].params if option.name == "form")
    assert isinstance(form.type, click.Choice)
    told = re.findall(r"^\| `(\w+)` \|", page("report").partition("`--format` of `show`")[2], re.MULTILINE)
    assert sorted(told) == sorted(form.type.choices)

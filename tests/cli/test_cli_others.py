import io
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

import accprobe
from accprobe.build import inventory
from accprobe.cli import main
from accprobe.cli.output import OutputFile, list_names
from accprobe.errors import nearest
from accprobe.isa.architectures import ARCHITECTURES, PROCESSORS
from accprobe.isa.instructions import catalog
from accprobe.model.published import names
from accprobe.report.coverage_status import STATE_WORDS
from accprobe.report.recorded import recorded
from accprobe.report.report import Report


def test_list_of_instructions_has_them_all() -> None:
    result = CliRunner().invoke(main, ["list", "--instructions", "sm_90a"])
    assert result.exit_code == 0
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == [inst.name for inst in catalog("sm_90a")]
    of_b200 = CliRunner().invoke(main, ["list", "--instructions", "sm_100a"]).stdout.splitlines()
    assert "tcgen05.m128n16k16.kind::f16.f32.f16.f16\tprobe never run on hardware" in of_b200
    assert "tcgen05.sp.m256n256k32.kind::f16.f32.f16.f16\tprobe never run on hardware" in of_b200
    assert "wgmma.m64n8k32.f32.e4m3.e4m3" in result.stdout.splitlines()


def list_of(architecture: str) -> list[str]:
    return CliRunner().invoke(main, ["list", "--instructions", architecture]).stdout.splitlines()


def test_list_of_a_target_without_its_suffix_says_so() -> None:
    result = CliRunner().invoke(main, ["list", "--instructions", "sm_90"])
    assert result.stderr == "accprobe: sm_90 is listed; sm_90a has more\n"


def test_list_of_devices_has_every_simulated_one() -> None:
    listed = CliRunner().invoke(main, ["list", "--devices"]).stdout
    assert {line.split("\t")[0] for line in listed.splitlines()} >= {"auto", "gpu", "cpu", *(f"sim:{name}" for name in names())}
    b200 = next(line for line in listed.splitlines() if line.startswith("sim:b200\t"))
    assert b200.endswith("; they explain 40,000 words recorded on a B200 (MATLAB-tensor-core b12b5a7)")


def test_list_of_reports_says_what_is_in_each() -> None:
    listed = CliRunner().invoke(main, ["list", "--reports"]).stdout
    assert [line.split("\t")[0] for line in listed.splitlines()] == recorded()
    assert "h200\trecorded report of NVIDIA H200, sm_90a, driver " in listed
    of_rows = {name: Counter(row.status for row in Report.load(name).measured) for name in recorded()}
    for line in listed.splitlines():
        counts = of_rows[line.split("\t")[0]]
        if counts:
            assert line.endswith(
                ": " + ", ".join(f"{count} instructions {status}" for status, count in counts.most_common())
            ), line


def test_coverage_counts_each_instruction_once() -> None:
    listed = CliRunner().invoke(main, ["list", "--coverage"]).stdout
    lines = dict(line.split("\t") for line in listed.splitlines())
    assert list(lines) == [*(known.target for known in ARCHITECTURES), *PROCESSORS]
    assert lines["sm_90a"].startswith("Hopper, 293 instructions: ")
    for target, told in lines.items():
        whole, parts = told.split(", ", 1)[1].split(": ", 1)
        assert (
            int(whole.removesuffix(" instructions"))
            == len(catalog(target))
            == sum(map(int, re.findall(r"(?:^|, )(\d+) ", parts)))
        )


def test_instructions_of_processors_tell_the_flags_that_they_need() -> None:
    lines = dict(line.split("\t") for line in list_of("x86_64"))
    assert lines["avx512.m1n16k2.f32.bf16.bf16"] == "VDPBF16PS, of processors with avx512f and avx512_bf16"
    assert lines["avx512.m1n16k4.s32.u8.s8"] == "VPDPBUSD, of processors with avx512f and avx512_vnni"
    assert lines["amx.m16n16k32.f32.bf16.bf16"] == "TDPBF16PS, of processors with amx_tile and amx_bf16"
    assert lines["amx.m16n16k32.f32.f16.f16"].endswith(f"amx_tile and amx_fp16; {STATE_WORDS['never run']}")
    assert set(list_of("aarch64")) == {
        f"neon.m1n4k2.f32.bf16.bf16\tBFDOT, of processors with bf16; {STATE_WORDS['never run']}",
        f"neon_mmla.m2n2k4.f32.bf16.bf16\tBFMMLA, of processors with bf16; {STATE_WORDS['never run']}",
    }


@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a", "x86_64"])
def test_coverage_of_one_architecture_is_told_of_each_instruction_and_adds_up(architecture: str) -> None:
    every = CliRunner().invoke(main, ["list", "--coverage"]).stdout
    counts = dict(line.split("\t") for line in every.splitlines())[architecture]
    result = CliRunner().invoke(main, ["list", "--coverage", "--instructions", architecture])
    lines = dict(line.split("\t") for line in result.stdout.splitlines())
    assert list(lines) == [inst.name for inst in catalog(architecture)]
    words = {
        "measured (": "measured on ",
        "probe never run on hardware": "probe never run on hardware",
        "no probe, but a published model": "no probe, but a published model",
        "no probe, no published model": "no probe, no published model",
    }
    for counted, told in words.items():
        found = sum(told in remark.split("; ") or f"; {told}" in f"; {remark}" for remark in lines.values())
        (count,) = re.findall(rf"(\d+) {re.escape(counted)}", counts) or ["0"]
        assert found == int(count), told


def test_names_are_wrapped_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout", shown)
    list_names([("torch:mm", ""), ("triton:dot", "accprobe's own kernel " * 6)])
    assert shown.getvalue().splitlines() == [
        "torch:mm",
        "triton:dot  accprobe's own kernel accprobe's own kernel accprobe's own kernel",
        "    accprobe's own kernel accprobe's own kernel accprobe's own kernel",
    ]


@pytest.mark.parametrize(
    ("command", "endings"),
    [
        (["run", "--device", "sim:h100"], ".json"),
        (["verify", "h200", "--device", "sim:h100"], ".json"),
        (["sweep", "--device", "sim:h100"], ".json"),
        (["gemm", "numpy:matmul"], ".json"),
        (["health", "--device", "sim:h100"], ".xml, .prom or .json"),
        (["budget", "QGMMA"], ".html, .csv, .md or .json"),
        (["tolerance", "QGMMA", "--k", "128"], ".md or .json"),
        (["show", "h200"], ".html, .md, .csv, .jsonl or .json"),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_json_is_not_written_where_the_name_asks_for_another_form(
    command: list[str], endings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*command, "-o", "x.txt"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"accprobe: -o cannot write .txt: let the name end in {endings}, or redirect: > x.txt\n"
    assert not list(tmp_path.iterdir())


def test_a_hint_has_few_names_that_are_near_or_says_which_are_known() -> None:
    many = [f"mma.sync.m16n8k{k}.f32.f16.f16.f32" for k in range(20)] + ["wgmma.m64n8k16.f32.f16.f16"]
    assert nearest("h201", ["cpu-zen4", "h200", "products-h200"]) == "did you mean h200?"
    assert nearest("zen4", ["cpu-zen4", "h200"]) == "did you mean cpu-zen4?"
    assert nearest("f31", ["f32", "f33", "f34", "f35"], "sim:").count("sim:f3") == 3
    assert nearest("zzz", ["h200", "a100", "b200"]) == "known are h200, a100 and b200"
    assert nearest("zzz", ["h200"]) == "known is h200"
    assert nearest("wgma", many) == "there are 21 known ones, such as wgmma.m64n8k16.f32.f16.f16"


def test_the_hint_names_processors_and_what_a_product_is_of() -> None:
    def told(name: str) -> str:
        return CliRunner().invoke(main, ["list", "--instructions", name]).stderr

    assert told("x86") == "accprobe: unknown architecture 'x86'; did you mean x86_64?\n"
    assert told("zen4").endswith("; there are 24 known ones, such as x86_64, aarch64, sm_70\n")
    assert told("H200") == "accprobe: unknown architecture 'H200'; it is of sm_90a\n"


def test_doctor_names_what_is_missing_and_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [
        inventory.Item("nvdisasm", "showing which opcode ran", "13.0.85", "pip install x"),
        inventory.Item("triton", "sweeps", None, "pip install triton"),
        inventory.Item("GPU", "measuring", None, "`sim:` needs none"),
    ]
    monkeypatch.setattr(inventory, "inventory", lambda: items)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["doctor"])
    assert result.exit_code == 0
    first, _, _, _, *table = result.stdout.splitlines()
    lacking = (
        "read binaries: no cuobjdump",
        "measure this processor: no processor",
        "measure a GPU or sweep block-K: no NVIDIA driver",
    )
    assert first == f"can read reports; {'; '.join(f'cannot {each}' for each in lacking)}"
    assert [line.split() for line in table] == [
        ["nvdisasm", "13.0.85", "showing", "which", "opcode", "ran"],
        ["triton", "missing", "sweeps", "install:", "pip", "install", "triton"],
        ["GPU", "missing", "measuring", "`sim:`", "needs", "none"],
    ]


@pytest.mark.parametrize("command", ["run", "sweep", "gemm", "sass", "show", "diff", "check", "list", "doctor"])
def test_help_has_an_example(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert f"      accprobe {command}" in result.stdout or f"    accprobe {command}" in result.stdout


def test_descriptions_of_commands_are_whole_and_on_one_line_at_80_columns() -> None:
    described = {name: command.help.partition("\n\n")[0] for name, command in main.commands.items() if command.help}
    shown = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout.splitlines()
    assert [line.split(maxsplit=1) for line in shown[-len(described) :]] == [
        [name, text] for name, text in sorted(described.items())
    ]
    narrow = CliRunner().invoke(main, ["--help"], terminal_width=50).stdout
    assert all(text in " ".join(narrow.split()) for text in described.values())


def test_memory_that_does_not_suffice_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much() -> list[str]:
        raise MemoryError("Unable to allocate 256. GiB")

    monkeypatch.setattr(inventory, "inventory", too_much)
    result = CliRunner().invoke(main, ["doctor"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "accprobe: not enough memory: Unable to allocate 256. GiB\n"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(28, "No space left on device"),
            "a file cannot be read or written: No space left on device; temporary files are",
        ),
        (PermissionError(13, "Permission denied", "x/y"), "x/y cannot be read or written: Permission denied\n"),
    ],
)
def test_a_file_that_fails_is_named(error: OSError, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> list[str]:
        raise error

    monkeypatch.setattr(inventory, "inventory", fails)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"accprobe: {told}")


def test_unknown_command_names_the_nearest() -> None:
    result = CliRunner().invoke(main, ["rum"])
    assert (result.exit_code, result.stderr) == (2, "accprobe: there is no command 'rum'; did you mean run?\n")


@pytest.mark.parametrize(
    "command",
    [
        ["show", "h200"],
        ["gemm", "numpy:matmul"],
        ["run", "--device", "sim:h100"],
        ["verify", "h200", "--device", "sim:h200"],
        ["health", "--device", "sim:h100"],
        ["budget", "QGMMA", "--k", "64"],
        ["tolerance", "QGMMA", "--k", "64"],
        ["sweep"],
    ],
    ids=lambda command: command[0],
)
def test_a_file_without_a_name_is_none(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "-o", ""])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "accprobe: Invalid value for '-o' / '--output': no file is named: give its name\n"


OUTPUTS = [
    (name, option.opts[-1])
    for name, command in main.commands.items()
    for option in command.params
    if isinstance(option.type, OutputFile)
]
"""Each option of each command that names a file to write."""


@pytest.mark.parametrize(("command", "option"), OUTPUTS)
@pytest.mark.parametrize("path", ["new/", "here/", "here/."])
def test_a_folder_is_no_file(command: str, option: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    result = CliRunner().invoke(main, [command, "h200", "h200", option, path])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(f"'{path}' is a folder: give the name of a file\n")
    assert [each.name for each in tmp_path.rglob("*")] == ["here"]


def test_a_report_without_a_name_is_none() -> None:
    result = CliRunner().invoke(main, ["show", ""])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("accprobe: no report is named: give a file, a recorded report, ")


def test_no_command_shows_the_help() -> None:
    result = CliRunner().invoke(main, [])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: ")


def test_version() -> None:
    shown = CliRunner().invoke(main, ["--version"]).stdout
    assert re.fullmatch(rf"accprobe {accprobe.__version__}( \([0-9a-f]{{7,}}(-dirty)?\))?\n", shown)


def test_help_imports_nothing_heavy_and_is_quick() -> None:
    program = "import sys; from accprobe.cli import main\ntry: main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert time.perf_counter() - started < 2
    assert not {"numpy", "pydantic", "rich", "jinja2", "cupy", "torch", "triton"} & set(done.stdout.split())


def test_python_m_accprobe_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "accprobe", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"accprobe {accprobe.__version__}")

"""What all commands share, and `list` and `doctor`."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from commands import invoke

import accprobe
from accprobe.build import inventory
from accprobe.cli import main
from accprobe.errors import nearest
from accprobe.isa.architectures import ARCHITECTURES, PROCESSORS
from accprobe.isa.instructions import catalog
from accprobe.report.recorded import recorded
from accprobe.report.report import Report
from accprobe.report.words import status_counts


def listed(*arguments: str) -> list[str]:
    return invoke("list", *arguments).stdout.splitlines()


def test_list_of_instructions_has_them_all() -> None:
    assert [line.split("\t")[0] for line in listed("--instructions", "sm_90a")] == [inst.name for inst in catalog("sm_90a")]
    assert "tcgen05.m128n16k16.kind::f16.f32.f16.f16\tprobe never run on hardware" in listed("--instructions", "sm_100a")
    without_suffix = invoke("list", "--instructions", "sm_90")
    assert without_suffix.stderr == "accprobe: sm_90 is listed; sm_90a has more\n"


def test_list_of_reports_counts_statuses() -> None:
    lines = listed("--reports")
    assert [line.split("\t")[0] for line in lines] == recorded()
    assert any(line.startswith("h200\trecorded report of NVIDIA H200, sm_90a, driver ") for line in lines)
    for line in lines:
        assert line.endswith(f": {status_counts(Report.load(line.partition(chr(9))[0]).claims)}")


def test_coverage_counts_each_instruction_once() -> None:
    lines = dict(line.split("\t") for line in listed("--coverage"))
    assert list(lines) == [*(known.target for known in ARCHITECTURES), *PROCESSORS]
    for target, remark in lines.items():
        whole, *counts = map(int, re.findall(r"(\d+) (?:instructions:|measured|with)", remark))
        assert whole == len(catalog(target)) == sum(counts)


def test_doctor_names_what_is_missing_and_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [
        inventory.Item("nvdisasm", "showing which opcode ran", "13.0.85", "pip install x"),
        inventory.Item("triton", "sweeps", None, "pip install triton"),
        inventory.Item("GPU", "measuring", None, "`sim:` needs none"),
    ]
    monkeypatch.setattr(inventory, "inventory", lambda: items)
    result = invoke("doctor", columns=200)
    assert result.exit_code == 0
    first, _, _, _, *table = result.stdout.splitlines()
    lacking = (
        "read binaries: no cuobjdump",
        "measure this processor: no processor",
        "measure a GPU or sweep block-K on a GPU: no NVIDIA driver",
    )
    assert first == f"can read reports; {'; '.join(f'cannot {each}' for each in lacking)}"
    assert [line.split()[:3] for line in table] == [
        ["nvdisasm", "13.0.85", "showing"],
        ["triton", "missing", "sweeps"],
        ["GPU", "missing", "measuring"],
    ]


def test_a_hint_has_few_names_that_are_near_or_says_which_are_known() -> None:
    many = [f"mma.sync.m16n8k{k}.f32.f16.f16.f32" for k in range(20)]
    assert nearest("h201", ["cpu-zen4", "h200", "products-h200"]) == "did you mean h200?"
    assert nearest("zen4", ["cpu-zen4", "h200"]) == "did you mean cpu-zen4?"
    assert nearest("f31", ["f32", "f33", "f34", "f35"], "sim:").count("sim:f3") == 3
    assert nearest("zzz", ["h200", "a100", "b200"]) == "known are h200, a100 and b200"
    assert nearest("zzz", ["h200"]) == "known is h200"
    assert nearest("zzz", many).startswith("there are 20 known ones, such as mma.sync.m16n8k0.")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError("Unable to allocate 256. GiB"), "not enough memory: Unable to allocate 256. GiB\n"),
        (OSError(28, "No space left on device"), "a file cannot be read or written: No space left on device; temporary files"),
        (PermissionError(13, "Permission denied", "x/y"), "x/y cannot be read or written: Permission denied\n"),
    ],
)
def test_what_the_machine_lacks_is_one_sentence(error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> list[str]:
        raise error

    monkeypatch.setattr(inventory, "inventory", fails)
    result = invoke("doctor")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"accprobe: {sentence}")


def test_help_is_whole_and_has_examples() -> None:
    described = {name: command.help.partition("\n\n")[0] for name, command in main.commands.items() if command.help}
    shown = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout.splitlines()
    assert [line.split(maxsplit=1) for line in shown[-len(described) :]] == [[*item] for item in sorted(described.items())]
    for name in main.commands:
        assert f"    accprobe {name}" in invoke(name, "--help").stdout
    nothing = invoke()
    assert (nothing.exit_code, nothing.stdout, nothing.stderr[:7]) == (2, "", "Usage: ")


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from accprobe.cli import main\ntry: main(['--help'])\nexcept SystemExit: sys.exit(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not {"numpy", "pydantic", "rich", "jinja2", "cupy", "torch", "triton"} & set(done.stderr.split())
    assert "accprobe.cli" in done.stderr.split()


def test_python_m_accprobe_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "accprobe", "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"accprobe {accprobe.__version__}( \([0-9a-f]{{7,}}(-dirty)?\))?\n", done.stdout)

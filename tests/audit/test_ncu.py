"""The profiler's output is read, whatever the order of its columns; what it cannot do is told in one sentence."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import runpy
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from commands import invoke
from fakes import DENSE, WIDE, FakeDevice

import accprobe.devices
from accprobe.audit import ncu
from accprobe.build import toolchain
from accprobe.build.lowerings import Lowering
from accprobe.errors import AccprobeError, DeviceError
from accprobe.isa.instructions import parse
from accprobe.survey.run import survey

GEMM = [
    (".", "LDC R1, c[0x0][0x28]", 4, 128),
    (".", "QGMMA.64x64x32.F32.E4M3.E4M3 R24, gdesc[UR8], RZ, !UPT", 40, 1280),
    (".", "QGMMA.64x64x32.F32.E4M3.E4M3 R24, gdesc[UR8], R24, gsb0", 40, 1280),
    *[(".", f"FADD R{72 + i}, R{24 + i}, R{72 + i}", 40, 1280) for i in range(32)],
    (".", "@!P0 BRA 0x7f0000000010", 40, 1280),
    (".", "@P1 HMMA.16816.F32 R4, R4, R8, RZ", 4, 0),
    (".", "HFMA2.MMA R7, -RZ, RZ, 0, 5.9604644775390625e-08", 4, 128),
    (".", "EXIT", 4, 128),
]
COLUMNS = ["Address", "Source", "inst_executed", "thread_inst_executed_true"]


def page(kernels: Iterable[tuple[str, list[tuple[str, str, int, int]]]], columns: list[str] = COLUMNS) -> str:
    """What ncu prints: a row with the kernel's name, one with the columns, one an instruction."""
    out = io.StringIO()
    write = csv.writer(out, quoting=csv.QUOTE_ALL).writerow
    print("==PROF== Connected to process 1", file=out)
    for name, lines in kernels or [("k", [])]:
        write(["Kernel Name", name])
        write(columns)
        for i, (_, text, executed, threads) in enumerate(lines):
            write([f"0x7f0000000{16 * i:03x}", f"      {text}", f"{executed:,}", str(threads)])
    return out.getvalue()


def test_reads_a_page() -> None:
    one, two = ncu.parse_launches(io.StringIO(page([("gemm(int, float)", GEMM), ("other", GEMM[:1])])))
    assert one == {"QGMMA.64x64x32.F32.E4M3.E4M3": 80, "FADD": 40 * 32}
    assert two == {}


def test_page_without_executions_is_told() -> None:
    with pytest.raises(AccprobeError, match="did not count executed instructions; its columns are Address, Source, # Samples"):
        ncu.parse_launches(io.StringIO(page([], ["Address", "Source", "# Samples"])))


PAGES = Path(__file__).parents[1] / "pages"
"""What Nsight Compute 2025.3.1 printed of `torch_gemms.py` on an H200."""


def real(name: str) -> str:
    return gzip.decompress((PAGES / f"{name}.csv.gz").read_bytes()).decode()


def test_reads_what_a_profiler_printed() -> None:
    fast, slow, half = ncu.parse_launches(io.StringIO(real("torch_gemms")))
    assert fast["QGMMA.64x48x32.F32.E4M3.E4M3"] == slow["QGMMA.64x48x32.F32.E4M3.E4M3"] == 6144
    assert half["HGMMA.64x48x16.F32"] == 12288
    assert ["FADD" in counts for counts in (fast, slow, half)] == [False, True, False]


Fake = Callable[[str, int], Path]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    """A profiler that runs nothing: it keeps its arguments, writes the log that it is told to, and ends with a status."""

    def install(text: str, status: int = 0) -> Path:
        (tmp_path / "page.csv").write_text(text)
        program = tmp_path / "ncu"
        program.write_text(
            f"#!{sys.executable}\nimport json, shutil, sys\n"
            f"json.dump(sys.argv[1:], open({str(tmp_path / 'arguments')!r}, 'w'))\n"
            f"shutil.copy({str(tmp_path / 'page.csv')!r}, sys.argv[sys.argv.index('--log-file') + 1])\n"
            f"sys.exit({status})\n"
        )
        program.chmod(0o755)
        monkeypatch.setattr(toolchain, "find", lambda tool: program)
        return tmp_path / "arguments"

    return install


@pytest.mark.parametrize(
    ("text", "status", "sentence"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", 1, "run as root, or load the nvidia module with"),
        ("==ERROR== The application returned an error code (3).", 3, "the profiler failed: The application returned"),
        ("", 9, "python ended with status 9 under the profiler"),
        ("==PROF== nothing", 0, "python launched no kernel that the profiler could see"),
    ],
)
def test_what_goes_wrong_is_one_sentence(fake: Fake, text: str, status: int, sentence: str) -> None:
    fake(text, status)
    with pytest.raises(AccprobeError, match=re.escape(sentence)):
        ncu.launches(["python"])


PROBE = [(".", "IMMA.16816.S8.S8 R4, R4.ROW, R8.COL, R4", 1, 32), (".", "EXIT", 4, 128)]
GROUP = [(".", "IGMMA.64x8x32.S8.S8 R24, gdesc[UR8], R24, gsb0", 4, 128), (".", "EXIT", 4, 128)]


def test_what_probes_executed_for_a_tile(fake: Fake) -> None:
    arguments = fake(page([("probe", PROBE), ("probe", GROUP)]), 0)
    insts = [parse(DENSE), parse("wgmma.m64n8k32.s32.s8.s8")]
    found = ncu.lowerings("cuda:0", insts)
    assert found[DENSE] == Lowering(("IMMA.16816.S8.S8",), (("IMMA.16816.S8.S8", 1),), "ncu")
    assert found[insts[1].name].sequence == (("IGMMA.64x8x32.S8.S8", 1),)
    assert json.loads(arguments.read_text())[-5:] == ["-m", "accprobe.devices.cuda", "cuda:0", *(i.name for i in insts)]
    with pytest.raises(DeviceError, match="saw 2 of 1 probes on cuda:0"):
        ncu.lowerings("cuda:0", insts[:1])


def test_child_launches_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[str] = []
    device = FakeDevice(lambda inst, d: launched.append(inst.name) or d)
    monkeypatch.setattr("accprobe.devices.open_device", lambda name: device)
    monkeypatch.setattr("sys.argv", ["launches", "cuda:0", DENSE, WIDE])
    runpy.run_path(str(Path(accprobe.devices.__file__).with_name("cuda.py")), run_name="__main__")
    assert launched == [DENSE, WIDE]


def lowering(count: int) -> Lowering:
    return Lowering(("IMMA.16816.S8.S8",), (("IMMA.16816.S8.S8", count),), "ncu")


def test_survey_records_the_profiler_where_it_agrees() -> None:
    found = survey(FakeDevice(), [DENSE, WIDE], 512, profiler=lambda insts: {DENSE: lowering(1), WIDE: lowering(2)})
    agreed, other = found.instructions
    assert (agreed.status, agreed.opcode_source, agreed.lowering) == ("confirmed", "ncu", (("IMMA.16816.S8.S8", 1),))
    assert (other.status, other.opcode_source) == ("unverified", "nvdisasm")
    assert other.reason == "the profiler counted 2×IMMA.16816.S8.S8, the disassembly has 1×IMMA.16816.S8.S8"


def test_run_says_why_nothing_is_counted_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> dict[str, Lowering]:
        raise AccprobeError("no permission")

    monkeypatch.setattr(ncu, "lowerings", fails)
    monkeypatch.setattr("accprobe.survey.run.open_device", lambda _: FakeDevice())
    result = invoke("run", "--device", "cuda:0", "--jobs", "1", "--select", DENSE, "--dots", "512", "--ncu")
    said = "accprobe: ncu counted nothing, so the opcodes come from the disassembly: no permission\n"
    assert (result.exit_code, result.stderr) == (0, said)

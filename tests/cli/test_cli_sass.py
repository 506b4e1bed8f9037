"""`accprobe sass` on files: what it prints, its exit status, and the names of kernels."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import invoke
from compiled import needs, only, triton_dot

from accprobe.audit import kernels
from accprobe.build import compiler
from accprobe.render import progress
from accprobe.render.subjects.sass import LONGEST, demangled, short_name
from accprobe.sass.reading import Function


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "BETWEEN_LINES", 1e9)


@pytest.fixture
def promoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cubin of a Triton kernel that promotes every 64 products."""
    needs("nvdisasm")
    monkeypatch.chdir(tmp_path)
    Path("k.cubin").write_bytes(triton_dot(90, 4, 64, True)["cubin"])
    return "k.cubin"


@pytest.fixture
def emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """That of one whose two warps are no warpgroup."""
    needs("nvdisasm")
    monkeypatch.chdir(tmp_path)
    Path("e.cubin").write_bytes(triton_dot(90, 2, None, True)["cubin"])
    return "e.cubin"


def sass(*arguments: str, columns: int = 120) -> tuple[int, list[str], str]:
    result = invoke("sass", "--jobs", "1", *arguments, columns=columns)
    return result.exit_code, [line.rstrip() for line in result.stdout.splitlines()], result.stderr


def test_terminal(promoted: str) -> None:
    status, lines, told = sass(promoted, columns=120)
    assert (status, told) == (0, "")
    assert max(map(len, lines)) <= 120
    assert " ".join(" ".join(lines[5:]).split()) == (
        "gemm, sm_90a QGMMA.64x64x32.F32.E4M3.E4M3 ×4 13 (e8m13) 2 × k32, then promoted by FADD: 64 products"
        " QGMMA sm_90a: measured on an NVIDIA H100 80GB HBM3 and an NVIDIA H200 (reports h100, h200),"
        " at n = 8 and 256, not at 64"
        " 1 GPU function read (sm_90a 1), 1 with matrix opcodes"
    )


def test_json(promoted: str, emulated: str) -> None:
    status, lines, _ = sass(promoted, emulated, "--format", "json")
    data = json.loads("\n".join(lines))
    assert status == 0
    assert (data["schema"], data["kind"], data["functions"], data["unread"]) == (1, "sass", {"sm_90a": 2}, [])
    one, two = data["kernels"]
    assert one["opcodes"] == {"QGMMA.64x64x32.F32.E4M3.E4M3": 4}
    assert one["accumulators"]["QGMMA.64x64x32.F32.E4M3.E4M3"] == {
        "bits": 13,
        "bound": "exact",
        "format": "f32",
        "alignment_bits": 13,
        "source": "measured on an NVIDIA H100 80GB HBM3 and an NVIDIA H200 (reports h100, h200), at n = 8 and 256, not at 64",
    }
    (chain,) = one["sums"]
    assert (chain["verdict"], chain["least"], chain["most"], chain["k"], chain["by"]) == ("promoted", 2, 2, 32, "FADD")
    assert (two["emulated"], two["sums"][0]["verdict"], two["sums"][0]["most"]) == (
        {"format": "e4m3", "by": "HMMA"},
        "never",
        None,
    )


def test_what_cannot_be_read_is_a_sentence_each_and_the_others_are_told(promoted: str) -> None:
    code = Path(promoted).read_bytes()
    Path("empty").mkdir()
    with zipfile.ZipFile("damaged.whl", "w") as wheel:
        wheel.writestr("a.cubin", code)
        wheel.writestr("b.cubin", code)
    whole = bytearray(Path("damaged.whl").read_bytes())
    whole[1000] ^= 1  # of the first member, whose checksum is wrong then
    Path("damaged.whl").write_bytes(whole)
    Path("short.whl").write_bytes(whole[: len(whole) // 2])
    with zipfile.ZipFile("python.whl", "w") as wheel:
        wheel.writestr("a.py", "")
    status, lines, told = sass("damaged.whl", "empty", "short.whl", "python.whl", promoted)
    assert status == 2
    assert told.splitlines() == [
        "accprobe: damaged.whl: a.cubin cannot be unpacked: Bad CRC-32 for file 'a.cubin'",
        "accprobe: empty is an empty folder",
        "accprobe: short.whl is not a complete archive: it is truncated or damaged",
        "accprobe: python.whl has no file with device code in it",
    ]
    assert [line for line in lines if "cubin" in line] == ["damaged.whl: b.cubin", "k.cubin"]


@pytest.fixture
def library(promoted: str, emulated: str) -> str:
    """A wheel with a file of one kernel, one of three, and one of which nothing can be unpacked."""
    one, two = Path(promoted).read_bytes(), Path(emulated).read_bytes()
    unpromoted = triton_dot(90, 4, None, True)["cubin"]
    with zipfile.ZipFile("x.whl", "w") as wheel:
        wheel.writestr("a.so", one)
        wheel.writestr("b.so", b"header.." + one + two + unpromoted)
    return "x.whl"


def test_a_file_with_several_kernels_begins_with_a_summary(library: str) -> None:
    status, lines, told = sass(library, columns=80)
    assert (status, told) == (0, "")
    assert max(map(len, lines)) <= 80
    start = next(i for i, line in enumerate(lines) if line.startswith("x.whl: b.so"))
    assert lines[:2] == ["x.whl: a.so", "FP8 accumulates in 13 bits (promotion interval 64); 1 kernel with matrix opcodes"]
    assert lines[start - 1] == ""
    assert " ".join(" ".join(lines[start:]).split()).startswith(
        "x.whl: b.so FP8 accumulates in 13 bits (promotion interval 64: 1, never promoted: 1);"
        " 1 kernel unpacks narrow operands for a wider unit; 3 kernels with matrix opcodes"
    )


def test_each_file_is_printed_before_the_next_is_read(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the second kernel of the second file is read: the first file and the first kernel are there."""
    read = kernels.reading.functions
    begun: list[Path] = []

    def interrupted(path: Path, matrix: bool = False) -> Iterator[Function]:
        begun.append(path)
        if len(begun) == 3:
            raise KeyboardInterrupt
        yield from read(path, matrix)

    monkeypatch.setattr(kernels.reading, "functions", interrupted)
    status, lines, told = sass(library)
    assert status == 130
    assert [line[:11] for line in lines if line.startswith("x.whl")] == ["x.whl: a.so", "x.whl: b.so"]
    assert told == "accprobe: interrupted: 2 cubins were read; their kernels are printed\n"


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (
            ["--fail-below", "14"],
            1,
            "): QGMMA.64x64x32.F32.E4M3.E4M3 keeps 13 (e8m13) bits, fewer than 14; "
            "2 × k32, then promoted by FADD: 64 products\n",
        ),
        (["--fail-below", "14", "--unless-promoted", "64"], 0, ""),
        (["--fail-below", "14", "--unless-promoted", "63"], 1, "fewer than 14"),
        (["--require", "QGMMA.64x64x32", "--forbid", "HMMA"], 0, ""),
        (["--require", "HMMA", "--require", "IMMA"], 1, "): it has QGMMA.64x64x32.F32.E4M3.E4M3, and not HMMA or IMMA\n"),
        (["--forbid", "QGMMA.*.E4M3.E4M3"], 1, "): QGMMA.64x64x32.F32.E4M3.E4M3 is forbidden\n"),
        (["--forbid", "QGMNA"], 2, "'QGMNA' is not a matrix opcode; did you mean QGMMA"),
        (["--unless-promoted", "64"], 2, "--unless-promoted goes with --fail-below"),
        (["--arch", "sm_80", "--fail-below", "14"], 2, "the files have no code for sm_80"),
    ],
)
def test_requirements(promoted: str, arguments: list[str], status: int, told: str) -> None:
    code, _, error = sass(promoted, *arguments)
    assert code == status
    assert told in error
    assert error.count("\n") == (1 if told else 0)


def test_the_same_kernel_falls_short_once(promoted: str, emulated: str) -> None:
    for number, file in enumerate((promoted, promoted, emulated)):
        Path(f"cache/{number}").mkdir(parents=True)
        Path(f"cache/{number}/gemm.cubin").write_bytes(Path(file).read_bytes())
    status, lines, told = sass("cache", "--fail-below", "14")
    assert (status, lines[-1]) == (1, "FAILED: 2 of 3 kernels with matrix opcodes")
    digest = only(Path("k.cubin")).sha256
    assert told == (
        f"accprobe: cache/0/gemm.cubin: gemm (sm_90a, sha256 {digest[:12]}): QGMMA.64x64x32.F32.E4M3.E4M3 keeps 13 (e8m13)"
        " bits, fewer than 14; 2 × k32, then promoted by FADD: 64 products; the same kernel 1 more time\n"
    )
    assert sass("cache", "--fail-below", "14", "--unless-promoted", "64")[0] == 0


def test_required_where_there_is_no_kernel() -> None:
    needs("nvdisasm")
    empty = compiler.compile_source('extern "C" __global__ void k() {}', "sm_80", "k")
    status, _, told = sass(str(empty.path), "--require", "HMMA")
    assert (status, told) == (1, "accprobe: no kernel has a matrix opcode, and HMMA is required\n")


@pytest.mark.parametrize(("problems", "verdict"), [([], "passed: 0 kernels"), (["x is damaged"], "UNDECIDED: not everything")])
def test_the_first_line_says_where_the_verdict_is(problems: list[str], verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = kernels.Reading(problems=problems)
    monkeypatch.setattr("accprobe.cli.sass._read", lambda *_: ([], found))
    status, lines, _ = sass("x.cubin", "--forbid", "HMMA")
    assert status == (2 if problems else 0)
    assert "the last line is the verdict" in lines[0]
    assert lines[-1].startswith(verdict)


MANGLED = (
    "_ZN6marlin6MarlinI13__nv_bfloat16Ll2814749767172868ELi128ELi1ELi8ELi4ELb0ELi4ELi8ELb0EEEvPK4int4S4_PS2_S5_S4_S4_PKtS4_PKiii"
    "iiPibbi"
)


@pytest.fixture(autouse=True)
def _forget() -> None:
    demangled.cache_clear()
    short_name.cache_clear()


@pytest.mark.parametrize("name", ["gemm", "nvjet_sm90_qqtst_64x48_128x15_2x4_h_bz_TNT", "_Z", "_Zbroken"])
def test_what_is_not_mangled_stays(name: str) -> None:
    assert short_name(name) == name


def test_mangled_names() -> None:
    pytest.importorskip("cxxfilt")
    expected = "marlin::Marlin<__nv_bfloat16, 2814749767172868l, 128, 1, 8, 4, false, 4, 8, false>"
    assert short_name(MANGLED) == expected
    assert demangled(MANGLED).startswith(f"void {expected}(int4 const*")


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("f(int (*)(float), int)", "f"),
        ("void (anonymous namespace)::g<(a::B)3>(int)", "g<(a::B)3>"),
        ("void a::k<b<c<int> > >(d<e>)", "a::k<b<c<int>>>"),
        (f"void {'x' * 200}(int)", f"{'x' * (LONGEST - 1)}…"),
    ],
)
def test_short_names(full: str, short: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accprobe.render.subjects.sass.demangled", lambda name: full)
    assert short_name("_Zx") == short

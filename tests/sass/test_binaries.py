"""Device code in files of every kind: made here, by the compiler, the assembler and the linker, or byte by byte."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest
from compiled import fatbin, needs

from accprobe.audit import kernels
from accprobe.audit.kernels import Kernel, Reading, libraries
from accprobe.build import compiler
from accprobe.errors import AccprobeError
from accprobe.isa.instructions import parse
from accprobe.sass import binaries
from accprobe.sass.binaries import find

ADA, HOPPER = "mma.sync.m16n8k32.f32.e4m3.e4m3.f32", "wgmma.m64n8k32.f32.e4m3.e4m3"


@pytest.fixture
def cubins() -> dict[str, bytes]:
    """Probes for two architectures."""
    needs("nvdisasm", "cuobjdump")
    pytest.importorskip("cuda.core", exc_type=ImportError)
    made = {target: compiler.compile(parse(name), target) for target, name in (("sm_89", ADA), ("sm_90a", HOPPER))}
    return {target: cubin.path.read_bytes() for target, cubin in made.items()}


def both(path: Path, **options: object) -> tuple[list[Kernel], Reading]:
    reading = Reading()
    return [kernel for found in libraries([path], reading=reading, **options) for kernel in found], reading  # type: ignore[arg-type]  # options by name


def opcodes(found: list[Kernel]) -> dict[str, list[str]]:
    return {kernel.architecture: [opcode for opcode, _ in kernel.matrix] for kernel in found}


BOTH = {"sm_89": ["QMMA.16832.F32.E4M3.E4M3"], "sm_90a": ["QGMMA.64x8x32.F32.E4M3.E4M3"]}


def test_fatbin_with_two_architectures(cubins: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "two.fatbin"
    path.write_bytes(fatbin(cubins.items(), ptx=".version 8.0"))
    found, reading = both(path)
    assert opcodes(found) == BOTH
    assert (dict(reading.functions), reading.problems) == ({"sm_89": 1, "sm_90a": 1}, [])
    assert opcodes(both(path, targets=("sm_90a",))[0]) == {"sm_90a": BOTH["sm_90a"]}


def test_two_processes_read_the_same(cubins: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "two.fatbin"
    path.write_bytes(fatbin(cubins.items()))
    assert both(path, jobs=2)[0] == both(path, jobs=1)[0]


def test_a_worker_process_that_ends_is_one_sentence(
    cubins: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "two.fatbin"
    path.write_bytes(fatbin(cubins.items()))
    monkeypatch.setattr(kernels.signal, "signal", os._exit)  # takes one argument, so that it raises in the worker
    with pytest.raises(AccprobeError, match=r"a worker process ended.*--jobs 1 needs the least"):
        both(path, jobs=2)


def test_fatbin_of_nvidias_own_tool(cubins: dict[str, bytes], tmp_path: Path) -> None:
    tool = shutil.which("fatbinary")
    if tool is None:
        pytest.skip("fatbinary is not installed")
    command = [tool, "-64", "--create=made.fatbin", "--compress-mode=size"]
    for target, content in cubins.items():
        (tmp_path / f"{target}.cubin").write_bytes(content)
        command.append(f"--image3=kind=elf,sm={target[3:]},file={target}.cubin")
    subprocess.run(command, cwd=tmp_path, check=True)
    assert (tmp_path / "made.fatbin").stat().st_size < sum(map(len, cubins.values()))
    assert opcodes(both(tmp_path / "made.fatbin")[0]) == BOTH


def library(folder: Path, content: bytes, section: str = ".nv_fatbin") -> Path:
    """A shared library with those bytes in a section."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (folder / "content.bin").write_bytes(content)
    (folder / "x.S").write_text(f'.section {section},"a"\n.balign 8\n.incbin "content.bin"\n')
    (folder / "y.c").write_text("int answer(void) { return 42; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "libx.so", "x.S", "y.c"], cwd=folder, check=True)
    return folder / "libx.so"


def test_shared_library_with_a_fatbin(cubins: dict[str, bytes], tmp_path: Path) -> None:
    path = library(tmp_path, fatbin([("sm_89", cubins["sm_89"])]) + fatbin([("sm_90a", cubins["sm_90a"])]))
    found, _ = both(path)
    assert opcodes(found) == BOTH
    assert {kernel.file for kernel in found} == {str(path)}


def test_wheel_and_folder(cubins: dict[str, bytes], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("x/libx.so", fatbin(cubins.items()))
        wheel.writestr("x/__init__.py", "")
        wheel.writestr("x/data.so", "no code")
    found, _ = both(tmp_path / "x-1.0-py3-none-any.whl")
    assert opcodes(found) == BOTH
    assert {kernel.file for kernel in found} == {"x-1.0-py3-none-any.whl: x/libx.so"}
    cache = tmp_path / "triton" / "ABC"
    cache.mkdir(parents=True)
    (cache / "k.cubin").write_bytes(cubins["sm_90a"])
    (cache / "k.ptx").write_text(".version 8.0\n.target sm_90a\nbroken")
    (cache / "k.json").write_text("{}")
    found, reading = both(tmp_path / "triton")
    assert opcodes(found) == {"sm_90a": BOTH["sm_90a"]}
    assert reading.problems == []


def problems(path: Path) -> list[str]:
    found: list[str] = []
    assert not any(find([path], path.parent, found))
    return found


def test_what_is_not_read_is_told_in_one_sentence(cubins: dict[str, bytes], tmp_path: Path) -> None:
    def written(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    assert problems(written("notes.txt", b"no code"))[0].endswith("notes.txt has no GPU code")
    assert problems(written("x.ptx", b".version 8.0"))[0].endswith("assemble PTX with `ptxas -arch=sm_90a FILE -o FILE.cubin`")
    assert problems(tmp_path / "absent.cubin")[0].startswith(f"there is no file {tmp_path}/absent.cubin;")
    assert "has PTX and no machine code" in problems(written("p.fatbin", fatbin([], ptx=".version 8.0")))[0]
    assert "x.fatbin cannot be read: cuobjdump failed: " in problems(written("x.fatbin", fatbin(cubins.items())[:-50]))[0]
    cut = written("x.so", library(tmp_path, fatbin(cubins.items())).read_bytes()[:3000])
    assert problems(cut)[0].endswith("x.so has no GPU code, or is truncated")


def test_what_may_never_end_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        assert problems(path) == [f"{path} is not a regular file: write the data of a pipe to a file first"]
    (tmp_path / "library.so").write_bytes(b"x" * 3000)
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as wheel:
        wheel.write(tmp_path / "library.so", "library.so")
    monkeypatch.setattr(binaries, "LARGEST_FILE", 2048)
    assert problems(tmp_path / "library.so") == [f"{tmp_path}/library.so is 0 GiB; no file with GPU code has more than 0"]
    assert problems(tmp_path / "w.whl") == ["w.whl: library.so is 0 GiB; no file with GPU code has more than 0"]


def test_a_truncated_cubin_costs_one_sentence(cubins: dict[str, bytes], tmp_path: Path) -> None:
    """The other files of the wheel are read."""
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr("a.cubin", cubins["sm_90a"][:-100])
        wheel.writestr("b.fatbin", fatbin([("sm_89", cubins["sm_89"]), ("sm_90a", cubins["sm_90a"][:-500])]))
    found, reading = both(tmp_path / "x.whl")
    assert [(kernel.file, kernel.architecture) for kernel in found] == [("x.whl: b.fatbin", "sm_89")]
    assert [problem.partition(" failed: ")[0] for problem in sorted(reading.problems)] == [
        "x.whl: a.cubin cannot be read: nvdisasm",
        "x.whl: b.fatbin cannot be read: cuobjdump",
    ]


def test_no_copy_stays_behind(cubins: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr("a.fatbin", fatbin(cubins.items()))
        wheel.writestr("b.cubin", cubins["sm_90a"])
    left = []
    for found in libraries([tmp_path / "x.whl"], jobs=2):
        left.append([path.name for path in (tmp_path / "temporary").rglob("*") if path.is_file()])
        assert found
    assert left[-1] == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_architecture_that_the_disassembler_does_not_know(cubins: dict[str, bytes], tmp_path: Path) -> None:
    """The others of the file are read all the same; alone it is an error."""
    unknown = bytearray(cubins["sm_90a"])
    (flags,) = struct.unpack_from("<I", unknown, 48)
    shift = 8 if unknown[8] >= 8 else 0  # of newer ELFs the architecture is in the second byte
    struct.pack_into("<I", unknown, 48, flags & ~(0xFF << shift) | 200 << shift)
    (tmp_path / "x.fatbin").write_bytes(fatbin([("sm_89", cubins["sm_89"]), ("sm_99", bytes(unknown))]))
    found, reading = both(tmp_path / "x.fatbin")
    assert opcodes(found) == {"sm_89": BOTH["sm_89"]}
    assert len(reading.problems) == 1
    assert "x.fatbin, sm_200a cannot be read: " in reading.problems[0]
    (tmp_path / "x.cubin").write_bytes(unknown)
    with pytest.raises(binaries.AccprobeError, match=r"x\.cubin cannot be read: nvdisasm failed: "):
        both(tmp_path / "x.cubin")

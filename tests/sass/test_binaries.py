"""Device code in files of every kind: made here, by the compiler, the assembler and the linker, or byte by byte."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest
from compiled import needs

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


def fatbin(entries: dict[str, bytes], ptx: str = "") -> bytes:
    """A container as `fatbinary` writes it, its entries not compressed."""
    body = b"".join(entry(2, int(target[3:5]), content) for target, content in entries.items())
    if ptx:
        body += entry(1, 90, ptx.encode() + b"\0")
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def entry(kind: int, architecture: int, content: bytes) -> bytes:
    content += bytes(-len(content) % 8)
    flags = 0x11  # 64 bits, of Linux
    header = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(content), 0, 0, 8, 1, architecture, 0, 0, flags, 0, 0)
    return header + content


def both(path: Path, **options: object) -> tuple[list[Kernel], Reading]:
    reading = Reading()
    return [kernel for found in libraries([path], reading=reading, **options) for kernel in found], reading


def opcodes(found: list[Kernel]) -> dict[str, list[str]]:
    return {kernel.architecture: [opcode for opcode, _ in kernel.matrix] for kernel in found}


BOTH = {"sm_89": ["QMMA.16832.F32.E4M3.E4M3"], "sm_90a": ["QGMMA.64x8x32.F32.E4M3.E4M3"]}


def test_fatbin_with_two_architectures(cubins: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "two.fatbin"
    path.write_bytes(fatbin(cubins, ptx=".version 8.0"))
    found, reading = both(path)
    assert opcodes(found) == BOTH
    assert (dict(reading.functions), reading.problems) == ({"sm_89": 1, "sm_90a": 1}, [])
    assert opcodes(both(path, targets=("sm_90a",))[0]) == {"sm_90a": BOTH["sm_90a"]}


def test_two_processes_read_the_same(cubins: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "two.fatbin"
    path.write_bytes(fatbin(cubins))
    assert both(path, jobs=2)[0] == both(path, jobs=1)[0]


def test_a_worker_process_that_ends_is_one_sentence(
    cubins: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "two.fatbin"
    path.write_bytes(fatbin(cubins))
    monkeypatch.setattr(kernels, "_begin_worker", os._exit)  # the pool passes it a path, so that it raises
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
    path = library(tmp_path, fatbin({"sm_89": cubins["sm_89"]}) + fatbin({"sm_90a": cubins["sm_90a"]}))
    found, _ = both(path)
    assert opcodes(found) == BOTH
    assert {kernel.file for kernel in found} == {str(path)}


def test_wheel_and_folder(cubins: dict[str, bytes], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("x/libx.so", b"header" + fatbin(cubins))
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
    found = list(find([path], path.parent))
    assert [each.pieces for each in found] == [[] for _ in found]
    return [problem for each in found for problem in each.problems]


def test_what_is_not_read_is_told_in_one_sentence(tmp_path: Path) -> None:
    def written(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    assert problems(written("notes.txt", b"no code"))[0].endswith(
        " has no machine code of an NVIDIA GPU; assemble PTX with `ptxas -arch=sm_90a`"
    )
    assert problems(written("empty", b""))[0].endswith("empty is empty")
    assert "p.fatbin has no machine code" in problems(written("p.fatbin", fatbin({}, ptx=".version 8.0")))[0]
    damaged = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 80) + struct.pack("<HHIQ", 2, 0x101, 64, 500) + bytes(64)
    assert "has a damaged fatbin" in problems(written("d.fatbin", damaged))[0]


def test_what_may_never_end_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        assert problems(path) == [f"{path} is not a regular file: write the data of a pipe to a file first"]
    (tmp_path / "library.so").write_bytes(b"x" * 3000)
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as wheel:
        wheel.write(tmp_path / "library.so", "library.so")
    monkeypatch.setattr(binaries, "LARGEST_FILE", 2048)
    assert problems(tmp_path / "library.so") == [f"{tmp_path}/library.so is 0 GiB; no file with device code has more than 0"]
    assert problems(tmp_path / "w.whl") == ["w.whl: library.so is 0 GiB; no file with device code has more than 0"]


def test_truncated_files(cubins: dict[str, bytes], tmp_path: Path) -> None:
    whole = cubins["sm_90a"]
    for size in (64, 1000, len(whole) - 100):
        (tmp_path / "x.cubin").write_bytes(whole[:size])
        (problem,) = problems(tmp_path / "x.cubin")
        assert f"x.cubin is truncated: it ends at byte {len(whole):,}, the file at {size:,}" in problem or size == 64
        assert "is truncated" in problem
    packed = fatbin(cubins)
    (tmp_path / "x.fatbin").write_bytes(packed[:-50])
    (found,) = find([tmp_path / "x.fatbin"], tmp_path)
    assert [f"a fatbin in it ends at byte {len(packed):,}" in problem for problem in found.problems] == [True]
    assert [piece.size for piece in found.pieces] == [len(cubins["sm_89"])]


def test_a_damaged_cubin_in_a_wheel_costs_one_sentence(cubins: dict[str, bytes], tmp_path: Path) -> None:
    """Its header says that it is longer than the library; what lies behind it is read."""
    damaged = bytearray(cubins["sm_90a"])
    struct.pack_into("<Q", damaged, 40, 1 << 40)  # where its section headers are
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr("x/libx.so", b"header.." + bytes(damaged) + cubins["sm_89"])
        wheel.writestr("x/liby.so", b"header.." + fatbin({"sm_90a": cubins["sm_90a"][:-500]}) + fatbin(cubins))
    found, reading = both(tmp_path / "x.whl")
    assert [(kernel.file, kernel.architecture) for kernel in found] == [
        ("x.whl: x/libx.so", "sm_89"),
        ("x.whl: x/liby.so", "sm_89"),
        ("x.whl: x/liby.so", "sm_90a"),
    ]
    cut, unread = reading.problems
    assert cut.startswith("x.whl: x/libx.so has a cubin that is truncated: ")
    assert unread.startswith("x.whl: x/liby.so, sm_90 cannot be read: nvdisasm failed: ")


def test_architecture_that_the_disassembler_does_not_know(cubins: dict[str, bytes], tmp_path: Path) -> None:
    """The others of the file are read all the same; alone it is an error."""
    unknown = bytearray(cubins["sm_90a"])
    (flags,) = struct.unpack_from("<I", unknown, 48)
    shift = 8 if unknown[8] >= 8 else 0  # of newer ELFs the architecture is in the second byte
    struct.pack_into("<I", unknown, 48, flags & ~(0xFF << shift) | 200 << shift)
    (tmp_path / "x.fatbin").write_bytes(fatbin({"sm_89": cubins["sm_89"], "sm_20": bytes(unknown)}))
    found, reading = both(tmp_path / "x.fatbin")
    assert opcodes(found) == {"sm_89": BOTH["sm_89"]}
    assert len(reading.problems) == 1
    assert "x.fatbin, sm_20 cannot be read: " in reading.problems[0]
    (tmp_path / "x.cubin").write_bytes(unknown)
    with pytest.raises(binaries.AccprobeError, match=r"x\.cubin cannot be read: nvdisasm failed: "):
        both(tmp_path / "x.cubin")

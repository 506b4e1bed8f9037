"""Cubins wherever they are: a cubin, a fatbin, a library, executable or archive with some inside, a folder, a wheel.

Device code is found by what it begins with, at any place of a file that is mapped, not read: a fatbin (a container of cubins
and PTX, compressed or not) and cubins that stand alone. The container's layout is NVIDIA's own, in `fatbinary_section.h` of
the CUDA toolkit and in what `cuobjdump --list-elf` shows of it: a header of 16 bytes (magic, version, its own size, bytes that
follow), then entries, each with a header (kind, version, its size, payload bytes, …, architecture at byte 28). cuobjdump
unpacks an entry that is compressed.
"""

from __future__ import annotations

import mmap
import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from accprobe.build import toolchain
from accprobe.errors import AccprobeError

LARGEST_FILE = 1 << 34
"""Size limit of a file, also in a wheel: libraries with code for every architecture are a few GiB."""

_FATBIN, _FATBIN_HEADER = b"\x50\xed\x55\xba", 16
_ELF, _CUDA_MACHINE, _AMD_MACHINE = b"\x7fELF", 190, 224
_PTX_ENTRY, _ELF_ENTRY = 1, 2
_WINDOW = 4 << 20
"""Bytes of a file that are searched at once."""
_NO_BITS = 8
"""Section type of what takes no room in the file."""
_AMD_MARKS = (b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b".hip_fatbin")
_PTX_START = re.compile(rb"(?:\s|//[^\n]*\n|/\*.*?\*/)*\.version\s+\d", re.DOTALL)
_BINARIES = re.compile(r"\.(cubin|fatbin|so|o|a|pyd|dll|exe)(\.|$)|^[^.]+$")
"""Names of files that may hold device code, among those of a folder or a wheel."""


@dataclass(frozen=True)
class Piece:
    """Bytes start … stop of a file that hold one cubin, or one entry of a fatbin.

    label: the file as the user knows it, "x.whl: a/b.so". architecture: "sm_90", "" where it is not known without reading it.
    """

    file: Path
    label: str
    kind: Literal["cubin", "fatbin"]
    start: int
    stop: int
    architecture: str = ""

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass
class DeviceCode:
    """The content of one file. label: the file as the user knows it. ptx: PTX entries of fatbins, by architecture: the driver
    compiles those, no SASS is there. problems: sentences of what could not be read. copy: where a wheel's member lies.
    """

    label: str
    pieces: list[Piece] = field(default_factory=list)
    ptx: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    copy: Path | None = None

    def discard(self) -> None:
        """Removes the copy, which may be a GiB."""
        if self.copy:
            self.copy.unlink(missing_ok=True)


def find(paths: Iterable[Path], unpacked: Path, architectures: tuple[str, ...] = ()) -> Iterator[DeviceCode]:
    """The device code of the files, one after another, of these architectures where some are given.

    What wheels hold goes to folder `unpacked` when its turn comes. A named file that holds none, is cut short or is not
    NVIDIA's is a problem too.
    """
    for path in paths:
        try:
            for found in _in_path(path, unpacked):
                found.pieces = [piece for piece in found.pieces if wanted(piece.architecture, architectures)]
                yield found
        except AccprobeError as e:
            yield DeviceCode(str(path), problems=[str(e)])


def _in_path(path: Path, unpacked: Path) -> Iterator[DeviceCode]:
    if path.is_dir():
        yield from _in_folder(path)
        return
    _check_regular(path)
    if zipfile.is_zipfile(path):
        yield from _in_wheel(path, unpacked)
    elif path.suffix in (".whl", ".zip") and path.exists():
        raise AccprobeError(f"{path} is no whole archive: it is cut short or damaged")
    else:
        yield _in_file(path, str(path))


def wanted(architecture: str, architectures: tuple[str, ...]) -> bool:
    """Whether code for an architecture ("": not known yet) is asked for: none named is all, sm_90 and sm_90a are one."""
    return not architectures or not architecture or architecture.rstrip("af") in {name.rstrip("af") for name in architectures}


@contextmanager
def cubin(piece: Piece) -> Iterator[Path]:
    """Yield the piece as a cubin file, for as long as the context lasts. Raises ToolMissing without cuobjdump, ToolFailed where
    it cannot read a fatbin.
    """
    with tempfile.TemporaryDirectory(prefix="accprobe") as folder:
        place = Path(folder)
        if piece.kind == "cubin" and piece.size == piece.file.stat().st_size:
            yield piece.file
            return
        content = _content(piece)
        if piece.kind == "cubin":
            (place / "found.cubin").write_bytes(content)
        elif content.startswith(_ELF, start := struct.unpack_from("<4xI", content)[0]):  # it is not compressed
            (place / "found.cubin").write_bytes(content[start:])
        else:
            header = _FATBIN + struct.pack("<HHQ", 1, _FATBIN_HEADER, len(content))
            (place / "entry.fatbin").write_bytes(header + content)
            toolchain.run("cuobjdump", "--extract-elf", "all", "entry.fatbin", folder=place)
        cubins = sorted(place.glob("*.cubin"))
        if not cubins:
            raise toolchain.ToolFailed(f"cuobjdump found no cubin in an entry of {piece.label}")
        yield cubins[0]


def _content(piece: Piece) -> bytes:
    with piece.file.open("rb") as file:
        file.seek(piece.start)
        return file.read(piece.size)


def _check_regular(path: Path) -> None:
    """Raise AccprobeError for a pipe or a device, which may never end. A missing file fails where it is opened."""
    if path.exists() and not path.is_file():
        raise AccprobeError(f"{path} is no regular file; what a pipe has can be read once it is written to one")


def _check_size(size: int, label: str) -> None:
    if size > LARGEST_FILE:
        raise AccprobeError(f"{label} is {size >> 30:,} GiB; no file with device code has more than {LARGEST_FILE >> 30}")


def _in_folder(folder: Path) -> Iterator[DeviceCode]:
    paths = sorted(folder.rglob("*"))
    if not paths:
        raise AccprobeError(f"{folder} is an empty folder")
    nothing = True
    for path in paths:
        if path.is_file() and _BINARIES.search(path.name) and (found := _try(path, str(path))):
            nothing = False
            yield found
    if nothing:
        raise AccprobeError(f"{folder} has no file with device code in it")


def _in_wheel(wheel: Path, unpacked: Path) -> Iterator[DeviceCode]:
    nothing = True
    try:
        with zipfile.ZipFile(wheel) as archive:
            for number, member in enumerate(archive.infolist()):
                if member.is_dir() or not _BINARIES.search(Path(member.filename).name):
                    continue
                found = _in_member(archive, member, unpacked / f"{wheel.stem}.{number}", f"{wheel.name}: {member.filename}")
                if found:
                    nothing = False
                    yield found
    except zipfile.BadZipFile as e:
        raise AccprobeError(f"{wheel} is no whole archive: {e}") from None
    if nothing:
        raise AccprobeError(f"{wheel} has no file with NVIDIA device code in it")


def _in_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, label: str) -> DeviceCode | None:
    """As `_try`, of what an archive holds; one member that cannot be unpacked is a problem, the others are read."""
    found: DeviceCode | None
    try:
        _check_size(member.file_size, label)
        with archive.open(member) as source, target.open("wb") as copy:
            while chunk := source.read(1 << 20):
                copy.write(chunk)
    except AccprobeError as e:
        found = DeviceCode(label, problems=[str(e)])
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as e:
        found = DeviceCode(label, problems=[f"{label} cannot be unpacked: {str(e) or 'it is cut short'}"])
    else:
        found = _try(target, label)
    if found and found.pieces:
        found.copy = target
    else:
        target.unlink(missing_ok=True)
    return found


def _try(path: Path, label: str) -> DeviceCode | None:
    """As `_in_file`, for a file in a folder: files without machine code are skipped silently, damaged ones are reported."""
    try:
        return _in_file(path, label)
    except _NothingThere:
        return None
    except AccprobeError as e:
        return DeviceCode(label, problems=[str(e)])


class _NothingThere(AccprobeError):
    """The file is whole, and has no device code."""


def _in_file(path: Path, label: str) -> DeviceCode:
    found = DeviceCode(label)
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size == 0:
                raise _NothingThere(f"{label} is empty")
            _check_size(size, label)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _scan(data, path, label, found)
    except OSError as e:
        raise AccprobeError(f"{label} cannot be read: {e.strerror}") from None
    return found


def _scan(data: mmap.mmap, path: Path, label: str, found: DeviceCode) -> None:
    if _PTX_START.match(data[: 1 << 16]):
        raise _NothingThere(f"{label} is PTX, which has no opcodes: assemble it with `ptxas -arch=sm_90a FILE -o FILE.cubin`")
    if _machine(data, 0) == _AMD_MACHINE:
        raise _NothingThere(f"{label} is an AMD code object; accprobe reads NVIDIA's cubins, fatbins and what holds them")
    place = 0
    while (place := _next(data, place)) >= 0:
        is_cubin = data[place : place + 4] == _ELF
        try:
            place = (_cubin if is_cubin else _fatbin)(data, place, path, label, found)
        except AccprobeError as e:
            found.problems = found.problems or [str(e)]  # the first is the cause of others
            place += len(_ELF)
    if found.pieces or found.problems:
        return
    if found.ptx:
        found.problems.append(
            f"{label} holds no SASS, but PTX alone: `cuobjdump --extract-ptx all` extracts it, and `ptxas` assembles it"
        )
        return
    if any(data.find(mark) >= 0 for mark in _AMD_MARKS):
        raise _NothingThere(f"{label} holds AMD GPU code, and none of NVIDIA's")
    raise _NothingThere(f"{label} holds no NVIDIA device code: it is no cubin or fatbin, nor has it any inside")


def _next(data: mmap.mmap, place: int) -> int:
    """Where the next fatbin or ELF file begins, -1 where there is none; what was searched does not stay in memory."""
    while place < len(data):
        stop = min(place + _WINDOW, len(data))
        found = [at for mark in (_FATBIN, _ELF) if (at := data.find(mark, place, stop + len(mark) - 1)) >= 0]
        page = place - place % mmap.PAGESIZE
        data.madvise(mmap.MADV_DONTNEED, page, (min(found) if found else stop) - page)
        if found:
            return min(found)
        place = stop
    return -1


def _fatbin(data: mmap.mmap, start: int, path: Path, label: str, found: DeviceCode) -> int:
    """The entries of the fatbin that begins at `start`, if one does; where to look on."""
    _, version, header, size = _unpack("<IHHQ", data, start)
    if (version, header) != (1, _FATBIN_HEADER):
        return start + len(_FATBIN)
    place, end = start + header, start + header + size
    if end > len(data):
        raise AccprobeError(f"{label} is cut short: a fatbin in it ends at byte {end:,}, the file at {len(data):,}")
    while place < end:
        kind, _, header, size = _unpack("<HHIQ", data, place)
        architecture = f"sm_{_unpack('<I', data, place + 28)[0]}"
        stop = place + header + size
        if header < 32 or stop > end:
            raise AccprobeError(f"{label} has a fatbin that is damaged, or of a kind that accprobe does not know")
        if kind == _ELF_ENTRY:
            found.pieces.append(Piece(path, label, "fatbin", place, stop, architecture))
        elif kind == _PTX_ENTRY:
            found.ptx[architecture] = found.ptx.get(architecture, 0) + 1
        place = stop
    return end


def _cubin(data: mmap.mmap, start: int, path: Path, label: str, found: DeviceCode) -> int:
    """The cubin that begins at `start`, if one does; where to look on."""
    if _machine(data, start) != _CUDA_MACHINE:
        return start + len(_ELF)
    size = _elf_size(data, start)
    if start + size > len(data):
        whole = "is" if start == 0 else "has a cubin that is"
        raise AccprobeError(f"{label} {whole} cut short: it ends at byte {start + size:,}, the file at {len(data):,}")
    found.pieces.append(Piece(path, label, "cubin", start, len(data) if start == 0 else start + size))
    return start + size


def _machine(data: mmap.mmap, start: int) -> int:
    is_elf = data[start : start + 5] == _ELF + b"\2"  # of 64 bits
    return int(_unpack("<H", data, start + 18)[0]) if is_elf else 0


def _elf_size(data: mmap.mmap, start: int) -> int:
    """Bytes of an ELF file, from its header: the section headers, and what they and the program headers point at."""
    program, sections = _unpack("<QQ", data, start + 32)
    program_size, programs, section_size, count = _unpack("<HHHH", data, start + 54)
    size = max(sections + section_size * count, program + program_size * programs)
    if start + size <= len(data):
        for i in range(count):
            kind, offset, length = _unpack("<4xI16xQQ", data, start + sections + section_size * i)
            size = max(size, offset + (0 if kind == _NO_BITS else length))
    return size


def _unpack(form: str, data: mmap.mmap, place: int) -> tuple[int, ...]:
    """Numbers at a place; zeros behind the end of the file."""
    return struct.unpack(form, data[place : place + struct.calcsize(form)].ljust(struct.calcsize(form), b"\0"))
